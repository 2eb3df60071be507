package plugin

import (
	"net"

	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/resolver"
)

// The SOA record's times in seconds (DNS rules, section 5), and the version of the DNS schema.
const (
	refresh = 7200
	retry   = 1800
	expire  = 86400

	versionTTL = 28800
	version    = "1.0.0"
)

// Octets of a message that do not depend on names: the header, a question and a record behind its name, a compressed
// name (RFC 1035 section 4.1), and how far into a message a name can be pointed at.
const (
	headerLen   = 12
	questionLen = 4
	recordLen   = 10
	srvLen      = 6
	pointerLen  = 2
	pointerMax  = 1 << 14
)

// A reply is a message with room for its question and one record, as most answers have.
type reply struct {
	dns.Msg
	question [1]dns.Question
	rr       [1]dns.RR
}

func (q *query) reply() *reply {
	m := new(reply)
	m.question[0] = q.r.Question[0]
	m.MsgHdr = dns.MsgHdr{
		Id: q.r.Id, Response: true, Opcode: q.r.Opcode, Authoritative: true,
		RecursionDesired: q.r.RecursionDesired, CheckingDisabled: q.r.CheckingDisabled,
	}
	m.Question = m.question[:]
	return m
}

// one is a section of one record.
func (m *reply) one(rr dns.RR) []dns.RR {
	m.rr[0] = rr
	return m.rr[:]
}

// answer sends what the resolver found.
func (q *query) answer(a resolver.Answer) (int, error) {
	m := q.reply()
	kind := kindOf(a)
	stale := q.r.IsEdns0() != nil && q.stale()
	if stale {
		q.explain(&m.Msg, staleCode(a.Outcome))
	}
	switch {
	case a.Outcome == resolver.NXDomain:
		m.Rcode = dns.RcodeNameError
		m.Ns = m.one(q.soa())
	case a.Outcome == resolver.NoData || !q.fill(m, a):
		m.Ns = m.one(q.soa())
		kind = kindNoData
	}
	return q.write(&m.Msg, kind)
}

func staleCode(o resolver.Outcome) uint16 {
	if o == resolver.NXDomain {
		return dns.ExtendedErrorCodeStaleNXDOMAINAnswer
	}
	return dns.ExtendedErrorCodeStaleAnswer
}

// fill puts the records of a into m. It reports false if there are none after all.
func (q *query) fill(m *reply, a resolver.Answer) bool {
	switch a.Name.Kind {
	case resolver.Apex, resolver.Version, resolver.NameServer:
		q.fillApex(m, a)
	default:
		if a.Type == dns.TypeSRV {
			q.fillServices(m, a)
		} else {
			q.fillAddresses(m, a)
		}
	}
	return len(m.Answer) > 0
}

func (q *query) fillApex(m *reply, a resolver.Answer) {
	switch a.Name.Kind {
	case resolver.Version:
		m.Answer = m.one(versionTXT(q.qname()))
	case resolver.NameServer:
		for _, t := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if q.qtype() == t || q.qtype() == dns.TypeANY && len(m.Answer) == 0 {
				m.Answer = q.nameServer(q.qname(), t)
			}
		}
	case resolver.Apex:
		if a.Type == dns.TypeSOA {
			m.Answer = m.one(q.soa())
			return
		}
		m.Answer = m.one(q.ns(q.origin()))
		host := nameServerOf(q.origin())
		m.Extra = append(append(m.Extra, q.nameServer(host, dns.TypeA)...), q.nameServer(host, dns.TypeAAAA)...)
	}
}

func (h *Handler) header(owner string, t uint16) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: t, Class: dns.ClassINET, Ttl: uint32(h.config.TTL.Seconds())}
}

func (q *query) soa() dns.RR { return q.Handler.soa(q.origin(), q.state.Serial) }

func (h *Handler) soa(origin string, serial uint32) dns.RR {
	hdr := h.header(origin, dns.TypeSOA)
	return &dns.SOA{
		Hdr: hdr, Ns: nameServerOf(origin), Mbox: below("hostmaster.", origin),
		Serial: serial, Refresh: refresh, Retry: retry, Expire: expire, Minttl: hdr.Ttl,
	}
}

func (h *Handler) ns(origin string) dns.RR {
	return &dns.NS{Hdr: h.header(origin, dns.TypeNS), Ns: nameServerOf(origin)}
}

func nameServerOf(origin string) string { return below("ns.dns.", origin) }

// below joins labels, with their final dot, and an origin.
func below(labels, origin string) string {
	if origin == "." {
		return labels
	}
	return labels + origin
}

func versionTXT(owner string) dns.RR {
	hdr := dns.RR_Header{Name: owner, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: versionTTL}
	return &dns.TXT{Hdr: hdr, Txt: []string{version}}
}

// nameServer are the addresses of this server of type A or AAAA.
func (h *Handler) nameServer(owner string, t uint16) (rrs []dns.RR) {
	for _, addr := range h.Addresses {
		if (t == dns.TypeA) == addr.Is4() {
			rrs = append(rrs, h.address(owner, string(addr.AsSlice())))
		}
	}
	return rrs
}

// An aRecord and an aaaaRecord hold their address, which is one allocation less for each.
type aRecord struct {
	dns.A
	ip [4]byte
}

type aaaaRecord struct {
	dns.AAAA
	ip [16]byte
}

