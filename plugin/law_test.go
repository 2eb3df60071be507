package plugin_test

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/nsid"
	"github.com/coredns/coredns/plugin/pkg/edns"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// The option that the rewrite plugin registers is copied into replies.
func init() {
	edns.SetSupportedOption(dns.EDNS0COOKIE)
	edns.SetSupportedOption(dns.EDNS0PADDING)
}

var qtypes = []uint16{
	dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeANY, dns.TypeNS, dns.TypeSOA, dns.TypeMX, dns.TypeDS,
	dns.TypeHTTPS, dns.TypePTR, dns.TypeCNAME,
}

// eachMalicious checks a law on servers with malicious objects, under several settings. A failure has the seed.
func eachMalicious(t *testing.T, law func(t *testing.T, r *rand.Rand, s server, z records)) {
	settings := []setup{
		{zones: []string{"clusterset.local"}},
		{zones: []string{"clusterset.local"}, corefile: "cluster_names off\npolicy all"},
		{zones: []string{"z"}, corefile: "policy round_robin"},
		{zones: []string{"."}},
		{zones: []string{strings.Repeat("zone.", 20) + "example"}, corefile: "ttl 0"},
	}
	for seed := range uint64(tier.Size(len(settings), 10)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			conf := settings[seed%uint64(len(settings))]
			conf.corefile += "\nudp_size 65507"
			conf.objects = golden.Malformed(r, 4)
			s := serve(t, conf)
			law(t, r, s, transferred(t, s))
			if t.Failed() {
				t.Log(strings.Join(conf.objects, "\n"))
			}
		})
	}
}

// records are the records of a zone, by owner and type.
type records map[key]map[string]bool

type key struct {
	owner string
	qtype uint16
}

func (k key) String() string { return k.owner + " " + dns.TypeToString[k.qtype] }

