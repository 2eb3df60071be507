package plugin_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/allocs"
)

// A sink drops replies. Its methods do not allocate.
type sink struct {
	test.ResponseWriter
	remote net.Addr
	rcode  int
	n      int
}

func (s *sink) RemoteAddr() net.Addr { return s.remote }

func (s *sink) WriteMsg(m *dns.Msg) error {
	s.rcode, s.n = m.Rcode, len(m.Answer)
	return nil
}

// costs are questions, and the most allocations of each answer with what they are.
var costs = []struct {
	name    string
	qname   string
	qtype   uint16
	records int
	most    float64
}{
	// The message with its question and one-record section; the record with its address.
	{name: "VIP A", qname: "web.shop", qtype: dns.TypeA, records: 1, most: 2},
	{name: "host A", qname: "h5.c1.db.shop", qtype: dns.TypeA, records: 1, most: 2},
	// The message; the section; all records with their addresses in one allocation.
	{name: "headless A of 30", qname: "db.shop", qtype: dns.TypeA, records: 30, most: 3},
	// The message; the list of the resolver; the records; the section of the glue, and the record in it. One more, here
	// and below: under the race detector a pool drops a quarter of what it gets, and a query has two buffers.
	{name: "SRV of a VIP", qname: "_http._tcp.web.shop", qtype: dns.TypeSRV, records: 1, most: 6},
	// The message; the section; the records; the text of all targets.
	{name: "headless SRV of 30, cut", qname: "_pg._tcp.db.shop", qtype: dns.TypeSRV, records: 21, most: 5},
	// The message, the SOA record, and the two names in it.
	{name: "NXDOMAIN", qname: "x.shop", qtype: dns.TypeA, most: 4},
	{name: "NODATA", qname: "web.shop", qtype: dns.TypeMX, most: 4},
	// As for any A, and the name in lower case.
	{name: "mixed case", qname: "WEB.Shop", qtype: dns.TypeA, records: 1, most: 3},
}

// costObjects are a service with a VIP, and one of three clusters with ten hosts each.
func costObjects() []string {
	objects := []string{
		"ServiceImport  shop/web  ClusterSetIP  ips: 10.96.0.10  ports: http/TCP/80",
		"ServiceImport  shop/db  Headless  ports: pg/TCP/5432",
	}
	for cluster := range 3 {
		line := fmt.Sprintf("EndpointSlice  shop/db  cluster: c%d", cluster)
		for host := range 10 {
			line += fmt.Sprintf("  h%d=10.%d.0.%d", host, cluster, 1+host)
		}
		objects = append(objects, line)
	}
	return objects
}

func TestAllocations(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, objects: costObjects()})
	for _, tt := range costs {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(tt.qname+".svc.clusterset.local.", tt.qtype, 4096)
			w := &sink{remote: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000}}
			got := allocs.PerRun(1000, func() {
				if _, err := s.handler.ServeDNS(t.Context(), w, r); err != nil {
					t.Fatal(err)
				}
			})
			if w.n != tt.records || (w.rcode == dns.RcodeNameError) != (tt.name == "NXDOMAIN") {
				t.Fatalf("%s with %d records", dns.RcodeToString[w.rcode], w.n)
			}
			if got > tt.most {
				t.Errorf("%v allocations, want at most %v", got, tt.most)
			}
		})
	}
}

// BenchmarkServeDNS answers each of the questions, without the packing and sending of the message.
func BenchmarkServeDNS(b *testing.B) {
	s := serve(b, setup{zones: []string{"clusterset.local"}, objects: costObjects()})
	for _, c := range costs {
		b.Run(c.name, func(b *testing.B) {
			r := ask(c.qname+".svc.clusterset.local.", c.qtype, 4096)
			w := &sink{remote: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.handler.ServeDNS(b.Context(), w, r); err != nil {
					b.Fatal(err)
				}
			}
			if w.n != c.records {
				b.Fatalf("%d records, want %d", w.n, c.records)
			}
		})
	}
}
