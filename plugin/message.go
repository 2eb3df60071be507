package plugin

import (
	"net"
	"slices"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/resolver"
)

// The times of the SOA record in seconds (docs/spec/dns.md 5.2), and the version of the DNS schema.
const (
	refresh = 7200
	retry   = 1800
	expire  = 86400

	versionTTL = 28800
	version    = "1.0.0"
)

// A reply is a message with room for its question and one record: most answers need one allocation.
type reply struct {
	dns.Msg
	question [1]dns.Question
	rr       [1]dns.RR
}

func newReply(r *dns.Msg) *reply {
	m := new(reply)
	m.question[0] = r.Question[0]
	m.MsgHdr = dns.MsgHdr{Id: r.Id, Response: true, Opcode: r.Opcode, Authoritative: true,
		RecursionDesired: r.RecursionDesired}
	m.Question = m.question[:]
	if opt := r.IsEdns0(); opt != nil && echoedOctets(opt) > maxEcho {
		ownOPT(&m.Msg)
	}
	return m
}

// section returns a section of one record.
func (m *reply) section(rr dns.RR) []dns.RR {
	m.rr[0] = rr
	return m.rr[:]
}

// fill puts the answer into m and returns its kind.
func (q *query) fill(m *reply) answerKind {
	kind := kindOf(&q.answer)
	switch {
	case q.answer.Outcome == resolver.NXDomain:
		m.Rcode = dns.RcodeNameError
	case q.answer.Outcome != resolver.Found:
	case q.answer.Name.Kind <= resolver.Version:
		q.fillApex(m)
	case q.answer.Type == dns.TypeSRV:
		q.fillServices(m)
	default:
		q.fillAddresses(m)
	}
	if len(m.Answer) > 0 || m.Truncated {
		return kind
	}
	m.Ns = m.section(q.soa())
	if kind != kindNXDomain {
		kind = kindNoData
	}
	return kind
}

// fillApex puts the records of the apex, ns.dns or dns-version into m.
func (q *query) fillApex(m *reply) {
	switch q.answer.Name.Kind {
	case resolver.Version:
		m.Answer = m.section(versionTXT(q.qname()))
	case resolver.NameServer:
		q.fillNameServer(m)
	case resolver.Apex:
		if q.answer.Type == dns.TypeSOA {
			m.Answer = m.section(q.soa())
			return
		}
		ns := q.ns(q.origin())
		m.Answer = m.section(ns)
		room := q.size(&m.Msg) - q.preamble() - dns.Len(ns) - 3*q.signature() // of NS, A and AAAA
		host := q.nameServerOf(q.origin())
		for _, rr := range append(q.nameServer(host, dns.TypeA), q.nameServer(host, dns.TypeAAAA)...) {
			if room -= dns.Len(rr); room < 0 {
				return
			}
			m.Extra = append(m.Extra, rr)
		}
	}
}

// fillNameServer puts the addresses of this server into m, as many as the client takes, in rotation.
func (q *query) fillNameServer(m *reply) {
	rrs := q.nameServer(q.qname(), q.answer.Type)
	if len(rrs) == 0 && q.qtype() == dns.TypeANY {
		rrs = q.nameServer(q.qname(), dns.TypeAAAA)
	}
	if len(rrs) == 0 {
		return
	}
	fit := (q.size(&m.Msg) - q.preamble() - q.signature()) / (pointerLen + dns.Len(rrs[0]) - nameLen(q.qname()))
	most := len(rrs)
	if q.options.MaxAnswers > 0 {
		most = min(most, q.options.MaxAnswers)
	}
	if most > fit {
		most = fit
		m.Truncated = q.overUDP()
	}
	start := int(q.question.Rotation % uint64(len(rrs)))
	m.Answer = append(rrs[start:], rrs[:start]...)[:most]
}

func (h *Handler) header(owner string, t uint16) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: t, Class: dns.ClassINET, Ttl: h.ttl}
}