// transferred are all records but the SOA, as the transfer plugin gets them.
func transferred(t *testing.T, s server) records {
	t.Helper()
	stream, err := s.handler.Transfer(s.config.Zones[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	all, soas := records{}, 0
	for rrs := range stream {
		for _, rr := range rrs {
			k := key{rr.Header().Name, rr.Header().Rrtype}
			if k.qtype == dns.TypeSOA {
				soas++
				continue
			}
			if all[k] == nil {
				all[k] = map[string]bool{}
			}
			if text := rr.String(); all[k][text] {
				t.Errorf("transfer: record %q twice", text)
			} else {
				all[k][text] = true
			}
		}
	}
	if soas != 2 {
		t.Errorf("transfer: %d SOA records, want one before and one after", soas)
	}
	return all
}

// owners are all names that own records, and all above them.
func (z records) owners(origin string) []string {
	all := map[string]bool{}
	for k := range z {
		for name := k.owner; dns.IsSubDomain(origin, name); {
			all[name] = true
			i, end := dns.NextLabel(name, 0)
			if end {
				break
			}
			name = name[i:]
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func ask(name string, qtype uint16, size uint16) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, qtype)
	if size > 0 {
		m.SetEdns0(size, false)
	}
	return m
}

// docs/spec/dns.md 2: existence does not depend on the query type; a name exists if a name below it does; below a name
// that does not exist there are no names.
func TestExistenceIsIndependentOfType(t *testing.T) {
	eachMalicious(t, func(t *testing.T, r *rand.Rand, s server, z records) {
		origin := s.config.Zones[0]
		exist := z.owners(origin)
		r.Shuffle(len(exist), func(i, j int) { exist[i], exist[j] = exist[j], exist[i] })
		for _, name := range exist[:min(len(exist), 100)] {
			for i, qtype := range qtypes {
				c := clients[i%len(clients)]
				m, size := s.exchange(t, c.query(name, qtype), c.tcp)
				if size > c.limit {
					t.Errorf("%s %s, %s: %d octets, want at most %d", name, dns.TypeToString[qtype], c.name, size, c.limit)
				}
				if m.Rcode != dns.RcodeSuccess {
					t.Errorf("%s %s: %s, want NOERROR: it or a name below it owns a record", name, dns.TypeToString[qtype],
						dns.RcodeToString[m.Rcode])
				}
			}
			for _, miss := range []string{"x." + name, "_" + name, "x" + name, "*." + name} {
				checkMiss(t, s, z, exist, miss)
			}
		}
	})
}

func checkMiss(t *testing.T, s server, z records, exist []string, miss string) {
	t.Helper()
	if _, ok := dns.IsDomainName(miss); !ok || !dns.IsSubDomain(s.config.Zones[0], miss) {
		return
	}
	c := clients[len(miss)%len(clients)]
	m, size := s.exchange(t, c.query(miss, dns.TypeA), c.tcp)
	rcode := m.Rcode
	if size > c.limit {
		t.Errorf("%s, %s: %d octets, want at most %d", miss, c.name, size, c.limit)
	}
	for _, qtype := range qtypes[1:] {
		if got := s.ask(t, ask(miss, qtype, 4096), false).Rcode; got != rcode {
			t.Errorf("%s: %s is %s, A is %s", miss, dns.TypeToString[qtype], dns.RcodeToString[got], dns.RcodeToString[rcode])
		}
	}
	if rcode == dns.RcodeNameError && slices.Contains(exist, miss) {
		t.Errorf("%s: NXDOMAIN, but it exists", miss)
	}
}

// A client is a transport, and the octets that the client takes.
type client struct {
	name  string
	tcp   bool
	size  uint16 // of the OPT record; 0 without one
	limit int
	opt   []dns.EDNS0
}

var clients = []client{
	{name: "UDP without EDNS", limit: 512},
	{name: "UDP 100", size: 100, limit: 512},
	{name: "UDP 512", size: 512, limit: 512},
	{name: "UDP 1232", size: 1232, limit: 1232},
	{name: "UDP 4096", size: 4096, limit: 4096},
	{name: "UDP 65535", size: 65535, limit: 65507},
	{name: "UDP 512 with a cookie", size: 512, limit: 512, opt: []dns.EDNS0{
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: strings.Repeat("ab", 40)}}},
	{name: "UDP 1232 with padding and a subnet", size: 1232, limit: 1232, opt: []dns.EDNS0{
		&dns.EDNS0_PADDING{Padding: make([]byte, 300)},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{192, 0, 2, 0}}}},
	{name: "UDP 512 with options larger than that", size: 512, limit: 512, opt: []dns.EDNS0{
		&dns.EDNS0_PADDING{Padding: make([]byte, 600)}}},
	{name: "UDP 512 with options almost as large", size: 512, limit: 512, opt: []dns.EDNS0{
		&dns.EDNS0_PADDING{Padding: make([]byte, 240)}, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}}},
	{name: "UDP 512 with options for a server and its plugins", size: 512, limit: 512, opt: []dns.EDNS0{
		&dns.EDNS0_PADDING{Padding: make([]byte, 100)}, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}}},
	{name: "UDP 512 with an option that no plugin supports", size: 512, limit: 512, opt: []dns.EDNS0{
		&dns.EDNS0_LOCAL{Code: dns.EDNS0LOCALSTART, Data: make([]byte, 100)}}},
	{name: "TCP", tcp: true, limit: 65535},
	{name: "TCP with EDNS", tcp: true, size: 1232, limit: 65535},
}

func (c client) query(name string, qtype uint16) *dns.Msg {
	m := ask(name, qtype, c.size)
	if o := m.IsEdns0(); o != nil {
		o.Option = c.opt
	}
	return m
}

