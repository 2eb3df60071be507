package e2e

import (
	"maps"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// A pair is the replies to one question.
type pair struct {
	*asker
	query        *dns.Msg
	tcp          bool
	ours, theirs *dns.Msg
}

// set returns records as text, each without its owner's letter case, without OPT.
func set(rrs []dns.RR) map[string]bool {
	texts := map[string]bool{}
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			texts[strings.ToLower(rr.String())] = true
		}
	}
	return texts
}

// within reports whether all of a are in b.
func within(a, b map[string]bool) bool {
	for text := range a {
		if !b[text] {
			return false
		}
	}
	return true
}

// head reports whether the replies agree in all but their records.
func (p *pair) head() bool {
	a, b := p.ours.MsgHdr, p.theirs.MsgHdr
	return a == b && slices.Equal(p.ours.Question, p.theirs.Question) &&
		(p.ours.IsEdns0() == nil) == (p.theirs.IsEdns0() == nil)
}

// equal reports whether the replies have the same meaning. The order of records has none. Nor has the additional
// section: what ours has there is in the zone, and belongs to the answer.
func (p *pair) equal() bool {
	if !p.head() || !p.additional() || !p.sameCase() {
		return false
	}
	// What a truncated reply has does not count.
	return p.ours.Truncated || maps.Equal(set(p.ours.Answer), set(p.theirs.Answer)) &&
		maps.Equal(set(p.ours.Ns), set(p.theirs.Ns))
}

// additional reports whether our additional section has only records of the zone whose owner is a target of the answer.
func (p *pair) additional() bool {
	targets := map[string]bool{}
	for _, rr := range p.ours.Answer {
		switch rr := rr.(type) {
		case *dns.SRV:
			targets[strings.ToLower(rr.Target)] = true
		case *dns.NS:
			targets[strings.ToLower(rr.Ns)] = true
		}
	}
	for text := range set(p.ours.Extra) {
		owner, _, _ := strings.Cut(text, "\t")
		if !targets[owner] {
			return false
		}
	}
	return within(set(p.ours.Extra), p.records)
}

// sameCase reports whether our answer has the letter case of the question.
func (p *pair) sameCase() bool {
	return !slices.ContainsFunc(p.ours.Answer, func(
		rr dns.RR) bool {
		return rr.Header().Name != p.query.Question[0].Name
	})
}

// nsdDifferences are what NSD may answer differently. docs/differences.md has the reasons, by these names.
var nsdDifferences = []struct {
	name  string
	holds func(p *pair) bool
}{
	{"class", func(p *pair) bool {
		return p.query.Question[0].Qclass != dns.ClassINET && p.ours.Rcode == dns.RcodeRefused && len(p.ours.Answer) == 0
	}},
	{"not for us", func(p *pair) bool {
		refused := p.zone() == nil && p.ours.Rcode == dns.RcodeRefused || p.ours.Rcode == dns.RcodeFormatError
		return refused && p.ours.Rcode == p.theirs.Rcode && len(p.ours.Answer) == 0
	}},
	{"without records", func(p *pair) bool {
		nodata := p.ours.Rcode == dns.RcodeSuccess && len(p.ours.Answer) == 0 && p.theirs.Rcode == dns.RcodeNameError
		return nodata && p.exists() && maps.Equal(set(p.ours.Ns), set(p.theirs.Ns))
	}},
	{"any", func(p *pair) bool {
		return p.query.Question[0].Qtype == dns.TypeANY && p.subset()
	}},
	{"rotation", func(p *pair) bool {
		// SRV rotates with every policy where the clusters of a service have different port numbers.
		return p.zone() != nil && (p.zone().rotates || p.query.Question[0].Qtype == dns.TypeSRV && p.exists()) && p.subset()
	}},
	{"larger than TCP", func(p *pair) bool {
		return p.tcp && p.theirs.Truncated && p.subset()
	}},
}

// subset reports whether we answer with records of the zone, and NSD with more of them, or with what it takes to ask
// over TCP.
func (p *pair) subset() bool {
	alike := *p.theirs
	alike.Truncated = p.ours.Truncated
	q := *p
	q.theirs = &alike
	ours := set(p.ours.Answer)
	return q.head() && p.sameCase() && p.additional() && len(ours) > 0 && within(ours, p.records) && len(p.ours.Ns) == 0
}

// exists reports whether the question is the name of a ClusterSetIP service, or a name of the ports of any service that
// exists.
func (p *pair) exists() bool {
	qname := strings.ToLower(p.query.Question[0].Name)
	name := qname
	for strings.HasPrefix(name, "_") {
		_, name, _ = strings.Cut(name, ".")
	}
	return p.imports[name] == "ClusterSetIP" || p.imports[name] == "Headless" && name != qname && p.owners[name]
}

// zone returns the zone of the question, nil if it is none of ours.
func (p *pair) zone() *nsdZone {
	for i := range nsdZones {
		if z := &nsdZones[i]; dns.IsSubDomain(z.origin, p.query.Question[0].Name) {
			return z
		}
	}
	return nil
}
