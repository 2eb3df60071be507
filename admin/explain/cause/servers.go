package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/resolver"
)

// The extended errors of a server of ours (docs/spec/dns.md 5.7).
const (
	extendedStale   = dns.ExtendedErrorCodeStaleAnswer
	extendedStaleNX = dns.ExtendedErrorCodeStaleNXDOMAINAnswer
	extendedUnready = dns.ExtendedErrorCodeNotReady
)

// A serverFault is a fault in the replies of a server.
type serverFault struct {
	code     reason.Code
	evidence string
	partial  bool // clients get the right answer anyway
}

// checkServers compares the replies of the servers with the objects, and with each other.
func checkServers(w *walk) {
	const name = "dns"
	if len(w.in.Servers) == 0 {
		w.skip(name, fmt.Sprintf("no DNS server was asked, so an old answer could not be seen: "+
			"give each replica as --dns-server ADDRESS:PORT, from \"kubectl -n %s get endpointslices -l kubernetes.io/service-name=clusterset-dns\", "+
			"where they can be reached over UDP and TCP; kubectl port-forward carries TCP alone", w.in.Namespace))
		return
	}
	faults := make([]serverFault, len(w.in.Servers))
	good := 0
	for i := range w.in.Servers {
		if faults[i] = w.serverFault(&w.in.Servers[i]); faults[i].code == "" {
			good++
		}
	}
	for i, f := range faults {
		s := &w.in.Servers[i]
		switch {
		case f.code == "":
			w.ok("dns "+s.Name, "%s", s.text())
		case good > 0 && !f.partial:
			w.wrong("dns "+s.Name, reason.DNSReplicasDiffer, "%s; %d of %d servers answer as they should (%s)", f.evidence,
				good, len(faults), f.code)
		default:
			w.fault(f.partial, faultStep("dns "+s.Name, f.code), "%s", f.evidence)
		}
	}
}

func (s *Server) text() string {
	r := s.UDP
	if !r.Asked || r.Failure != "" {
		r = s.TCP
	}
	if len(r.Values) > 0 {
		return shortList(r.Values)
	}
	return dns.RcodeToString[r.Rcode] + " without records"
}

// serverFault returns the fault of a server, or the zero value.
func (w *walk) serverFault(s *Server) serverFault {
	udp, tcp := s.UDP.Asked && s.UDP.Failure == "", s.TCP.Asked && s.TCP.Failure == ""
	if !udp && !tcp {
		return serverFault{code: reason.DNSUnreachable, evidence: cmp.Or(s.UDP.Failure, s.TCP.Failure)}
	}
	for _, r := range []*Reply{&s.UDP, &s.TCP} {
		if r.Asked && r.Failure == "" {
			if f := w.replyFault(r); f.code != "" {
				return f
			}
		}
	}
	switch {
	case s.UDP.Asked && !udp:
		return serverFault{code: reason.DNSWithoutUDP, evidence: s.UDP.Failure}
	case s.TCP.Asked && !tcp:
		return serverFault{code: reason.DNSWithoutTCP, evidence: s.TCP.Failure, partial: true}
	}
	return serverFault{}
}

func (w *walk) replyFault(r *Reply) serverFault {
	if code, evidence := r.Fault(w.in.Zone); code != "" {
		return serverFault{code: code, evidence: evidence}
	}
	if f := w.answerFault(r, dns.RcodeToString[r.Rcode]); f.code != "" {
		return f
	}
	if r.hasExtended(extendedStale, extendedStaleNX) {
		return serverFault{code: reason.DNSStale, evidence: dns.RcodeToString[r.Rcode] + " with extended error 3 or 19",
			partial: true}
	}
	return serverFault{}
}

func (r *Reply) hasExtended(codes ...uint16) bool {
	return slices.ContainsFunc(r.Extended, func(c uint16) bool { return slices.Contains(codes, c) })
}

// Fault returns the fault of a reply that no objects can justify, or "". zone is that of the clusterset.
func (r *Reply) Fault(zone string) (_ reason.Code, evidence string) {
	word := dns.RcodeToString[r.Rcode]
	switch {
	case r.Failure != "":
		return reason.DNSUnreachable, r.Failure
	case r.Rcode == dns.RcodeRefused:
		return reason.DNSRefused, word
	case r.Rcode == dns.RcodeServerFailure && r.hasExtended(extendedUnready):
		return reason.DNSNotReady, word + " with extended error 14"
	case r.Rcode != dns.RcodeSuccess && r.Rcode != dns.RcodeNameError:
		return reason.DNSFailure, word
	case len(r.Values) == 0 && r.Zone != "" && r.Zone != zone, r.Rcode == dns.RcodeNameError && r.Zone == "":
		return reason.DNSNotWired, word + " of zone \"" + r.Zone + ".\""
	}
	return "", ""
}

// answerFault compares a reply with what the objects say.
func (w *walk) answerFault(r *Reply, word string) serverFault {
	e := &w.expected
	if !e.known || w.target.Service == "" {
		return serverFault{}
	}
	switch {
	case e.outcome == resolver.Found && len(r.Values) == 0:
		if r.Reason != "" {
			word += " (" + string(r.Reason) + ")"
		}
		return serverFault{code: reason.DNSLacksName, evidence: word + " without records, want " + e.text(w.in.Type)}
	case e.outcome != resolver.Found && len(r.Values) > 0:
		return serverFault{code: reason.DNSOldAnswer, evidence: shortList(r.Values) + ", want " + e.text(w.in.Type)}
	}
	for _, v := range r.Values {
		if !slices.Contains(e.values, v) {
			return serverFault{code: reason.DNSOtherAnswer, evidence: v + ", want " + e.text(w.in.Type)}
		}
	}
	return serverFault{}
}
