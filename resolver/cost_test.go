package resolver_test

import (
	"fmt"
	"testing"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/test/harness/allocs"

	"github.com/miekg/dns"
)

// kinds has a question of each kind for the zone of newZone. allocs is the most allocations, whatever the size of the
// zone.
var kinds = []struct {
	kind   string
	name   string
	qtype  uint16
	want   resolver.Outcome
	allocs float64
}{
	{"vip-a", "vip-7.ns-7.svc", dns.TypeA, resolver.Found, 0},
	{"vip-srv", "_http._tcp.vip-7.ns-7.svc", dns.TypeSRV, resolver.Found, 1}, // the list of targets
	{"vip-srv-bare", "vip-7.ns-7.svc", dns.TypeSRV, resolver.Found, 2},       // the list of targets, grown to two
	{"vip-nodata", "vip-7.ns-7.svc", dns.TypeAAAA, resolver.NoData, 0},
	{"nxdomain-service", "vip-x.ns-7.svc", dns.TypeA, resolver.NXDomain, 0},
	{"nxdomain-below", "x.y.vip-7.ns-7.svc", dns.TypeA, resolver.NXDomain, 0},
	{"nxdomain-port", "_x._tcp.vip-7.ns-7.svc", dns.TypeSRV, resolver.NXDomain, 0},
	{"namespace", "ns-7.svc", dns.TypeA, resolver.NoData, 0},
	{"headless-a", "large.shop.svc", dns.TypeA, resolver.Found, 0},
	{"headless-srv", "_pg._tcp.large.shop.svc", dns.TypeSRV, resolver.Found, 0},
	{"headless-srv-bare", "large.shop.svc", dns.TypeSRV, resolver.Found, 0},
	{"host-a", "db-3.east.large.shop.svc", dns.TypeA, resolver.Found, 0},
	{"host-nxdomain", "db-x.east.large.shop.svc", dns.TypeA, resolver.NXDomain, 0},
	{"cluster-a", "west.large.shop.svc", dns.TypeA, resolver.Found, 0},
	{"cluster-srv", "_pg._tcp.west.large.shop.svc", dns.TypeSRV, resolver.Found, 0},
	{"rotate-a", "rotate.shop.svc", dns.TypeA, resolver.Found, 0},
	{"rotate-srv", "_pg._tcp.rotate.shop.svc", dns.TypeSRV, resolver.Found, 2}, // the numbers, and the list of targets
	{"many-srv-bare", "many.shop.svc", dns.TypeSRV, resolver.Found, 4},         // these, for all clusters and for one
}

// newZone has so many services with a VIP, and with so many endpoints in 2 clusters a Headless service and a
// ClusterSetIP service without a VIP, and that of manyPorts.
func newZone(services, endpoints int) *index.Index {
	e := new(index.Index).Edit()
	ports := index.NewPorts([]index.Port{{Name: "http", Proto: index.TCP, Number: 80},
		{Name: "dns", Proto: index.UDP, Number: 53}})
	for i := range services {
		e.Put(index.Build(index.NewImport(index.ImportSpec{
			Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("vip-%d", i), Type: index.ClusterSetIP,
			IPs: addrs(fmt.Sprintf("10.%d.%d.1", i>>8&255, i&255)), Ports: ports,
		}), nil, index.Options{ClusterNames: true}))
	}
	large, list := dualStackPacked("large", index.Headless, endpoints)
	e.Put(index.Build(large, list, index.Options{ClusterNames: true}))
	rotate, list := dualStackPacked("rotate", index.ClusterSetIP, endpoints)
	e.Put(index.Build(rotate, list, index.Options{ClusterNames: true}))
	e.Put(manyPorts())
	return e.Index()
}

// manyPorts is a service with 2,000 ports in each of 20 clusters, a hundred in a slice. Every other port has another
// number in each cluster.
func manyPorts() *index.Service {
	var list []*index.Slice
	for c := range 20 {
		for from := 0; from < 2000; from += 100 {
			var ports []index.Port
			for p := from; p < from+100; p++ {
				ports = append(ports, index.Port{Name: fmt.Sprint("p-", p), Proto: index.TCP,
					Number: uint16(10_000 + 20*p + p%2*c)})
			}
			spec := index.SliceSpec{Cluster: fmt.Sprint("c-", c), Ports: index.NewPorts(ports)}
			spec.Endpoints = []index.Endpoint{{Addrs: addrs(fmt.Sprintf("10.90.%d.1", c))}}
			list = append(list, index.NewSlice(spec))
		}
	}
	imp := index.NewImport(index.ImportSpec{Namespace: "shop", Name: "many", Type: index.ClusterSetIP})
	return index.Build(imp, list, index.Options{ClusterNames: true})
}

