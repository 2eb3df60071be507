// Package baseline is a CoreDNS plugin that answers with records prepared at start and does nothing else: what every plugin
// that hands out as many records costs at least.
//
//	floor FILE
//
// FILE is a master file (RFC 1035 section 5) with one SOA record. An RRset that is too large for the client comes with TC
// and as many of its records as fit, prepared too. An SRV RRset comes with the A records of its targets. A name or type
// that the file lacks is NXDOMAIN. Letter case counts.
package baseline

import (
	"context"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

// EDNSSize is what fits a client that sends OPT, in octets: answers are not prepared for other sizes.
const EDNSSize = 1232

type question struct {
	name  string
	qtype uint16
}

// An answer is written from many goroutines at once. Its slices have no room to append to.
type answer struct {
	records, extra []dns.RR
	truncated      bool
}

// A pair is an RRset as clients without and with OPT get it.
type pair struct{ plain, edns answer }

type floor struct {
	answers map[question]*pair
	soa     []dns.RR
}

var _ plugin.Handler = (*floor)(nil)

// Name implements [plugin.Handler].
func (*floor) Name() string { return "floor" }

// ServeDNS implements [plugin.Handler].
func (f *floor) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	m := new(dns.Msg)
	m.SetReply(r)
	m.Authoritative = true
	if p, ok := f.answers[question{r.Question[0].Name, r.Question[0].Qtype}]; ok {
		a := &p.plain
		if r.IsEdns0() != nil {
			a = &p.edns
		}
		m.Answer, m.Extra, m.Truncated = a.records, a.extra, a.truncated
	} else {
		m.Rcode, m.Ns = dns.RcodeNameError, f.soa
	}
	if err := w.WriteMsg(m); err != nil {
		return dns.RcodeServerFailure, err
	}
	return m.Rcode, nil
}
