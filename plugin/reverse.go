package plugin

import (
	"net"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/resolver"
)

// reverse answers a query for a reverse name, and reports whether it did. Other names are for the next plugin: a
// reverse zone also has the addresses of the cluster itself (docs/spec/dns.md 2.5).
func (h *Handler) reverse(w dns.ResponseWriter, r *dns.Msg) (rcode int, answered bool, err error) {
	question := &r.Question[0]
	if r.Opcode != dns.OpcodeQuery || question.Qclass != dns.ClassINET || question.Qtype != dns.TypePTR &&
		question.Qtype != dns.TypeANY {
		return 0, false, nil
	}
	z := longestZone(h.reverseZones, question.Name)
	if z == nil {
		return 0, false, nil
	}
	q := newQuery(h, z, w, r)
	defer q.release()
	if !q.state.Ready {
		return 0, false, nil
	}
	names := resolver.Pointers(q.state.Index, q.state.Reverse, addressOf(question.Name), &q.options)
	if len(names) == 0 {
		return 0, false, nil
	}
	rcode, err = q.replyPointers(names)
	return rcode, true, err
}

// addressOf is the address of a reverse name, as 4 or 16 octets, or "".
func addressOf(qname string) string {
	ip := net.ParseIP(dnsutil.ExtractAddressFromReverse(strings.ToLower(qname)))
	if v4 := ip.To4(); v4 != nil {
		return string(v4)
	}
	return string(ip)
}

// replyPointers answers with PTR records, as many as the client takes.
func (q *query) replyPointers(names []resolver.Name) (int, error) {
	q.limitSize()
	m := newReply(q.r)
	if q.r.IsEdns0() != nil && q.stale() {
		q.addError(&m.Msg, dns.ExtendedErrorCodeStaleAnswer, "")
	}
	room := q.size(&m.Msg) - q.preamble() - q.signature()
	for i := range names {
		target := absoluteName(&names[i], q.config.Zones[0])
		if room -= pointerLen + recordLen + nameLen(target); room < 0 {
			m.Truncated = q.overUDP()
			break
		}
		m.Answer = append(m.Answer, &dns.PTR{Hdr: q.header(q.qname(), dns.TypePTR), Ptr: target})
	}
	return q.write(&m.Msg, kindReverse)
}
