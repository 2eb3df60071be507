package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// manifests writes objects to a file and returns its path.
func manifests(t *testing.T, objects []string) string {
	t.Helper()
	manifest, err := golden.Expand(objects)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// exchange asks over TCP, where every answer has room.
func exchange(t *testing.T, p *controlplane.Port, m *dns.Msg) *dns.Msg {
	t.Helper()
	return exchangeFrom(t, p, m, 1)
}

// exchangeFrom is exchange as the client 127.0.0.<host>. Other systems than Linux have 127.0.0.1 alone.
func exchangeFrom(t *testing.T, p *controlplane.Port, m *dns.Msg, host byte) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: "tcp", Timeout: until.Patience}
	if runtime.GOOS == "linux" {
		c.Dialer = &net.Dialer{Timeout: until.Patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
	}
	reply, _, err := c.ExchangeContext(t.Context(), m, p.String())
	if err != nil {
		t.Fatalf("%s: %s", m.Question[0].String(), err)
	}
	return reply
}

// transfer returns all records of a zone transfer, in their order.
func transfer(t *testing.T, p *controlplane.Port, query *dns.Msg) (rrs []dns.RR) {
	t.Helper()
	tr := dns.Transfer{DialTimeout: until.Patience, ReadTimeout: until.Patience}
	envelopes, err := tr.In(query, p.String())
	if err != nil {
		t.Fatal(err)
	}
	for e := range envelopes {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		rrs = append(rrs, e.RR...)
	}
	return rrs
}

const zone = "clusterset.local."

// TestTransfer compares a transfer with the answers (docs/spec/dns.md 8): every transferred record is in an answer, and
// every answer is transferred; where answers rotate between clusters, one of the rotation is enough. A transfer begins
// and ends with the SOA of answers.
func TestTransfer(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			objects := golden.Malformed(rand.New(rand.NewPCG(seed, 4)), 8)
			p := port(t)
			start(t, block([]string{zone}, p, "transfer {\nto *\n}\nclusterset {\nmanifests "+manifests(t, objects)+"\n}\n"))
			rrs := transfer(t, p, new(dns.Msg).SetAxfr(zone))
			soa := exchange(t, p, new(dns.Msg).SetQuestion(zone, dns.TypeSOA)).Answer[0].String()
			if got := []string{rrs[0].String(), rrs[len(rrs)-1].String()}; !slices.Equal(got, []string{soa, soa}) {
				t.Errorf("the transfer begins and ends with %q, want %q", got, soa)
			}
			checkTransfer(t, p, rrs[1:len(rrs)-1])
			checkIncremental(t, p, rrs)
		})
	}
}

func checkTransfer(t *testing.T, p *controlplane.Port, rrs []dns.RR) {
	t.Helper()
	type key struct {
		owner string
		qtype uint16
	}
	all := map[key]map[string]bool{}
	for _, rr := range rrs {
		k := key{rr.Header().Name, rr.Header().Rrtype}
		if all[k] == nil {
			all[k] = map[string]bool{}
		}
		if all[k][rr.String()] {
			t.Errorf("record %q is transferred twice", rr)
		}
		all[k][rr.String()] = true
	}
	for k, whole := range all {
		seen := map[string]bool{}
		for host := range byte(100) { // each client is answered by one cluster within a second
			for _, rr := range exchangeFrom(t, p, new(dns.Msg).SetQuestion(k.owner, k.qtype), 1+host).Answer {
				seen[rr.String()] = true
				if !whole[rr.String()] {
					t.Errorf("answer %q is not transferred", rr)
				}
			}
			if len(seen) == len(whole) {
				break
			}
		}
		if len(seen) < len(whole) && len(whole) < 300 {
			t.Errorf("%s %s: %d records are answered, %d transferred", k.owner, dns.TypeToString[k.qtype], len(seen), len(whole))
		}
	}
}

// checkIncremental asks for changes: a client that is behind gets the whole zone, one that is not the SOA (RFC 1995
// section 4).
func checkIncremental(t *testing.T, p *controlplane.Port, whole []dns.RR) {
	t.Helper()
	serial := whole[0].(*dns.SOA).Serial
	for _, tt := range []struct {
		name   string
		serial uint32
		want   int
	}{
		{"behind", serial - 1, len(whole)},
		{"current", serial, 1},
		{"ahead", serial + 1, 1},
	} {
		got := transfer(t, p, new(dns.Msg).SetIxfr(zone, tt.serial, "ns.dns."+zone, "hostmaster."+zone))
		if len(got) != tt.want {
			t.Errorf("IXFR from a serial that is %s: %d records, want %d", tt.name, len(got), tt.want)
		}
	}
}

func TestTransferIsRefusedWithoutThePlugin(t *testing.T) {
	p := port(t)
	start(t, block([]string{zone}, p, "clusterset {\nmanifests "+manifests(t, nil)+"\n}\n"))
	for _, m := range []*dns.Msg{
		new(dns.Msg).SetAxfr(zone), new(dns.Msg).SetIxfr(zone, 1, "ns.dns."+zone, "hostmaster."+zone),
		new(dns.Msg).SetAxfr("shop.svc." + zone),
	} {
		if got := exchange(t, p, m); got.Rcode != dns.RcodeRefused || len(got.Answer) > 0 {
			t.Errorf("%s: %s with %d records, want REFUSED", strings.TrimSpace(m.Question[0].String()),
				dns.RcodeToString[got.Rcode], len(got.Answer))
		}
	}
}
