package plugin

import (
	"net/netip"

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

// A reply is a message together with what an answer of one address needs, so that the most frequent answer is one
// allocation.
type reply struct {
	dns.Msg
	question [1]dns.Question
	rrs      [1]dns.RR
	a        [1]dns.A
	aaaa     [1]dns.AAAA
	ip       [16]byte
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
		m.Ns = []dns.RR{q.soa()}
	case a.Outcome == resolver.NoData || !q.fill(m, a):
		m.Ns = []dns.RR{q.soa()}
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
		m.Answer = []dns.RR{versionTXT(q.qname())}
	case resolver.NameServer:
		for _, t := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if q.qtype() == t || q.qtype() == dns.TypeANY && len(m.Answer) == 0 {
				m.Answer = q.nameServer(q.qname(), t)
			}
		}
	case resolver.Apex:
		if a.Type == dns.TypeSOA {
			m.Answer = []dns.RR{q.soa()}
			return
		}
		m.Answer = []dns.RR{q.ns()}
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

func (q *query) ns() dns.RR { return q.Handler.ns(q.origin()) }

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
			rrs = append(rrs, h.address(owner, addr))
		}
	}
	return rrs
}

func (h *Handler) address(owner string, addr netip.Addr) dns.RR {
	if addr.Is4() {
		return &dns.A{Hdr: h.header(owner, dns.TypeA), A: addr.AsSlice()}
	}
	return &dns.AAAA{Hdr: h.header(owner, dns.TypeAAAA), AAAA: addr.AsSlice()}
}

// fillAddresses puts as many addresses into m as the client takes. What does not fit is told by TC over UDP; over TCP
// nobody could fetch the rest, so there the answer is a subset.
func (q *query) fillAddresses(m *reply, a resolver.Answer) {
	n := a.Addresses.Len()
	width := 4
	if a.Type == dns.TypeAAAA {
		width = 16
	}
	fit := (q.size(&m.Msg) - q.preamble()) / (pointerLen + recordLen + width)
	if n > fit {
		n = fit
		m.Truncated = q.overUDP()
	}
	hdr := q.header(q.qname(), a.Type)
	ips := m.ip[:0:len(m.ip)]
	m.Answer = m.rrs[:0:1]
	if n > 1 {
		ips = make([]byte, 0, n*width)
		m.Answer = make([]dns.RR, 0, n)
	}
	if width == 4 {
		records := m.a[:]
		if n > 1 {
			records = make([]dns.A, n)
		}
		for i := range n {
			ips = append(ips, a.Addresses.At(i)...)
			records[i] = dns.A{Hdr: hdr, A: ips[i*4 : (i+1)*4 : (i+1)*4]}
			m.Answer = append(m.Answer, &records[i])
		}
		return
	}
	records := m.aaaa[:]
	if n > 1 {
		records = make([]dns.AAAA, n)
	}
	for i := range n {
		ips = append(ips, a.Addresses.At(i)...)
		records[i] = dns.AAAA{Hdr: hdr, AAAA: ips[i*16 : (i+1)*16 : (i+1)*16]}
		m.Answer = append(m.Answer, &records[i])
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
	origin := q.origin()
	var name []byte
	targets := make([]target, 0, min(a.Services.Len(), size/(pointerLen+recordLen+srvLen)))
	for i := range a.Services.Len() {
		port, to := a.Services.At(i)
		name = append(to.AppendName(name[:0]), '.')
		if origin != "." {
			name = append(name, origin...)
		}
		rdata := used + pointerLen + recordLen
		used = rdata + srvLen + nameLen(string(name))
		if used > size {
			m.Truncated = q.overUDP()
			return
		}
		srv := &dns.SRV{Hdr: hdr, Weight: a.Services.Weight(), Port: port, Target: string(name)}
		m.Answer = append(m.Answer, srv)
		targets = append(targets, target{name: to, text: srv.Target, at: rdata + srvLen})
	}
	q.glue(m, targets, size-used)
}

// A target is the target of an SRV record and where its name stands in the message.
type target struct {
	name resolver.Name
	text string
	at   int
}

// glue adds the addresses of targets while there is room. What does not fit is left out without a word.
func (q *query) glue(m *reply, targets []target, room int) {
	seen := make(map[resolver.Name]struct{}, len(targets))
	o := q.zone.options
	o.LocalCluster = q.state.LocalCluster
	for _, t := range targets {
		if _, ok := seen[t.name]; ok {
			continue
		}
		seen[t.name] = struct{}{}
		owner := pointerLen
		if t.at >= pointerMax {
			owner = nameLen(t.text)
		}
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			// Where clusters take turns the glue is of one of the turn; which one is nobody's promise.
			a := t.name.Answer(resolver.Question{Type: qtype}, &o)
			for i := range a.Addresses.Len() {
				addr := a.Addresses.At(i)
				if room -= owner + recordLen + len(addr); room < 0 {
					return
				}
				ip, _ := netip.AddrFromSlice([]byte(addr))
				m.Extra = append(m.Extra, q.address(t.text, ip))
			}
		}
	}
}