func (r *aRecord) set(hdr dns.RR_Header, ip string) dns.RR {
	r.A = dns.A{Hdr: hdr, A: r.ip[:copy(r.ip[:], ip)]}
	return &r.A
}

func (r *aaaaRecord) set(hdr dns.RR_Header, ip string) dns.RR {
	r.AAAA = dns.AAAA{Hdr: hdr, AAAA: r.ip[:copy(r.ip[:], ip)]}
	return &r.AAAA
}

// address is the A or AAAA record of an address of 4 or 16 octets. The octets are copied: what others do to a message
// never reaches the index.
func (h *Handler) address(owner, ip string) dns.RR {
	if len(ip) == net.IPv4len {
		return new(aRecord).set(h.header(owner, dns.TypeA), ip)
	}
	return new(aaaaRecord).set(h.header(owner, dns.TypeAAAA), ip)
}

// fillAddresses puts as many addresses into m as the client takes. What does not fit is told by TC over UDP; over TCP
// nobody could fetch the rest, so there the answer is a subset.
func (q *query) fillAddresses(m *reply, a resolver.Answer) {
	n := a.Addresses.Len()
	width := net.IPv4len
	if a.Type == dns.TypeAAAA {
		width = net.IPv6len
	}
	if fit := (q.size(&m.Msg) - q.preamble()) / (pointerLen + recordLen + width); n > fit {
		n = fit
		m.Truncated = q.overUDP()
	}
	m.Answer = m.rr[:0]
	if n > 1 {
		m.Answer = make([]dns.RR, 0, n)
	}
	hdr := q.header(q.qname(), a.Type)
	if width == net.IPv4len {
		records := make([]aRecord, n)
		for i := range records {
			m.Answer = append(m.Answer, records[i].set(hdr, a.Addresses.At(i)))
		}
		return
	}
	records := make([]aaaaRecord, n)
	for i := range records {
		m.Answer = append(m.Answer, records[i].set(hdr, a.Addresses.At(i)))
	}
}

// preamble is the octets of header and question.
func (q *query) preamble() int { return headerLen + nameLen(q.qname()) + questionLen }

// nameLen is the octets of a name on the wire. The names that own records have no escapes.
func nameLen(name string) int {
	if name == "." {
		return 1
	}
	return len(name) + 1
}

func (q *query) overUDP() bool {
	state := request.Request{W: q.w, Req: q.r}
	return state.Proto() == "udp"
}

// fillServices puts as many SRV records into m as the client takes, and then as many addresses of their targets as
// there is room left for.
func (q *query) fillServices(m *reply, a resolver.Answer) {
	size, used := q.size(&m.Msg), q.preamble()
	hdr := q.header(q.qname(), dns.TypeSRV)
	most := min(a.Services.Len(), (size-used)/(pointerLen+recordLen+srvLen+len(q.zone.origin))+1)
	m.Answer = m.rr[:0]
	if most > 1 {
		m.Answer = make([]dns.RR, 0, most)
	}
	records := make([]dns.SRV, 0, most)
	targets := make([]target, 0, most)
	var name [2 * maxName]byte
	for i := range a.Services.Len() {
		port, to := a.Services.At(i)
		text := q.appendName(name[:0], to)
		rdata := used + pointerLen + recordLen + srvLen
		used = rdata + len(text) + 1
		if used > size {
			m.Truncated = q.overUDP()
			return
		}
		srv := dns.SRV{Hdr: hdr, Weight: a.Services.Weight(), Port: port, Target: string(text)}
		records = append(records, srv)
		m.Answer = append(m.Answer, &records[i])
		targets = append(targets, target{name: to, text: srv.Target, at: rdata})
	}
	q.glue(m, targets, size-used)
}

// appendName appends the whole name of n, in the zone as asked.
func (q *query) appendName(b []byte, n resolver.Name) []byte {
	b = append(n.AppendName(b), '.')
	if q.zone.origin == "." {
		return b
	}
	return append(b, q.origin()...)
}

// A target is the target of an SRV record and where its name stands in the message.
type target struct {
	name resolver.Name
	text string
	at   int
}

// glue adds the addresses of targets while there is room. What does not fit is left out without a word.
func (q *query) glue(m *reply, targets []target, room int) {
	var seen map[resolver.Name]struct{}
	if len(targets) > 1 {
		seen = make(map[resolver.Name]struct{}, len(targets))
	}
	o := q.options()
	for _, t := range targets {
		if _, ok := seen[t.name]; ok {
			continue
		}
		if seen != nil {
			seen[t.name] = struct{}{}
		}
		if room = q.targetGlue(m, t, room, &o); room < 0 {
			return
		}
	}
}

// targetGlue adds the addresses of one target and returns the room left, below 0 if not all fitted.
func (q *query) targetGlue(m *reply, t target, room int, o *resolver.Options) int {
	owner := pointerLen
	if t.at >= pointerMax {
		owner = nameLen(t.text)
	}
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		// Where clusters take turns the glue is of one of the turn; which one is nobody's promise.
		a := t.name.Answer(resolver.Question{Type: qtype}, o)
		for i := range a.Addresses.Len() {
			ip := a.Addresses.At(i)
			if room -= owner + recordLen + len(ip); room < 0 {
				return room
			}
			m.Extra = append(m.Extra, q.address(t.text, ip))
		}
	}
	return room
}