// docs/spec/dns.md 4.7, docs/spec/dns.md 5.5, docs/spec/dns.md 8.3:
// a reply fits its client; TC is set exactly if records of the answer were left out over UDP, never
// because of glue; no record that was left out would fit; queries and a transfer have the same records.
func TestEveryReplyFits(t *testing.T) {
	eachMalicious(t, func(t *testing.T, r *rand.Rand, s server, z records) {
		for k, whole := range z {
			if k.qtype == dns.TypeNS || k.qtype == dns.TypeTXT {
				continue
			}
			rotating := rotates(t, s, k, whole)
			for _, c := range clients {
				m, size := s.exchange(t, c.query(k.owner, k.qtype), c.tcp)
				what := fmt.Sprintf("%s, %s", k, c.name)
				if size > c.limit {
					t.Errorf("%s: %d octets, want at most %d", what, size, c.limit)
				}
				checkRecords(t, what, m, whole)
				checkGlue(t, what, m, z)
				left := len(m.Answer) < len(whole)
				if want := left && !c.tcp; m.Truncated != want && (m.Truncated || !rotating) {
					t.Errorf("%s: TC %t with %d of %d records, want %t", what, m.Truncated, len(m.Answer), len(whole), want)
				}
				if width := addressRecord[k.qtype]; left && !rotating && !c.copied() && width > 0 && c.limit-size >= width {
					t.Errorf("%s: %d octets for %d of %d records: there is room for one more", what, size, len(m.Answer), len(whole))
				}
			}
		}
	})
}

// copied reports whether CoreDNS, or a plugin such as nsid, puts options of the query into the reply.
func (c client) copied() bool {
	return slices.ContainsFunc(c.opt, func(o dns.EDNS0) bool {
		return o.Option() == dns.EDNS0NSID || edns.SupportedOption(o.Option())
	})
}

// addressRecord is the size of a record with a compressed owner name.
var addressRecord = map[uint16]int{dns.TypeA: 16, dns.TypeAAAA: 28}

// rotates reports whether clusters answer for k in rotation: then a reply is not the whole RRset, over TCP either.
func rotates(t *testing.T, s server, k key, whole map[string]bool) bool {
	t.Helper()
	m, size := s.exchange(t, ask(k.owner, k.qtype, 0), true)
	// An answer that fills a TCP message is a subset because of its size.
	return len(m.Answer) < len(whole) && size < 60_000
}

// checkRecords checks that each record is answered once, and that all are transferred.
func checkRecords(t *testing.T, what string, m *dns.Msg, whole map[string]bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, rr := range m.Answer {
		text := rr.String()
		if seen[text] || !whole[text] {
			t.Errorf("%s: record %q twice, or not transferred", what, text)
		}
		seen[text] = true
	}
	if len(m.Ns) > 0 {
		t.Errorf("%s: authority %v beside an answer", what, m.Ns)
	}
	if m.Rcode != dns.RcodeSuccess || len(seen) == 0 && !m.Truncated {
		t.Errorf("%s: %s with %d records, want some: they are transferred", what, dns.RcodeToString[m.Rcode], len(seen))
	}
}

// checkGlue checks that glue belongs to targets, that these resolve to it, and that each record is there once.
func checkGlue(t *testing.T, what string, m *dns.Msg, z records) {
	t.Helper()
	targets, seen := map[string]bool{}, map[string]bool{}
	for _, rr := range m.Answer {
		if srv, ok := rr.(*dns.SRV); ok {
			targets[srv.Target] = true
		}
	}
	for _, rr := range m.Extra {
		h, text := rr.Header(), rr.String()
		if h.Rrtype != dns.TypeOPT && (seen[text] || !targets[h.Name] || !z[key{h.Name, h.Rrtype}][text]) {
			t.Errorf("%s: glue %q twice, of no target, or not what the target resolves to", what, rr)
		}
		seen[text] = true
	}
	for target := range targets {
		if len(z[key{target, dns.TypeA}])+len(z[key{target, dns.TypeAAAA}]) == 0 {
			t.Errorf("%s: target %q does not resolve", what, target)
		}
	}
}

