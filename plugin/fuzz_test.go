package plugin_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/golden"
)

// FuzzServeDNS gives the handler any message that the server accepts as a query: it never panics, and its replies can
// be packed and fit the client.
func FuzzServeDNS(f *testing.F) {
	objects := golden.Malformed(rand.New(rand.NewPCG(1, 3)), 20)
	for _, o := range hosts(60) { // more than 512 octets take
		objects = append(objects, strings.Replace(o, "shop/db", "shop/many", 1))
	}
	s := serve(f, setup{zones: []string{"clusterset.local", "."}, corefile: "max_answers 50", objects: objects})
	for _, name := range []string{
		".", "clusterset.local.", "svc.clusterset.local.", "db.shop.svc.clusterset.local.",
		"many.shop.svc.clusterset.local.", "svc.shop.svc.clusterset.local.",
		`_http\._tcp.db.shop.svc.clusterset.local.`, `\000.db.shop.svc.clusterset.local.`, `x\.clusterset.local.`,
		"_http._tcp.east.db.shop.svc.clusterset.local.", strings.Repeat("x.", 118) + "clusterset.local.",
		strings.Repeat("_tcp.", 40) + "db.shop.svc.clusterset.local.", "_.db.shop.svc.clusterset.local.",
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeANY, dns.TypeAXFR, dns.TypeOPT, 0, 65535} {
			for _, size := range []uint16{512, 4096} {
				b, err := ask(name, qtype, size).Pack()
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		query := new(dns.Msg)
		if query.Unpack(octets) != nil || len(query.Question) != 1 {
			return // the server answers, or drops it
		}
		recorder := dnstest.NewRecorder(&test.ResponseWriter{})
		if _, err := s.handler.ServeDNS(t.Context(), recorder, query.Copy()); err != nil &&
			!strings.Contains(err.Error(), "no next plugin") {
			t.Errorf("ServeDNS(%v) = %v", query, err)
		}
		if recorder.Msg != nil {
			recorder.Msg.Compress = true // as the server does where a reply would not fit otherwise
			packed, err := recorder.Msg.Pack()
			if err != nil {
				t.Errorf("the reply to %v: %v", query, err)
			}
			// As large as the client takes and udp_size, here its default, permits (docs/spec/dns.md 5.5).
			limit := dns.MinMsgSize
			if o := query.IsEdns0(); o != nil {
				limit = min(max(limit, int(o.UDPSize())), 1232)
			}
			if len(packed) > limit {
				t.Errorf("the reply to %v has %d octets, want at most %d", query, len(packed), limit)
			}
		}
	})
}
