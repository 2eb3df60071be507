package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

func testZone() rowZone {
	return rowZone{
		virtual: vips(200), small: headless("headless", 2, 30, 0), wide: headless("wide", 2, 90, 60),
		large: headless("large", 1, 2000, 240)[0], whole: headless("whole", 1, rowWhole, 2240)[0],
	}
}

// A mode asks what a mode is: each row has questions over its transport, and its peers are known.
func TestRowsOfModes(t *testing.T) {
	z := testZone()
	for _, tt := range []struct {
		name string
		rows []row
		tcp  bool
	}{
		{name: "default", rows: newRows(z)},
		{name: "more over UDP", rows: moreRows(z)},
		{name: "TCP", rows: tcpRows(z), tcp: true},
		{name: "cached", rows: cachedRows(z)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			known := map[string]bool{}
			for _, r := range tt.rows {
				if known[r.name] || len(r.questions) == 0 {
					t.Errorf("row %q: %d questions, twice: %t", r.name, len(r.questions), known[r.name])
				}
				known[r.name] = true
				for _, q := range r.questions {
					if q.tcp != tt.tcp || q.tcp && q.want.truncated {
						t.Fatalf("row %q asks %s and wants %s, want over TCP %t and all of it", r.name, q, q.want, tt.tcp)
					}
				}
			}
		})
	}
}

// docs/performance.md quotes these.
func TestDefaultRows(t *testing.T) {
	var got []string
	for _, r := range newRows(testZone()) {
		got = append(got, fmt.Sprintf("%s: %.2f", r.name, r.target))
	}
	want := []string{
		"VIP A, 10,000 services: 1.10", "SRV of a VIP: 1.15", "NXDOMAIN: 1.15", "headless A, 30 endpoints: 1.15",
		"one host of 10,000 endpoints: 1.10", "A of 10,000 endpoints, UDP 512: 1.30", "A of 10,000 endpoints, UDP 1232: 1.30",
	}
	if !slices.Equal(got, want) {
		t.Errorf("default rows\n%q, want\n%q", got, want)
	}
}

func TestExpect(t *testing.T) {
	z := testZone()
	none, srv, vip := askAAAA(z.virtual)[:1], askSRV(z.virtual)[:1], askVIP(z.virtual)[:1]
	tests := []struct {
		name      string
		peer      peer
		questions []question
		want      answer
	}{
		{name: "the baseline has no NODATA", peer: baselinePeer, questions: none, want: answer{rcode: dns.RcodeNameError, ns: 1}},
		{name: "ours has", peer: ourPeer, questions: none, want: answer{ns: 1}},
		{name: "NSD sends no glue", peer: nsdPeer, questions: srv, want: answer{records: 1}},
		{name: "the baseline does", peer: baselinePeer, questions: srv, want: answer{records: 1, extra: 1}},
		{name: "all have addresses", peer: nsdPeer, questions: vip, want: vip[0].want},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.questions[0]
			if got := tt.peer.expect(tt.questions)[0].want; got != tt.want {
				t.Errorf("%s is to answer %s with %s, want %s", tt.peer.name, before, got, tt.want)
			}
			if tt.questions[0] != before {
				t.Errorf("expect changed the question to want %s", tt.questions[0].want)
			}
		})
	}
}

func TestMix(t *testing.T) {
	z := testZone()
	all := z.mix()
	got := map[string]int{}
	for _, q := range all {
		got[fmt.Sprintf("%s %s", dns.TypeToString[q.qtype], dns.RcodeToString[q.want.rcode])]++
	}
	want := map[string]int{"A NOERROR": 16_000, "AAAA NOERROR": 2000, "SRV NOERROR": 1000, "A NXDOMAIN": 1000}
	for kind, n := range want {
		if got[kind] != n {
			t.Errorf("mix has %d questions %s, want %d", got[kind], kind, n)
		}
	}
	if all[0].owner == all[20].owner {
		t.Errorf("two turns of the mix begin with %s", all[0])
	}
}

func TestFewFor(t *testing.T) {
	rows := tcpRows(testZone())
	all, asked := len(fewFor(rows, ourPeer)), len(fewFor(rows, baselinePeer))
	if all != len(fewOf(rows)) || asked >= all {
		t.Errorf("few questions: %d for ours, %d for the baseline, want %d and fewer", all, asked, len(fewOf(rows)))
	}
}

// The largest answers over TCP are what dnsperf takes, also where a server compresses no name.
func TestWholeAnswers(t *testing.T) {
	const most = 16<<10 - 2
	wide := headless("wide", rowHeadless, rowWide, 0)
	for _, s := range []service{wide[len(wide)-1], headless("whole", 1, rowWhole, 0)[0]} {
		addresses := question{owner: s.owner(), edns: true}.message()
		targets := question{owner: s.srvOwner(), edns: true}.message()
		for host, addr := range s.hosts() {
			a := dns.A{Hdr: dns.RR_Header{Name: s.owner(), Rrtype: dns.TypeA, Class: dns.ClassINET}, A: addr.AsSlice()}
			glue := a
			glue.Hdr.Name = host
			srv := dns.RR_Header{Name: s.srvOwner(), Rrtype: dns.TypeSRV, Class: dns.ClassINET}
			addresses.Answer = append(addresses.Answer, &a)
			targets.Answer = append(targets.Answer, &dns.SRV{Hdr: srv, Target: host})
			targets.Extra = append(targets.Extra, &glue)
		}
		if n := addresses.Len(); n > most {
			t.Errorf("addresses of %s: %d octets, want at most %d", s.owner(), n, most)
		}
		if n := targets.Len(); n > most && s.endpoints == rowWide {
			t.Errorf("targets of %s: %d octets, want at most %d", s.owner(), n, most)
		}
	}
}
