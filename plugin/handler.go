// Package plugin is the CoreDNS side of clusterset: it reads the Corefile block, takes a query apart, asks package
// resolver and puts the answer into a message.
package plugin

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/resolver"
)

// Name is the name of the plugin and of its directive.
const Name = "clusterset"

// Log writes lines that begin with the name of the plugin.
var Log = clog.NewWithPlugin(Name)

// A Handler answers the queries of one server block. It is complete before the server starts and never changes then.
type Handler struct {
	Next plugin.Handler

	// Addresses are those this server listens on: what ns.dns owns.
	Addresses []netip.Addr
	// Synced tells whether every block of this process is ready or has nothing to wait for.
	Synced func() bool

	config Config
	store  *cache.Store
	turns  *Turns
	zones  []zone
}

// A zone is one origin as it is compared with question names.
type zone struct {
	origin  string // lower case, fully qualified
	options resolver.Options
}

// maxName is the most octets of an owner name, without the final dot (RFC 1035 section 2.3.4).
const maxName = 253

// NewHandler makes the handler of a block that is answered from store. Turns outlive a reload.
func NewHandler(config Config, store *cache.Store, turns *Turns) *Handler {
	h := &Handler{config: config, store: store, turns: turns}
	for _, origin := range config.Zones {
		h.zones = append(h.zones, zone{origin: origin, options: resolver.Options{
			ClusterNames: config.ClusterNames,
			Policy:       config.Policy,
			MaxAnswers:   config.MaxAnswers,
			MaxName:      maxName - len(origin),
		}})
	}
	return h
}

// Name implements plugin.Handler.
func (h *Handler) Name() string { return Name }

// Ready implements ready.Readiness. The ready plugin keeps one entry a plugin name, so any handler speaks for all.
func (h *Handler) Ready() bool { return h.Synced() }

// ServeDNS implements plugin.Handler.
func (h *Handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	z := h.match(r.Question[0].Name)
	if z == nil {
		return plugin.NextOrFailure(Name, h.Next, ctx, w, r)
	}
	state := h.store.State()
	q := query{Handler: h, zone: z, state: state, w: w, r: r}
	switch {
	case r.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented, nil
	case r.Question[0].Qclass != dns.ClassINET:
		return dns.RcodeRefused, nil
	case !state.Ready:
		return q.notReady()
	case q.qtype() == dns.TypeAXFR || q.qtype() == dns.TypeIXFR:
		return dns.RcodeRefused, nil // the transfer plugin stands before this one
	}
	a := q.resolve()
	if a.Outcome == resolver.NXDomain && h.config.Fall.Through(strings.ToLower(q.qname())) {
		return plugin.NextOrFailure(Name, h.Next, ctx, w, r)
	}
	return q.answer(a)
}

// match finds the longest zone that qname is at or below, whatever its letter case.
func (h *Handler) match(qname string) (best *zone) {
	for i := range h.zones {
		z := &h.zones[i]
		if (best == nil || len(z.origin) > len(best.origin)) && z.contains(qname) {
			best = z
		}
	}
	return best
}

func (z *zone) contains(qname string) bool {
	head := len(qname) - len(z.origin)
	switch {
	case head < 0 || !strings.EqualFold(qname[head:], z.origin):
		return false
	case head == 0 || z.origin == ".":
		return true
	}
	// A dot behind a backslash does not end a label; an escaped name takes the slow way.
	return qname[head-1] == '.' && (!strings.Contains(qname, `\`) || dns.IsSubDomain(z.origin, qname))
}

// A query is one query to a zone of ours, with the state it is answered from.
type query struct {
	*Handler
	zone  *zone
	state *cache.State
	w     dns.ResponseWriter
	r     *dns.Msg
}

func (q *query) qname() string { return q.r.Question[0].Name }
func (q *query) qtype() uint16 { return q.r.Question[0].Qtype }

// origin is the zone in the letter case of the question.
func (q *query) origin() string { return q.qname()[len(q.qname())-len(q.zone.origin):] }

// relative is the question's name without the zone, in lower case.
func (q *query) relative() string { return q.zone.relative(q.qname()) }

func (z *zone) relative(qname string) string {
	head := len(qname) - len(z.origin)
	if head == 0 {
		return ""
	}
	if z.origin != "." {
		head--
	}
	return strings.ToLower(qname[:head])
}

// options are those of the zone, with what the state adds.
func (q *query) options() resolver.Options {
	o := q.zone.options
	o.LocalCluster = q.state.LocalCluster
	return o
}

func (q *query) resolve() resolver.Answer {
	o := q.options()
	n := resolver.Find(q.state.Index, q.relative(), &o)
	question := resolver.Question{Type: q.qtype(), Turn: q.turns.next()}
	if n.TakesTurns() {
		question.ClusterTurn = q.turns.nextCluster(n.Service.Key(), q.qtype())
	}
	if o.MaxAnswers > 0 {
		question.Second = uint64(time.Now().Unix())
	}
	return n.Answer(question, &o)
}

// notReady answers before the first sync: nothing is known, so nothing is denied (RFC 8914 section 4.15).
func (q *query) notReady() (int, error) {
	m := new(dns.Msg)
	m.SetRcode(q.r, dns.RcodeServerFailure)
	q.explain(m, dns.ExtendedErrorCodeNotReady)
	return q.write(m, kindServFail)
}

// explain adds an extended error for clients that sent an OPT record.
func (q *query) explain(m *dns.Msg, code uint16) {
	if q.r.IsEdns0() == nil {
		return
	}
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code}}
	m.Extra = append(m.Extra, opt)
}

// stale tells whether the state may be out of date: from a file, held, or without contact for too long.
func (q *query) stale() bool {
	return q.state.Stale || time.Since(q.store.LastContact()) > q.config.StaleAfter
}

// write sends m. A message that cannot be packed or sent becomes SERVFAIL, which the server sends.
func (q *query) write(m *dns.Msg, kind answerKind) (int, error) {
	if err := q.w.WriteMsg(m); err != nil {
		answers[kindServFail].Inc()
		return dns.RcodeServerFailure, err
	}
	answers[kind].Inc()
	return m.Rcode, nil
}

// size is how many octets the client takes, less what the OPT record of the reply may need.
func (q *query) size(m *dns.Msg) int {
	state := request.Request{W: q.w, Req: q.r}
	size := state.Size()
	if opt := q.r.IsEdns0(); opt != nil {
		need := dns.Len(opt)
		if ours := m.IsEdns0(); ours != nil {
			need = max(need, dns.Len(ours))
		}
		size -= need
	}
	return size
}

// MaxName is the most octets of a name relative to the longest of zones.
func MaxName(zones []string) int {
	longest := 0
	for _, z := range zones {
		longest = max(longest, len(z))
	}
	return maxName - longest
}