// docs/spec/dns.md 4.7: over TCP each target has all of its addresses as glue, as far as there is room.
func TestGlueIsWhole(t *testing.T) {
	compared := 0
	eachMalicious(t, func(t *testing.T, r *rand.Rand, s server, z records) {
		answers, _ := compareGlue(t, s, z)
		compared += answers
	})
	if want := tier.Size(200, 500); compared < want { // all seeds have 520
		t.Errorf("%d answers were compared, want at least %d", compared, want)
	}
	// Few of those have more records than targets, or much glue.
	s := serve(t, setup{zones: []string{"clusterset.local"}, objects: slices.Concat(severalPorts, hosts(300))})
	if _, shared := compareGlue(t, s, transferred(t, s)); shared < 3 {
		t.Errorf("%d answers with fewer targets than records were compared, want 3", shared)
	}
}

// severalPorts are services of several ports: headless, with each host in all ports or in some of them, and with a
// clusterset IP.
var severalPorts = []string{
	"ServiceImport  ports/all  Headless  ports: a/TCP/80 b/TCP/81",
	"EndpointSlice  ports/all  cluster: east  ports: a/TCP/80 b/TCP/81  h1=10.1.0.1  h2=10.1.0.2  h2=10.1.0.3  h3=10.1.0.4",
	"EndpointSlice  ports/all  cluster: east  ports: a/TCP/80 b/TCP/81  h1=fd00::1  h4=fd00::2",
	"ServiceImport  ports/some  Headless  ports: a/TCP/80 b/TCP/81",
	"EndpointSlice  ports/some  cluster: east  ports: a/TCP/80  h1=10.2.0.1  h2=10.2.0.2",
	"EndpointSlice  ports/some  cluster: east  ports: b/TCP/81  h2=10.2.0.2  h3=10.2.0.3",
	"EndpointSlice  ports/some  cluster: west  ports: a/TCP/90 b/TCP/91  h1=10.3.0.1",
	"ServiceImport  ports/vip  ClusterSetIP  ips: 10.96.0.1 fd00:96::1  ports: a/TCP/80 b/TCP/81",
}

// compareGlue asks for all SRV records of a server over TCP, and fails the test if there is room for glue that is
// missing. It returns how many answers it has compared, and how many of these have fewer targets than records.
func compareGlue(t *testing.T, s server, z records) (answers, shared int) {
	t.Helper()
	for k, whole := range z {
		if k.qtype != dns.TypeSRV || rotates(t, s, k, whole) {
			continue
		}
		m := s.ask(t, ask(k.owner, k.qtype, 0), true)
		targets := map[string]bool{}
		for _, rr := range m.Answer {
			targets[rr.(*dns.SRV).Target] = true
		}
		missing, certain := glueOf(t, s, z, targets)
		if !certain || len(m.Answer) < len(whole) { // an answer that is cut has no room for glue
			continue
		}
		answers++
		if len(targets) < len(m.Answer) {
			shared++
		}
		checkGlue(t, k.String(), m, z)
		for _, rr := range m.Extra {
			delete(missing, rr.String())
		}
		m.Compress = false // TestRepliesAreFilled measures to the octet
		size := m.Len()
		for text := range missing {
			rr, err := dns.NewRR(text)
			if err != nil {
				t.Fatal(err)
			}
			if size+dns.Len(rr) <= dns.MaxMsgSize {
				t.Errorf("%s: no glue %q, but room for it beside %d octets", k, text, size)
			}
		}
	}
	return answers, shared
}

// glueOf returns all addresses of targets. certain is false if clusters answer for one of them in rotation: the glue is
// then that of any cluster.
func glueOf(t *testing.T, s server, z records, targets map[string]bool) (all map[string]bool, certain bool) {
	t.Helper()
	all = map[string]bool{}
	for target := range targets {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			k := key{target, qtype}
			if rotates(t, s, k, z[k]) {
				return nil, false
			}
			maps.Copy(all, z[k])
		}
	}
	return all, true
}

