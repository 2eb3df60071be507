package main

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/miekg/dns"
)

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
