package cause

import (
	"cmp"
	"slices"
	"strings"

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

// checkServing compares the replies of the servers of the zone, and of those that the user named, with the objects and
// with each other.
func checkServing(w *walk) {
	if len(w.in.Servers) == 0 {
		w.skip("dns", w.unasked())
	}
	w.checkServers(ClusterSetDNS)
	w.checkServers(Named)
}

// checkCluster does so for the cluster's DNS server, after the configuration that may be the reason.
func checkCluster(w *walk) { w.checkServers(ClusterDNS) }

func (w *walk) unasked() string {
	if len(w.in.Servers) > 0 {
		return w.in.Servers[0].Unread
	}
	return cmp.Or(w.in.Unasked, "the cluster has no Service of a DNS server with Pods")
}

// asked reports whether any server was asked.
func (w *walk) asked() bool {
	return slices.ContainsFunc(w.in.Servers, func(s Server) bool { return s.Unread == "" })
}

// askedRole reports whether a server with a role was asked.
func (w *walk) askedRole(role Role) bool {
	return slices.ContainsFunc(w.in.Servers, func(s Server) bool { return s.Role == role && s.Unread == "" })
}

// checkServers compares servers with the same role.
func (w *walk) checkServers(role Role) {
	faults := map[*Server]serverFault{}
	good := 0
	for i := range w.in.Servers {
		if s := &w.in.Servers[i]; s.Role == role && s.Unread == "" {
			f := w.serverFault(s)
			if f.code == "" {
				good++
			}
			if f.code == reason.DNSNotWired && role == ClusterDNS && w.in.Wiring.Value.cacheHasZone() {
				f.partial = true // the zone goes past it
			}
			faults[s] = f
		}
	}
	for i := range w.in.Servers {
		s := &w.in.Servers[i]
		name := strings.TrimSpace("dns " + string(role) + " " + s.Name)
		switch f := faults[s]; {
		case s.Role != role:
		case s.Unread != "" && w.asked():
			w.unknown(name, s.Unread)
		case s.Unread != "":
			w.skip(name, s.Unread)
		case f.code == "":
			w.ok(name, "%s", s.text())
		case good > 0 && !f.partial:
			w.wrong(name, reason.DNSReplicasDiffer, "%s; %d of %d servers answer as they should (%s)", f.evidence, good,
				len(faults), f.code)
		default:
			w.fault(f.partial, name, f.code, "%s", f.evidence)
		}
	}
}

// Reply is the reply over UDP or, without one, the result over TCP.
func (s *Server) Reply() Reply {
	if s.UDP.replied() {
		return s.UDP
	}
	return s.TCP
}

func (r *Reply) replied() bool { return r.Asked && r.Failure == "" }

func (s *Server) text() string {
	r := s.Reply()
	if len(r.Values) > 0 {
		return shortList(r.Values)
	}
	return dns.RcodeToString[r.Rcode] + " without records"
}

// serverFault returns the fault of a server, or the zero value.
func (w *walk) serverFault(s *Server) serverFault {
	udp, tcp := s.UDP.replied(), s.TCP.replied()
	switch {
	case s.Without && s.Role == ClusterSetDNS:
		return serverFault{code: reason.DNSNoEndpoint, evidence: s.TCP.Failure}
	case !udp && !tcp:
		return serverFault{code: reason.DNSUnreachable, evidence: cmp.Or(s.UDP.Failure, s.TCP.Failure)}
	}
	for _, r := range []*Reply{&s.UDP, &s.TCP} {
		if !r.replied() {
			continue
		}
		if f := w.replyFault(r); f.code != "" {
			return f
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
	switch {
	case w.target.Service == "":
		return w.faultAbove(r, word)
	case !e.known:
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

// faultAbove returns the fault of a reply about a name above all services. Of these, only ns.dns has addresses.
func (w *walk) faultAbove(r *Reply, word string) serverFault {
	relative := strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(w.in.Name, ".")), w.in.Zone)
	switch {
	case len(r.Values) == 0 && r.Zone != w.in.Zone:
		return serverFault{code: reason.DNSNotWired, evidence: word + " without records, want the SOA record of the zone"}
	case r.Rcode == dns.RcodeNameError && relative == "":
		return serverFault{code: reason.DNSLacksName, evidence: word + " for the zone itself"}
	case len(r.Values) > 0 && relative != "ns.dns." && (w.in.Type == dns.TypeA || w.in.Type == dns.TypeAAAA):
		return serverFault{code: reason.DNSOtherAnswer, evidence: shortList(r.Values) + ", want no address"}
	}
	return serverFault{}
}
