// Package baseline is a CoreDNS plugin that serves answers from a map, which it prepares at its start, and does nothing
// else. Its cost is the least that a plugin with the same records can have; benchmarks compare other servers with it.
//
//	baseline FILE
//
// FILE is a master file (RFC 1035 section 5) with one SOA record. An RRset that is too large for the client gets TC and
// as many of its records as fit. An SRV RRset gets the A records of its targets. A name or type that is not in the file
// gets NXDOMAIN. Letter case counts.
package baseline

import (
	"context"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

// EDNSSize is the size of an answer to a client that sends OPT, in octets. The plugin ignores the size in the OPT
// record.
const EDNSSize = 1232

type question struct {
	name  string
	qtype uint16
}

// An answer is shared by all goroutines that send it. Its slices have no spare capacity, so an append copies them.
type answer struct {
	records, extra []dns.RR
	truncated      bool
}

// A pair holds the answers with an RRset to clients without and with OPT.
type pair struct{ plain, edns answer }

type handler struct {
	answers map[question]*pair
	soa     []dns.RR
}

var _ plugin.Handler = (*handler)(nil)

// Name implements [plugin.Handler].
func (*handler) Name() string { return "baseline" }

// ServeDNS implements [plugin.Handler].
func (h *handler) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	m := new(dns.Msg)
	m.SetReply(r)
	m.Authoritative = true
	if p, ok := h.answers[question{r.Question[0].Name, r.Question[0].Qtype}]; ok {
		a := &p.plain
		if r.IsEdns0() != nil {
			a = &p.edns
		}
		m.Answer, m.Extra, m.Truncated = a.records, a.extra, a.truncated
	} else {
		m.Rcode, m.Ns = dns.RcodeNameError, h.soa
	}
	if err := w.WriteMsg(m); err != nil {
		return dns.RcodeServerFailure, err
	}
	return m.Rcode, nil
}