// large is a service with an RRset that fits no message.
var large = func() []string {
	v4 := "EndpointSlice  shop/db  cluster: east"
	v6 := "EndpointSlice  shop/db  cluster: east"
	for i := range 5000 {
		v4 += fmt.Sprintf("  h%d=10.%d.%d.%d", i, 1+i/62_500, i/250, 1+i%250)
		v6 += fmt.Sprintf("  h%d=fd00::%x", i, 1+i)
	}
	return []string{"ServiceImport  shop/db  Headless  ports: pg/TCP/5432", v4, v6}
}()

// docs/spec/dns.md 5: the order rotates from query to query, so that a truncated answer is not always the same prefix;
// over TCP an answer that does not fit is a moving subset without TC. Over enough queries each record is sent.
func TestLargeAnswersMove(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: "udp_size 65507", objects: large})
	const name = "db.shop.svc.clusterset.local."
	for _, c := range []client{
		{name: "UDP", limit: 512}, {name: "UDP 1232", size: 1232, limit: 1232}, {name: "UDP 4096", size: 4096, limit: 4096},
		{name: "UDP 512 with an option that no plugin supports", size: 512, limit: 512, opt: []dns.EDNS0{
			&dns.EDNS0_LOCAL{Code: dns.EDNS0LOCALSTART, Data: make([]byte, 100)}}},
		{name: "TCP", tcp: true, limit: 65535},
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
			shown, last := map[string]bool{}, ""
			for range 2000 {
				m, size := s.exchange(t, c.query(name, qtype), c.tcp)
				if size > c.limit || m.Truncated == c.tcp || len(m.Answer) == 0 || len(m.Answer) == 5000 {
					t.Fatalf("%s %s: %d records, %d octets, TC %t", c.name, dns.TypeToString[qtype], len(m.Answer), size, m.Truncated)
				}
				first := m.Answer[0].String()
				if first == last {
					t.Fatalf("%s %s: two answers begin with %q", c.name, dns.TypeToString[qtype], first)
				}
				last = first
				for _, rr := range m.Answer {
					shown[rr.String()] = true
				}
				if len(shown) == 5000 {
					break
				}
			}
			if len(shown) < 5000 {
				t.Errorf("%s %s: %d of 5000 records are shown in 2000 answers", c.name, dns.TypeToString[qtype], len(shown))
			}
		}
	}
}

// hosts is a service of n hosts with names of equal length.
func hosts(n int) []string {
	line := "EndpointSlice  shop/db  cluster: east"
	for i := range n {
		line += fmt.Sprintf("  h%04d=10.1.%d.%d", i, i/250, 1+i%250)
	}
	return []string{"ServiceImport  shop/db  Headless  ports: pg/TCP/5432", line}
}

// docs/spec/dns.md 4.7, docs/spec/dns.md 5.5:
// a reply is filled to the last octet, first with records and then with glue; TC is set as soon as
// one octet is missing for a record.
func TestRepliesAreFilled(t *testing.T) {
	const name = "db.shop.svc.clusterset.local."
	const opt, srv, a = 11, 2 + 10 + 6 + len("h0000.east.") + len(name) + 1, 2 + 10 + 4
	const head = 12 + len(name) + 1 + 4 + opt
	s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: "udp_size 65507", objects: hosts(30)})
	for size := 512; size < head+30*(srv+a)+2; size++ {
		m := s.ask(t, ask(name, dns.TypeA, uint16(size)), false)
		if got, want := len(m.Answer), min(30, (size-head)/a); got != want || m.Truncated != (want < 30) {
			t.Errorf("A, %d octets: %d records, TC %t, want %d", size, got, m.Truncated, want)
		}
		m = s.ask(t, ask(name, dns.TypeSRV, uint16(size)), false)
		records := min(30, (size-head)/srv)
		glue := 0
		if records == 30 {
			glue = min(30, (size-head-30*srv)/a)
		}
		if len(m.Answer) != records || m.Truncated != (records < 30) || len(m.Extra)-1 != glue {
			t.Errorf("SRV, %d octets: %d records, %d glue, TC %t, want %d and %d", size, len(m.Answer), len(m.Extra)-1,
				m.Truncated, records, glue)
		}
	}
}

