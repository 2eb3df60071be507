package plugin

import (
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/resolver/denial"
)

// extendedLen is the octets of an extended error before its text: code and length of the option, and the info code.
const extendedLen = 6

// explain adds why the answer m has no record, as an extended error with a code of package reason
// (docs/spec/dns.md 5.8). It is left out where the client did not send OPT or takes too little for it.
func (q *query) explain(m *dns.Msg) {
	if q.r.IsEdns0() == nil {
		return
	}
	text := reason.Text(q.denial())
	if q.usedOctets(m)+extendedLen+len(text) <= q.size(m) {
		q.addError(m, dns.ExtendedErrorCodeOther, text)
	}
}

func (q *query) denial() reason.Code {
	d := denial.Denial{
		Relative: q.relative(), Kind: q.answer.Name.Kind, Type: q.qtype(),
		Index: q.state.Index, Options: &q.options,
		Namespaces: q.config.Namespaces, Selects: q.config.Labels != nil ||
			q.config.NamespaceLabels != nil, NoEndpoints: q.config.NoEndpoints,
	}
	if q.answer.Outcome == resolver.NXDomain {
		d.Kind = resolver.None
	}
	return d.Code()
}

// usedOctets is the octets of m without its OPT record, with those of the NSEC record and the two signatures that the
// plugin dnssec adds to a negative answer.
func (q *query) usedOctets(m *dns.Msg) int {
	without := *m
	without.Extra, without.Compress = nil, true
	used := without.Len()
	if signature := q.signature(); signature > 0 {
		const bitmap, escaped = 34, 2 // the most octets of types, and of the label that makes the next name
		used += 2*signature + pointerLen + recordLen + escaped + nameLen(q.qname()) + bitmap
	}
	return used
}
