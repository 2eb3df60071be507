// Package plugin is the CoreDNS side of clusterset. [Parse] reads the block of a Corefile, and a [Handler] answers
// queries: it asks package resolver and writes the answer into a message.
package plugin

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/edns"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/resolver"
)

// A Handler answers the queries of one server block. Its exported fields are set before the server starts; after that
// it does not change, and any goroutine may call it. This is the path of a query:
//
//	ServeDNS ─► longestZone  the longest zone at or above the name; no zone: reverse, or the next plugin
//	            state        one atomic load: the whole answer comes from this state
//	                         nothing listed: SERVFAIL with EDE 14
//	            resolve      package resolver: Found, NoData or NXDomain, as lists into the index
//	            hasLists     a list that this answer needs is missing: SERVFAIL with EDE 14
//	                         NXDomain with fallthrough: next plugin
//	            reply        header, EDE 3 or 19 if the state is stale
//	            fill         records as far as the client takes them: only these are made; TC if that is over UDP
//	            explain      with explain_answers, why there is no record: EDE 0
//	            write        answers_total, by kind; SERVFAIL if the message cannot be packed or sent
//
// The rules are docs/spec/dns.md 5 for the shape of answers, and docs/spec/dns.md 6 for states that are not synced or
// stale.
type Handler struct {
	Next plugin.Handler

	// Addresses are the addresses of this server. ns.dns owns them.
	Addresses []netip.Addr
	// Signed means that the plugin dnssec signs the answers.
	Signed bool
	// Synced reports whether each block of this process is ready, each in the way that it wants (docs/spec/dns.md 6.3).
	Synced func() bool

	config   Config
	ttl      uint32 // of records, in seconds
	store    *cache.Store
	rotation *Rotation
	zones    []zone

	reverseZones []zone // their options are those of the first of zones, which PTR records point into
}

// A zone is one origin that the handler serves.
type zone struct {
	origin     string // lower case, fully qualified
	nameServer string // the name server, in lower case
	mailbox    string // of the SOA record, in lower case
	options    resolver.Options
}

