package main

import (
	"encoding/binary"
	"math"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/lab/baseline"
)

// The count agrees with the library that CoreDNS cuts answers with.
func TestAddressesThatFit(t *testing.T) {
	for length := 1; length <= 63; length++ {
		owner := strings.Repeat("a", length) + ".ns.svc." + zone
		for _, edns := range []bool{false, true} {
			m := question{owner: owner, qtype: dns.TypeA, edns: edns}.message()
			m.Response = true
			for range 200 {
				hdr := dns.RR_Header{Name: owner, Rrtype: dns.TypeA, Class: dns.ClassINET}
				m.Answer = append(m.Answer, &dns.A{Hdr: hdr, A: net.IPv4(10, 0, 0, 1)})
			}
			size := dns.MinMsgSize
			if edns {
				size = baseline.EDNSSize
			}
			m.Truncate(size)
			if got := addressesThatFit(owner, edns); got != len(m.Answer) {
				t.Errorf("addressesThatFit(%s, %t) = %d, want %d", owner, edns, got, len(m.Answer))
			}
		}
	}
}

func TestPack(t *testing.T) {
	questions := askVIP(vips(3))
	packed, err := pack(questions)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range questions {
		n := int(binary.BigEndian.Uint16(packed))
		m := new(dns.Msg)
		if err := m.Unpack(packed[2 : 2+n]); err != nil {
			t.Fatal(err)
		}
		if got := m.Question[0].Name; got != q.owner {
			t.Errorf("packed question %s, want %s", got, q.owner)
		}
		packed = packed[2+n:]
	}
	if len(packed) > 0 {
		t.Errorf("%d octets after the last question", len(packed))
	}
}

func TestSome(t *testing.T) {
	questions := askVIP(vips(100))
	got := some(questions, 4)
	for i, want := range []int{0, 33, 66, 99} {
		if got[i] != questions[want] {
			t.Errorf("some(100, 4)[%d] = %s, want %s", i, got[i], questions[want])
		}
	}
	if got := some(questions[:3], 4); len(got) != 3 {
		t.Errorf("some(3, 4) has %d questions, want 3", len(got))
	}
}

func TestAskHostsStep(t *testing.T) {
	services := headless("h", 4, 30, 0)
	for _, tt := range []struct{ step, want int }{{1, 120}, {4, 30}, {7, 18}} {
		if got := len(askHosts(services, tt.step)); got != tt.want {
			t.Errorf("askHosts of 120 hosts, step %d: %d questions, want %d", tt.step, got, tt.want)
		}
	}
}

func TestCompare(t *testing.T) {
	q := askVIP(vips(1))[0]
	reply := func(change func(*dns.Msg)) *dns.Msg {
		m := new(dns.Msg).SetReply(q.message())
		hdr := dns.RR_Header{Name: q.owner, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}
		m.Answer = []dns.RR{&dns.A{Hdr: hdr, A: q.want.addr.AsSlice()}}
		change(m)
		return m
	}
	tests := []struct {
		name  string
		m     *dns.Msg
		wrong bool
	}{
		{name: "right", m: reply(func(*dns.Msg) {})},
		{name: "OPT does not count", m: reply(func(m *dns.Msg) { m.SetEdns0(1232, false) })},
		{name: "rcode", m: reply(func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }), wrong: true},
		{name: "TC", m: reply(func(m *dns.Msg) { m.Truncated = true }), wrong: true},
		{name: "no records", m: reply(func(m *dns.Msg) { m.Answer = nil }), wrong: true},
		{name: "two records", m: reply(func(m *dns.Msg) { m.Answer = append(m.Answer, m.Answer...) }), wrong: true},
		{name: "other address", m: reply(func(m *dns.Msg) { m.Answer[0].(*dns.A).A = net.IPv4(192, 0, 2, 1) }), wrong: true},
		{name: "glue", m: reply(func(m *dns.Msg) { m.Extra = m.Answer }), wrong: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := q.compare(tt.m); (err != nil) != tt.wrong {
				t.Errorf("compare(%v) = %v, want an error: %t", tt.m, err, tt.wrong)
			}
		})
	}
}

// The count agrees with the library that CoreDNS cuts answers with, whichever targets come first.
func TestTargetsThatFit(t *testing.T) {
	for _, endpoints := range []int{3, 30, 90} {
		s := headless("h", 1, endpoints, 0)[0]
		targets := s.targets()
		fewest, most := targetsThatFit(s.srvOwner(), slices.Clone(targets))
		byLength := func(a, b string) int { return len(a) - len(b) }
		slices.SortFunc(targets, byLength)
		if got := targetsLeft(s, targets); got != most {
			t.Errorf("%d endpoints, short targets first: %d fit, want %d", endpoints, most, got)
		}
		slices.Reverse(targets)
		if got := targetsLeft(s, targets); got != fewest {
			t.Errorf("%d endpoints, long targets first: %d fit, want %d", endpoints, fewest, got)
		}
	}
}

func targetsLeft(s service, targets []string) int {
	q := question{owner: s.srvOwner(), qtype: dns.TypeSRV, edns: true}
	m := q.message()
	m.Response = true
	for _, target := range targets {
		hdr := dns.RR_Header{Name: q.owner, Rrtype: dns.TypeSRV, Class: dns.ClassINET}
		m.Answer = append(m.Answer, &dns.SRV{Hdr: hdr, Target: target})
	}
	m.Truncate(baseline.EDNSSize)
	return len(m.Answer)
}

func TestOverTCP(t *testing.T) {
	z := testZone()
	tests := []struct {
		name      string
		services  []service
		questions []question
		want      answer
	}{
		{name: "fits UDP", services: z.small, questions: askHeadless(z.small), want: answer{records: 30}},
		{name: "cut over UDP", services: z.wide, questions: askHeadless(z.wide), want: answer{records: 90}},
		{name: "SRV", services: z.wide, questions: askTargets(z.wide), want: answer{records: 90, extra: 90}},
		{name: "no name", questions: askUnknown(z.virtual), want: answer{rcode: dns.RcodeNameError, ns: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := overTCP(tt.services, tt.questions)[0]
			if got.want != tt.want || !got.tcp || got.least != 0 {
				t.Errorf("%s wants %s, from %d records, want %s", got, got.want, got.least, tt.want)
			}
			if tt.questions[0].tcp {
				t.Errorf("the question over UDP is now %s", tt.questions[0])
			}
		})
	}
}

func TestCompareLeast(t *testing.T) {
	q := question{owner: "a.", qtype: dns.TypeSRV, least: 2, want: answer{records: 3, truncated: true}}
	for n, wrong := range []bool{true, true, false, false, true} {
		m := new(dns.Msg).SetReply(q.message())
		m.Truncated = true
		for range n {
			m.Answer = append(m.Answer, &dns.SRV{})
		}
		if err := q.compare(m); (err != nil) != wrong {
			t.Errorf("compare of %d records = %v, want an error: %t", n, err, wrong)
		}
	}
}

func TestRcodeShares(t *testing.T) {
	z := testZone()
	got := rcodeShares(z.mix())
	for rcode, want := range map[string]float64{"NOERROR": 0.95, "NXDOMAIN": 0.05} {
		if math.Abs(got[rcode]-want) > 1e-6 {
			t.Errorf("share of %s = %f, want %f", rcode, got[rcode], want)
		}
	}
}