// soa is the SOA record of the zone, in the letter case of the question.
func (q *query) soa() dns.RR {
	origin := q.origin()
	if origin == q.zone.origin {
		return q.Handler.soa(origin, q.zone.nameServer, q.zone.mailbox, q.state.Serial)
	}
	return q.Handler.soa(origin, q.nameServerOf(origin), mailboxOf(origin), q.state.Serial)
}

func (h *Handler) soa(origin, nameServer, mailbox string, serial uint32) dns.RR {
	return &dns.SOA{
		Hdr: h.header(origin, dns.TypeSOA), Ns: nameServer, Mbox: mailbox,
		Serial: serial, Refresh: refresh, Retry: retry, Expire: expire, Minttl: h.ttl,
	}
}

func (h *Handler) ns(origin string) dns.RR {
	return &dns.NS{Hdr: h.header(origin, dns.TypeNS), Ns: h.nameServerOf(origin)}
}

func versionTXT(owner string) dns.RR {
	hdr := dns.RR_Header{Name: owner, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: versionTTL}
	return &dns.TXT{Hdr: hdr, Txt: []string{version}}
}

// nameServer returns the A or AAAA records of ns.dns.
func (h *Handler) nameServer(owner string, t uint16) (rrs []dns.RR) {
	for _, addr := range h.Addresses {
		if (t == dns.TypeA) == addr.Is4() {
			rrs = append(rrs, h.address(owner, string(addr.AsSlice())))
		}
	}
	return rrs
}

// An aRecord and an aaaaRecord include the octets of their address, which saves one allocation for each.
type aRecord struct {
	dns.A
	ip [4]byte
}

type aaaaRecord struct {
	dns.AAAA
	ip [16]byte
}

func (r *aRecord) set(hdr *dns.RR_Header, ip string) dns.RR {
	r.A = dns.A{Hdr: *hdr, A: r.ip[:copy(r.ip[:], ip)]}
	return &r.A
}

func (r *aaaaRecord) set(hdr *dns.RR_Header, ip string) dns.RR {
	r.AAAA = dns.AAAA{Hdr: *hdr, AAAA: r.ip[:copy(r.ip[:], ip)]}
	return &r.AAAA
}

// address is the A or AAAA record of an address of 4 or 16 octets. The octets are copied, so that another plugin that
// changes a message does not change the index.
func (h *Handler) address(owner, ip string) dns.RR {
	hdr := h.header(owner, dns.TypeA)
	if len(ip) == net.IPv4len {
		return new(aRecord).set(&hdr, ip)
	}
	hdr.Rrtype = dns.TypeAAAA
	return new(aaaaRecord).set(&hdr, ip)
}

// fillAddresses puts as many addresses into m as the client takes. If they do not all fit, it sets TC over UDP; over
// TCP there is no way to fetch the rest, so the answer is a subset without TC.
func (q *query) fillAddresses(m *reply) {
	list := &q.answer.Addresses
	n := list.Len()
	width := net.IPv4len
	if q.answer.Type == dns.TypeAAAA {
		width = net.IPv6len
	}
	if fit := (q.size(&m.Msg) - q.preamble() - q.signature()) / (pointerLen + recordLen + width); n > fit {
		n = fit
		m.Truncated = q.overUDP()
	}
	m.Answer = m.rr[:0]
	if n > 1 {
		m.Answer = make([]dns.RR, 0, n)
	}
	hdr := q.header(q.qname(), q.answer.Type)
	if width == net.IPv4len {
		records := make([]aRecord, n)
		for i := range records {
			m.Answer = append(m.Answer, records[i].set(&hdr, list.At(i)))
		}
		return
	}
	records := make([]aaaaRecord, n)
	for i := range records {
		m.Answer = append(m.Answer, records[i].set(&hdr, list.At(i)))
	}
}