// longestZone returns the longest of zones that qname is at or below, in any letter case; nil if qname is in no zone.
func longestZone(zones []zone, qname string) (best *zone) {
	for i := range zones {
		z := &zones[i]
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
	case z.origin == ".":
		return !isReverse(qname)
	case head == 0:
		return true
	}
	// A dot after a backslash does not end a label; names with escapes take the slow way.
	return qname[head-1] == '.' && (!strings.Contains(qname, `\`) || dns.IsSubDomain(z.origin, qname))
}

// isReverse reports whether qname is a reverse name. Reverse names are for the next plugin, also if the zone is the
// root.
func isReverse(qname string) bool {
	return dns.IsSubDomain("in-addr.arpa.", qname) || dns.IsSubDomain("ip6.arpa.", qname)
}

// A query is one query to a zone of the handler, with the state that it is answered from. It is pooled, not on the
// stack: CoreDNS answers each query in a new goroutine, and growing its stack costs more than the answer.
type query struct {
	*Handler
	zone  *zone
	state *cache.State
	w     dns.ResponseWriter
	r     *dns.Msg

	options      resolver.Options
	question     resolver.Question
	answer, glue resolver.Answer
	text         []byte    // scratch for the names of targets
	services     []service // scratch
}

// A service is an SRV record before its text is one string with that of the others.
type service struct {
	port uint16
	end  int // of the target in query.text
}

// With room for the records of a UDP message; it grows for more.
var queries = sync.Pool{New: func() any {
	return &query{text: make([]byte, 0, 1<<10),
		services: make([]service, 0, 1<<5)}
}}

func newQuery(h *Handler, z *zone, w dns.ResponseWriter, r *dns.Msg) *query {
	q := queries.Get().(*query)
	q.Handler, q.zone, q.state, q.w, q.r = h, z, h.store.State(), w, r
	q.options = z.options
	q.options.LocalCluster = q.state.LocalCluster
	return q
}

// release returns q to the pool without references, so that it keeps no state alive.
func (q *query) release() {
	q.Handler, q.zone, q.state, q.w, q.r = nil, nil, nil, nil, nil
	q.options, q.question = resolver.Options{}, resolver.Question{}
	q.answer, q.glue = resolver.Answer{}, resolver.Answer{}
	queries.Put(q)
}

func (q *query) qname() string { return q.r.Question[0].Name }
func (q *query) qtype() uint16 { return q.r.Question[0].Qtype }

// origin is the zone in the letter case of the question.
func (q *query) origin() string { return q.qname()[len(q.qname())-len(q.zone.origin):] }

// relative is qname without the zone, in lower case.
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

// addError adds an extended error (RFC 8914) if the client sent an OPT record.
func (q *query) addError(m *dns.Msg, code uint16, text string) {
	if q.r.IsEdns0() == nil {
		return
	}
	opt := ownOPT(m)
	opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: text})
}

// ownOPT returns the OPT record of m, after adding it if it is missing. CoreDNS then does not copy that of the query.
func ownOPT(m *dns.Msg) *dns.OPT {
	if opt := m.IsEdns0(); opt != nil {
		return opt
	}
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	m.Extra = append(m.Extra, opt)
	return opt
}

// write sends m. A message that cannot be packed or sent becomes SERVFAIL, which the server sends.
func (q *query) write(m *dns.Msg, kind answerKind) (int, error) {
	if err := q.w.WriteMsg(m); err != nil {
		answers[kindServFail].Inc()
		if isClientGone(err) {
			return m.Rcode, nil // not an error: the log would fill with clients that went away
		}
		return dns.RcodeServerFailure, err
	}
	answers[kind].Inc()
	return m.Rcode, nil
}

// isClientGone reports whether a write failed because the client closed the connection or does not read.
func isClientGone(err error) bool {
	gone := []error{net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET, os.ErrDeadlineExceeded}
	return slices.ContainsFunc(gone, func(target error) bool { return errors.Is(err, target) })
}

// nameServer is the name below an origin that has the addresses of this server.
const nameServer = "ns.dns."

// nameServerOf is the name server of a zone: the one that is configured, or the name below the zone.
func (h *Handler) nameServerOf(origin string) string {
	if h.config.NameServer != "" {
		return h.config.NameServer
	}
	return joinName(nameServer, origin)
}

func mailboxOf(origin string) string { return joinName("hostmaster.", origin) }

// joinName joins labels, with their final dot, and an origin.
func joinName(labels, origin string) string {
	if origin == "." {
		return labels
	}
	return labels + origin
}

// Octets of the parts of a message (RFC 1035 section 4.1): the header, a question and a record after their names, an
// SRV record before its target, a compression pointer, and the positions of a message that a pointer can have.
const (
	headerLen   = 12
	questionLen = 4
	recordLen   = 10
	srvLen      = pointerLen + recordLen + 6 // without the target
	pointerLen  = 2
	pointerMax  = 1 << 14
)

// optLen is the octets of an OPT record without options.
const optLen = 11

// maxEcho is the most octets of the options of a query that are copied into the reply. A client that takes 512 octets
// could send options that leave no room for an answer.
const maxEcho = 128

// echoedOctets is the octets of those options of a query that CoreDNS copies into the reply.
func echoedOctets(opt *dns.OPT) (n int) {
	for _, o := range opt.Option {
		if edns.SupportedOption(o.Option()) {
			n += dns.Len(&dns.OPT{Hdr: opt.Hdr, Option: []dns.EDNS0{o}}) - optLen
		}
	}
	return n
}

// nsidLen is room for the identifier of a server (RFC 5001), in most cases a host name.
const nsidLen = 128

// maxDatagram is the most octets of a datagram over IPv4.
const maxDatagram = 65507

// size is the most octets of the reply without its OPT record: those that the client takes, over UDP as far as they are
// configured, less those that the OPT record may need. There is always room for header and question.
func (q *query) size(m *dns.Msg) int {
	state := request.Request{W: q.w, Req: q.r}
	size := state.Size()
	if state.Proto() == "udp" {
		size = min(size, q.config.UDPSize)
	}
	if opt := q.r.IsEdns0(); opt != nil {
		need := optLen + echoedOctets(opt)
		if ours := m.IsEdns0(); ours != nil {
			need = dns.Len(ours)
		}
		for _, option := range opt.Option {
			// The nsid plugin adds its data after this plugin.
			if option.Option() == dns.EDNS0NSID {
				need += nsidLen
			}
		}
		size -= need
	}
	return max(size, q.preamble())
}

// preamble is the octets of the header and the question.
func (q *query) preamble() int { return headerLen + nameLen(q.qname()) + questionLen }

// nameLen is the octets of a name in a message, uncompressed. Names that own records have no escapes.
func nameLen[T string | []byte](name T) int {
	if string(name) == "." {
		return 1
	}
	return len(name) + 1
}

func (q *query) overUDP() bool {
	state := request.Request{W: q.w, Req: q.r}
	return state.Proto() == "udp"
}

// limitSize makes the query one of a client that takes no more over UDP than is configured, as the plugin bufsize does:
// the server compresses a message only if it would be too large for the client.
func (q *query) limitSize() {
	if opt := q.r.IsEdns0(); opt != nil && int(opt.UDPSize()) > q.config.UDPSize && q.overUDP() {
		opt.SetUDPSize(uint16(q.config.UDPSize))
	}
}