// dualStackPacked are the slices of 2 clusters: half of the endpoints in each, a hundred in a slice, with hostnames.
func dualStackPacked(name string, typ index.Type, endpoints int) (*index.Import, []*index.Slice) {
	ports := index.NewPorts([]index.Port{{Name: "pg", Proto: index.TCP, Number: 5432}})
	var list []*index.Slice
	for c, id := range []string{"east", "west"} {
		for from := 0; from < endpoints/2; from += 100 {
			spec := index.SliceSpec{Cluster: id, Ports: ports}
			for h := from; h < min(from+100, endpoints/2); h++ {
				spec.Endpoints = append(spec.Endpoints, index.Endpoint{
					Host: fmt.Sprintf("db-%d", h), Addrs: addrs(fmt.Sprintf("10.%d.%d.%d", 100+c, h>>8, h&255)),
				})
			}
			list = append(list, index.NewSlice(spec))
		}
	}
	return index.NewImport(index.ImportSpec{Namespace: "shop", Name: name, Type: typ, Ports: ports}), list
}

// docs/spec/dns.md 5: the cost of an answer is in proportion to its records. Here 20 records are read, as the plugin
// reads them; the number of allocations is the same with 10 and with 10,000 endpoints.
func TestAllocations(t *testing.T) {
	buf := make([]byte, 0, 256)
	for _, endpoints := range []int{10, 10_000} {
		x := newZone(100, endpoints)
		o := resolver.Options{ClusterNames: true, MaxName: 235}
		for _, k := range kinds {
			rotation := uint64(0)
			got := allocs.PerRun(200, func() {
				rotation++
				q := resolver.Question{Name: k.name, Type: k.qtype, Rotation: rotation, ClientRotation: rotation}
				a := resolver.Resolve(x, q, &o)
				if a.Outcome != k.want {
					t.Fatalf("%s: outcome %d, want %d", k.kind, a.Outcome, k.want)
				}
				for i := range min(20, a.Addresses.Len()) {
					buf = append(buf[:0], a.Addresses.At(i)...)
				}
				for i := range min(20, a.Services.Len()) {
					_, to := a.Services.At(i)
					buf = to.AppendName(buf[:0])
				}
			})
			if got > k.allocs {
				t.Errorf("%s at %d endpoints: %v allocations, want at most %v", k.kind, endpoints, got, k.allocs)
			}
			if got := allocs.PerRun(200, func() { resolver.Find(x, k.name, &o) }); got != 0 {
				t.Errorf("%s at %d endpoints: Find allocates %v times", k.kind, endpoints, got)
			}
		}
	}
}

// BenchmarkFind looks up a name of each kind in a zone of 10,000 services and one of 10,000 endpoints.
func BenchmarkFind(b *testing.B) {
	x, o := newZone(10_000, 10_000), resolver.Options{ClusterNames: true}
	for _, k := range kinds {
		b.Run(k.kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := resolver.Find(x, k.name, &o); (n.Kind == resolver.None) != (k.want == resolver.NXDomain) {
					b.Fatalf("kind %d", n.Kind)
				}
			}
		})
	}
}

// BenchmarkResolve answers a question of each kind in a zone of 10,000 services and one of 10,000 endpoints, and reads
// the 30 records that fit a UDP answer.
func BenchmarkResolve(b *testing.B) {
	x, o := newZone(10_000, 10_000), resolver.Options{ClusterNames: true}
	buf := make([]byte, 0, 256)
	for _, k := range kinds {
		b.Run(k.kind, func(b *testing.B) {
			b.ReportAllocs()
			for rotation := uint64(0); b.Loop(); rotation++ {
				a := resolver.Resolve(x, resolver.Question{Name: k.name, Type: k.qtype, Rotation: rotation,
					ClientRotation: rotation}, &o)
				if a.Outcome != k.want {
					b.Fatalf("outcome %d, want %d", a.Outcome, k.want)
				}
				for i := range min(30, a.Addresses.Len()) {
					buf = append(buf[:0], a.Addresses.At(i)...)
				}
				for i := range min(30, a.Services.Len()) {
					_, to := a.Services.At(i)
					buf = to.AppendName(buf[:0])
				}
			}
		})
	}
}