// signature is the room that the signature of an RRset may take (RFC 4034 section 3.1): the plugin dnssec adds it to an
// answer that is made here, to clients that ask for it, and an RRset that is signed must not be cut later. It is that
// of RSA with 2048 bits.
func (q *query) signature() int {
	if opt := q.r.IsEdns0(); !q.Signed || opt == nil || !opt.Do() {
		return 0
	}
	const fixed, octets = 18, 256
	return pointerLen + recordLen + fixed + nameLen(q.zone.origin) + octets
}

// fillServices puts as many SRV records into m as the client takes, and then as much glue as fits.
func (q *query) fillServices(m *reply) {
	list := &q.answer.Services
	size, used := q.size(&m.Msg), q.preamble()+q.signature()
	q.text, q.services = q.text[:0], q.services[:0]
	for i := range list.Len() {
		port, to := list.At(i)
		start := len(q.text)
		q.text = q.appendName(q.text, &to)
		if used += srvLen + nameLen(q.text[start:]); used > size {
			m.Truncated = q.overUDP()
			break
		}
		q.services = append(q.services, service{port, len(q.text)})
	}
	records := q.records(m)
	if len(records) == list.Len() {
		q.addGlue(m, records, size-used)
	}
}

// records puts the SRV records of q.services into m. There is one string of all targets.
func (q *query) records(m *reply) []dns.SRV {
	records := make([]dns.SRV, len(q.services))
	m.Answer = m.rr[:0]
	if len(records) > 1 {
		m.Answer = make([]dns.RR, 0, len(records))
	}
	hdr, weight := q.header(q.qname(), dns.TypeSRV), q.answer.Services.Weight()
	text, start := q.string(q.text), 0
	for i, s := range q.services {
		records[i] = dns.SRV{Hdr: hdr, Weight: weight, Port: s.port, Target: text[start:s.end]}
		m.Answer = append(m.Answer, &records[i])
		start = s.end
	}
	return records
}

// string is text as a string: the end of the question, where that is the same.
func (q *query) string(text []byte) string {
	if name := q.qname(); len(text) <= len(name) && name[len(name)-len(text):] == string(text) {
		return name[len(name)-len(text):]
	}
	return string(text)
}

// appendName appends the fully qualified name of n; its zone has the letter case of the question.
func (q *query) appendName(b []byte, n *resolver.Name) []byte {
	b = append(n.AppendName(b), '.')
	if q.zone.origin == "." {
		return b
	}
	return append(b, q.origin()...)
}

// addGlue adds the addresses of the targets of records while there is room. Glue that does not fit is left out without
// TC (docs/spec/dns.md 4.7).
func (q *query) addGlue(m *reply, records []dns.SRV, room int) {
	list := &q.answer.Services
	m.Extra = slices.Grow(m.Extra, min(2*len(records), room/(pointerLen+recordLen+net.IPv4len))+1)
	var seen map[resolver.Name]struct{}
	if !list.Distinct() {
		seen = make(map[resolver.Name]struct{}, len(records))
	}
	at := q.preamble()
	for i := range records {
		_, to := list.At(i)
		target := records[i].Target
		owner := pointerLen
		if at+srvLen >= pointerMax {
			owner = nameLen(target)
		}
		at += srvLen + nameLen(target)
		if seen != nil {
			if _, ok := seen[to]; ok {
				continue
			}
			seen[to] = struct{}{}
		}
		q.glue.Name = to
		for _, q.question.Type = range [...]uint16{dns.TypeA, dns.TypeAAAA} {
			// Where clusters answer in rotation, the glue is that of any of them.
			q.glue.Ask(&q.question, &q.options)
			if q.glue.Addresses.Len() > 0 {
				room -= q.signature()
			}
			for i := range q.glue.Addresses.Len() {
				ip := q.glue.Addresses.At(i)
				if room -= owner + recordLen + len(ip); room < 0 {
					return
				}
				m.Extra = append(m.Extra, q.address(target, ip))
			}
		}
	}
}
