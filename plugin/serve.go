package plugin

import (
	"context"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/resolver"
)

// NewHandler returns the handler of a block that is answered from store. rotation is that of the store, also across a
// reload.
func NewHandler(config Config, store *cache.Store, rotation *Rotation) *Handler {
	h := &Handler{config: config, ttl: uint32(config.TTL / time.Second), store: store, rotation: rotation}
	limits := resolver.MaxNames(config.Zones...)
	for _, origin := range config.Zones {
		h.zones = append(h.zones, zone{
			origin: origin, nameServer: h.nameServerOf(origin), mailbox: mailboxOf(origin),
			options: resolver.Options{
				ClusterNames: config.ClusterNames,
				Policy:       config.Policy,
				MaxAnswers:   config.MaxAnswers,
				MaxName:      resolver.MaxName(origin),
				Limit:        resolver.Limit(origin, limits),
			}})
	}
	for _, origin := range config.Reverse {
		h.reverseZones = append(h.reverseZones, zone{origin: origin, options: h.zones[0].options})
	}
	return h
}

// Name implements plugin.Handler.
func (h *Handler) Name() string { return Name }

// Ready implements ready.Readiness. The ready plugin has one entry for each plugin name, so any handler
// answers for all blocks.
func (h *Handler) Ready() bool { return h.Synced() }

// ServeDNS implements plugin.Handler.
func (h *Handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	z := longestZone(h.zones, r.Question[0].Name)
	if z == nil {
		if rcode, answered, err := h.reverse(w, r); answered {
			return rcode, err
		}
		return plugin.NextOrFailure(Name, h.Next, ctx, w, r)
	}
	q := newQuery(h, z, w, r)
	defer q.release()
	switch {
	case r.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented, nil
	case r.Question[0].Qclass != dns.ClassINET:
		return dns.RcodeRefused, nil
	case !q.state.Ready:
		return q.notReady()
	case q.qtype() == dns.TypeAXFR || q.qtype() == dns.TypeIXFR:
		return dns.RcodeRefused, nil // the transfer plugin stands before this one
	}
	q.resolve()
	if !q.hasLists() {
		return q.notReady()
	}
	if q.answer.Outcome == resolver.NXDomain && h.config.Fall.Through(strings.ToLower(q.qname())) {
		return plugin.NextOrFailure(Name, h.Next, ctx, w, r)
	}
	return q.reply()
}

// resolve sets the answer.
func (q *query) resolve() {
	n := &q.answer.Name
	*n = resolver.Find(q.state.Index, q.relative(), &q.options)
	q.question.Type, q.question.Rotation = q.qtype(), q.rotation.nextOrder()
	if n.Service != nil && (n.Rotates() || q.options.MaxAnswers > 0) {
		q.question.ClientRotation = q.rotation.clientNumber(clientOf(q.w), n.Service.Key(), time.Now())
	}
	q.answer.Ask(&q.question, &q.options)
}

// notReady answers before the first sync. Without complete lists it is unknown which names exist, so no name is denied
// (RFC 8914 section 4.15).
func (q *query) notReady() (int, error) {
	m := new(dns.Msg)
	m.SetRcode(q.r, dns.RcodeServerFailure)
	text := ""
	if q.config.ExplainAnswers {
		text = reason.Text(reason.DNSNotReady)
	}
	q.addError(m, dns.ExtendedErrorCodeNotReady, text)
	return q.write(m, kindServFail)
}

// reply sends the answer.
func (q *query) reply() (int, error) {
	q.limitSize()
	m := newReply(q.r)
	if q.r.IsEdns0() != nil && q.stale() {
		q.addError(&m.Msg, staleCode(q.answer.Outcome), "")
	}
	kind := q.fill(m)
	if q.config.ExplainAnswers && (kind == kindNoData || kind == kindNXDomain) {
		q.explain(&m.Msg)
	}
	return q.write(&m.Msg, kind)
}

func staleCode(o resolver.Outcome) uint16 {
	if o == resolver.NXDomain {
		return dns.ExtendedErrorCodeStaleNXDOMAINAnswer
	}
	return dns.ExtendedErrorCodeStaleAnswer
}