// docs/spec/dns.md 4: a compression pointer cannot refer to a name after 16,384 octets (RFC 1035 section 4.1.4), so its
// glue is longer. It still fits, and does not set TC.
func TestGlueBehindPointers(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: "udp_size 65507", objects: hosts(1000)})
	m, size := s.exchange(t, ask("db.shop.svc.clusterset.local.", dns.TypeSRV, 0), true)
	if len(m.Answer) != 1000 || m.Truncated || size > 65535 || len(m.Extra) == 0 {
		t.Errorf("%d records, %d glue, TC %t in %d octets, want 1000 with glue", len(m.Answer), len(m.Extra), m.Truncated, size)
	}
}

// docs/spec/dns.md 5: with max_answers, A and AAAA asked together come from the same endpoints, and the weight of SRV
// records is that of the whole RRset.
func TestCappedFamiliesAgree(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: "max_answers 7", objects: large})
	s.client = "192.0.2.1"
	const name = "db.shop.svc.clusterset.local."
	shown := func(qtype uint16) (numbers []int) {
		m := s.ask(t, ask(name, qtype, 4096), false)
		if m.Truncated || len(m.Answer) != 7 {
			t.Fatalf("%s: %d records, TC %t, want 7 without", dns.TypeToString[qtype], len(m.Answer), m.Truncated)
		}
		for _, rr := range m.Answer {
			switch rr := rr.(type) {
			case *dns.A:
				numbers = append(numbers, int(rr.A[2])*250+int(rr.A[3])-1)
			case *dns.AAAA:
				numbers = append(numbers, int(rr.AAAA[14])<<8+int(rr.AAAA[15])-1)
			case *dns.SRV:
				if rr.Weight != 1 {
					t.Fatalf("weight %d of one of 5000 records, want 1", rr.Weight)
				}
			}
		}
		slices.Sort(numbers)
		return numbers
	}
	shown(dns.TypeSRV)
	for {
		before, got, after := shown(dns.TypeA), shown(dns.TypeAAAA), shown(dns.TypeA)
		if !slices.Equal(before, after) {
			continue // a second has passed meanwhile
		}
		if !slices.Equal(got, before) {
			t.Errorf("AAAA shows the hosts %v, A %v", got, before)
		}
		return
	}
}

// docs/spec/dns.md 5: an option that another plugin adds to a reply does not make it larger than the client takes.
func TestReplyFitsWithNSID(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: "udp_size 65507", objects: large})
	s.Server = newServer(t, s.config.Zones, nsid.Nsid{Next: s.handler, Data: strings.Repeat("n", 40)})
	for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV} {
		for _, tcp := range []bool{false, true} {
			c := client{size: 1232, limit: 1232, opt: []dns.EDNS0{&dns.EDNS0_NSID{Code: dns.EDNS0NSID}}}
			if tcp {
				c.limit = 65535
			}
			m, size := s.exchange(t, c.query("db.shop.svc.clusterset.local.", qtype), tcp)
			if size > c.limit || m.Truncated == tcp {
				t.Errorf("%s, TCP %t: %d octets, TC %t, want at most %d", dns.TypeToString[qtype], tcp, size, m.Truncated, c.limit)
			}
			option, ok := m.IsEdns0().Option[0].(*dns.EDNS0_NSID)
			if !ok || option.Nsid != hex.EncodeToString([]byte(strings.Repeat("n", 40))) {
				t.Errorf("%s: options %v, want the NSID", dns.TypeToString[qtype], m.IsEdns0().Option)
			}
		}
	}
}
