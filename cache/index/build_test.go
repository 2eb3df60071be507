package index

import (
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/allocs"
)

// KEP-2030: the slices without zone and region and those for our zone or region are in use; all slices if these have no
// ready endpoint.
func TestInUse(t *testing.T) {
	slice := func(zone, region string, ready int) *Slice {
		spec := SliceSpec{Zone: zone, Region: region}
		for i := range ready {
			spec.Endpoints = append(spec.Endpoints, Endpoint{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
		}
		return NewSlice(spec)
	}
	open, here, there := slice("", "", 1), slice("z1", "", 1), slice("z2", "", 1)
	home, abroad, both := slice("", "r1", 1), slice("", "r2", 1), slice("z2", "r1", 1)
	unready := slice("z1", "", 0)
	for _, tt := range []struct {
		name         string
		zone, region string
		list         []*Slice
		want         []*Slice
	}{
		{name: "neither known: all", list: []*Slice{open, here, there, abroad}, want: []*Slice{open, here, there, abroad}},
		{name: "our zone", zone: "z1", list: []*Slice{here, there}, want: []*Slice{here}},
		{name: "our zone and those for nobody", zone: "z1", list: []*Slice{open, here, there}, want: []*Slice{open, here}},
		{name: "our region", region: "r1", list: []*Slice{home, abroad}, want: []*Slice{home}},
		{name: "another zone in our region", zone: "z1", region: "r1", list: []*Slice{both, there}, want: []*Slice{both}},
		{name: "zone or region", zone: "z1", region: "r1", list: []*Slice{here, home, there, abroad},
			want: []*Slice{here, home}},
		{name: "for a region while only the zone is known", zone: "z1", list: []*Slice{here, home}, want: []*Slice{here}},
		{name: "none is ours: all", zone: "z1", list: []*Slice{there, abroad}, want: []*Slice{there, abroad}},
		{name: "ours is not ready: all", zone: "z1", list: []*Slice{unready, there}, want: []*Slice{unready, there}},
		{name: "nothing", zone: "z1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := slicesInUse(tt.list, nil, &Options{Zone: tt.zone, Region: tt.region}); !slices.Equal(got, tt.want) {
				t.Errorf("slicesInUse keeps %d of %d slices, want %d", len(got), len(tt.list), len(tt.want))
			}
		})
	}
}

// A service without a name is not in the index (docs/spec/dns.md 3.3; for names that are too long,
// docs/spec/dns.md 1.2).
func TestBuildOfNothing(t *testing.T) {
	ready := NewSlice(SliceSpec{Cluster: "east", Endpoints: []Endpoint{{Addrs: addrs("10.0.0.1")}}})
	for _, tt := range []struct {
		name     string
		typ      Type
		list     []*Slice
		maxNames []int
		want     bool
	}{
		{name: "Headless without slices", typ: Headless},
		{name: "Headless without a ready endpoint", typ: Headless, list: []*Slice{NewSlice(SliceSpec{Cluster: "east"})}},
		{name: "Headless", typ: Headless, list: []*Slice{ready}, want: true},
		{name: "ClusterSetIP without anything", typ: ClusterSetIP, want: true},
		{name: "name as long as may be", typ: ClusterSetIP, maxNames: []int{len("db.shop")}, want: true},
		{name: "name too long", typ: ClusterSetIP, maxNames: []int{len("db.shop") - 1}},
		{name: "name too long for one zone", typ: ClusterSetIP, maxNames: []int{len("db.shop"), len("db.shop") - 1},
			want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			imp := NewImport(ImportSpec{Namespace: "shop", Name: "db", Type: tt.typ})
			if got := Build(imp, tt.list, Options{MaxNames: tt.maxNames}); (got != nil) != tt.want {
				t.Errorf("Build = %v, want a service: %v", got, tt.want)
			}
		})
	}
}

// synthetic are the slices of so many clusters with so many IPv4 endpoints each, a hundred in a slice. They are
// in no particular order, as in a real list.
func synthetic(clusters, endpoints int, hostnames bool) (*Import, []*Slice) {
	ports := NewPorts([]Port{{"http", TCP, 80}, {"metrics", TCP, 9090}})
	var list []*Slice
	for c := range clusters {
		for from := 0; from < endpoints; from += 100 {
			spec := SliceSpec{Cluster: fmt.Sprintf("cluster-%d", c), Ports: ports}
			for i := from; i < min(from+100, endpoints); i++ {
				n := i * 7919 % 65536
				ep := Endpoint{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(c), byte(n >> 8), byte(n)})}}
				if hostnames {
					ep.Host = fmt.Sprintf("db-%d", n)
				}
				spec.Endpoints = append(spec.Endpoints, ep)
			}
			list = append(list, NewSlice(spec))
		}
	}
	return NewImport(ImportSpec{Namespace: "shop", Name: "db", Type: Headless, Ports: ports}), list
}

// Build allocates for each table, not for each endpoint: a hundred times the endpoints only cost the growth of some
// buffers.
func TestBuildAllocations(t *testing.T) {
	for _, endpoints := range []int{100, 10_000} {
		imp, list := synthetic(1, endpoints, true)
		got := allocs.PerRun(5, func() { Build(imp, list, Options{}) })
		// The service, its endpoints, the tables of the builder and of the result, and the growth of those without a known
		// size.
		if got > 80 {
			t.Errorf("Build of %d endpoints: %v allocations, want at most 80", endpoints, got)
		}
	}
}

// A lookup does not allocate, whether the name exists or not.
func TestIndexAllocations(t *testing.T) {
	x := syntheticIndex(1000)
	for _, key := range []string{"svc-7.ns-7", "svc-x.ns-7"} {
		if got := allocs.PerRun(100, func() { x.Service(key); x.Namespace("ns-7", 0) }); got != 0 {
			t.Errorf("Service(%q) and Namespace: %v allocations, want 0", key, got)
		}
	}
}

func syntheticIndex(services int) *Index {
	e := new(Index).Edit()
	for i := range services {
		e.Put(syntheticService(i))
	}
	return e.Index()
}

func syntheticService(i int) *Service {
	return Build(NewImport(ImportSpec{
		Namespace: fmt.Sprintf("ns-%d", i%1000), Name: fmt.Sprintf("svc-%d", i), Type: ClusterSetIP,
		IPs:   []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
		Ports: NewPorts([]Port{{"http", TCP, 80}}),
	}), nil, Options{})
}

// An import that owns no name is known to be one, and changes nothing that an answer depends on.
func TestNameless(t *testing.T) {
	headless := NewImport(ImportSpec{Namespace: "shop", Name: "db", Type: Headless})
	x := new(Index)
	e := x.Edit()
	if !e.SetNameless("db.shop", headless) || e.SetNameless("db.shop", headless) || e.SetNameless("web.shop", nil) {
		t.Error("SetNameless: want true for a change, and false for none")
	}
	next := e.Index()
	if next.Nameless("db.shop") != headless || x.Nameless("db.shop") != nil {
		t.Errorf("Nameless = %v, before the edit %v, want the import and nil", next.Nameless("db.shop"),
			x.Nameless("db.shop"))
	}
	if next.Len() != 0 || next.Digest() != x.Digest() || next.Namespace("shop", 0) || next.Service("db.shop") != nil {
		t.Errorf("%d services, digest %x: want those of the empty index", next.Len(), next.Digest())
	}
	if e = next.Edit(); !e.SetNameless("db.shop", nil) || e.Index().Nameless("db.shop") != nil {
		t.Error("SetNameless to nil: want that there is none")
	}
}

// The result of Build depends neither on the order of the slices nor on the memory of the builder: two builds are
// equal.
func TestBuildTwice(t *testing.T) {
	imp, list := synthetic(3, 250, false)
	a, b := Build(imp, list, Options{}), Build(imp, reversed(list), Options{})
	if !reflect.DeepEqual(a, b) || !Equal(a, b) {
		t.Error("Build of the same slices in another order is another service")
	}
	if other := Build(imp, list[1:], Options{}); Equal(a, other) || Equal(a, nil) || Equal(nil, a) || !Equal(nil, nil) {
		t.Error("Equal of services with other endpoints")
	}
}

// one is a slice of one endpoint.
func one(cluster, host string, ports Ports, addr ...string) SliceSpec {
	family := V4
	if addrs(addr...)[0].Is6() {
		family = V6
	}
	return SliceSpec{Cluster: cluster, Family: family, Ports: ports, Endpoints: []Endpoint{{host, addrs(addr...)}}}
}

// Equal is false for any change that an answer can show (docs/spec/dns.md 5.3: it moves the serial).
func TestEqual(t *testing.T) {
	type change struct {
		name string
		imp  ImportSpec
		base []SliceSpec // nil: the common one
		list []SliceSpec
		want bool
	}
	http, dns := NewPorts([]Port{{"http", TCP, 80}}), NewPorts([]Port{{"dns", UDP, 53}})
	imp := ImportSpec{Namespace: "shop", Name: "db", Type: Headless}
	east0, east1 := one("east", "db-0", http, "10.0.0.1"), one("east", "db-1", dns, "10.0.0.2")
	west2 := one("west", "db-2", NewPorts([]Port{{"sip", SCTP, 5060}}), "10.0.0.3")
	base := []SliceSpec{east0, east1, west2}
	build := func(imp ImportSpec, specs []SliceSpec) *Service {
		var list []*Slice
		for _, spec := range specs {
			list = append(list, NewSlice(spec))
		}
		return Build(NewImport(imp), list, Options{ClusterNames: true})
	}
	for _, tt := range []change{
		{name: "nothing", imp: imp, list: base, want: true},
		{name: "other order", imp: imp, list: reversed(base), want: true},
		{name: "a slice twice", imp: imp, list: append(slices.Clone(base), west2), want: true},
		{name: "endpoint gone", imp: imp, list: base[1:]},
		{name: "new address", imp: imp, list: append(slices.Clone(base), one("east", "db-0", http, "10.0.0.9"))},
		{name: "new family", imp: imp, list: append(slices.Clone(base), one("east", "db-0", http, "fd00::1"))},
		{name: "another hostname", imp: imp, list: []SliceSpec{one("east", "db-9", http, "10.0.0.1"), east1, west2}},
		{name: "another address", imp: imp, list: []SliceSpec{one("east", "db-0", http, "10.0.0.9"), east1, west2}},
		{name: "an address moves to another host", imp: imp, list: []SliceSpec{
			one("east", "db-0", http, "10.0.0.1", "10.0.0.2"), one("east", "db-1", dns, "10.0.0.2"), west2,
		}},
		{name: "another host has two", imp: imp, list: []SliceSpec{
			east0, one("east", "db-1", dns, "10.0.0.2", "10.0.0.3"), one("west", "db-2", west2.Ports, "10.0.0.4"),
		}, base: []SliceSpec{
			one("east", "db-0", http, "10.0.0.1", "10.0.0.2"), one("east", "db-1", dns, "10.0.0.3"),
			one("west", "db-2", west2.Ports, "10.0.0.4"),
		}},
		{name: "another port", imp: imp, list: []SliceSpec{one("east", "db-0", dns, "10.0.0.1"), east1, west2}},
		{name: "another cluster", imp: imp, list: []SliceSpec{east0, one("west", "db-1", dns, "10.0.0.2"), west2}},
		{name: "no cluster", imp: imp, list: []SliceSpec{east0, east1, one("", "db-2", http, "10.0.0.3")}},
		{name: "another type", imp: ImportSpec{Namespace: "shop", Name: "db", Type: ClusterSetIP}, list: base},
		{name: "a port of the import", imp: ImportSpec{Namespace: "shop", Name: "db", Type: Headless,
			Ports: NewPorts([]Port{{"pg", TCP, 5432}})}, list: base},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.base == nil {
				tt.base = base
			}
			a, b := build(imp, tt.base), build(tt.imp, tt.list)
			if Equal(a, b) != tt.want || Equal(b, a) != tt.want {
				t.Errorf("Equal = %v and %v, want %v", Equal(a, b), Equal(b, a), tt.want)
			}
		})
	}
}

// The memory of one build is used again for the next: neither result may change the other. TestEqualInAllZones: a
// service that is too long for one of the zones differs from one that was built for other zones, as after a reload, and
// can be asked for a zone that is new.
func TestEqualInAllZones(t *testing.T) {
	imp := NewImport(ImportSpec{Namespace: "shop", Name: "db", Type: Headless})
	list := []*Slice{NewSlice(one("east", strings.Repeat("h", 60), Ports{}, "10.0.0.1"))}
	limits := [][]int{{200}, {200, 60}, {200, 60, 6}}
	for i, before := range limits {
		a := Build(imp, list, Options{MaxNames: before})
		for j, after := range limits {
			b := Build(imp, list, Options{MaxNames: after})
			if Equal(a, b) != (i == j) {
				t.Errorf("Equal of limits %d and %d = %t", before, after, i != j)
			}
			for k := range after {
				if shown := a.In(k); shown != nil && k < len(before) && !equalHere(shown, b.In(k)) {
					t.Errorf("limits %d and %d show other services in zone %d", before, after, k)
				}
			}
		}
	}
}

func TestBuildsShareNothing(t *testing.T) {
	http, dns := NewPorts([]Port{{"http", TCP, 80}}), NewPorts([]Port{{"dns", UDP, 53}, {"http", TCP, 80}})
	imp := NewImport(ImportSpec{Namespace: "shop", Name: "db", Type: Headless})
	// many and few hosts; several addresses of a host, or no address; one address at two hosts; both families; no
	// cluster
	shapes := [][]SliceSpec{
		{one("east", "db-0", http, "10.0.0.1", "10.0.0.2"), one("east", "db-1", dns, "10.0.0.2"),
			one("", "db-2", http, "10.0.0.3")},
		{one("west", "db-0", dns, "fd00::1"), one("west", "db-0", http, "10.0.0.1")},
		{one("east", "", http, "10.0.0.9")},
	}
	_, large := synthetic(2, 512, true)
	_, larger := synthetic(1, 2*maxKept, false)
	lists := [][]*Slice{large, larger}
	for _, specs := range shapes {
		var list []*Slice
		for _, spec := range specs {
			list = append(list, NewSlice(spec))
		}
		lists = append(lists, list)
	}
	all := func() (built []*Service) {
		for _, list := range lists {
			built = append(built, Build(imp, list, Options{}))
		}
		return built
	}
	first := all()
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for range 10 {
				all()
			}
		})
	}
	others.Wait()
	slices.Reverse(lists)
	again := all()
	slices.Reverse(again)
	for i := range first {
		if !reflect.DeepEqual(first[i], again[i]) {
			t.Errorf("service %d: another one among others: %+v, was %+v", i, again[i].eps, first[i].eps)
		}
	}
}

// BenchmarkBuild makes a service of 3 clusters with 30 endpoints each, and one of 10,000, our largest.
func BenchmarkBuild(b *testing.B) {
	for _, bb := range []struct {
		name                string
		clusters, endpoints int
		hostnames           bool
	}{
		{"3x30", 3, 30, false}, {"3x30-hostnames", 3, 30, true},
		{"10000", 1, 10_000, false}, {"10000-hostnames", 1, 10_000, true},
	} {
		b.Run(bb.name, func(b *testing.B) {
			imp, list := synthetic(bb.clusters, bb.endpoints, bb.hostnames)
			b.ReportAllocs()
			for b.Loop() {
				if Build(imp, list, Options{ClusterNames: true}) == nil {
					b.Fatal("no service")
				}
			}
		})
	}
}

// BenchmarkPut makes an index with one changed service of 100,000.
func BenchmarkPut(b *testing.B) {
	x, s := syntheticIndex(100_000), syntheticService(777)
	b.ReportAllocs()
	for b.Loop() {
		e := x.Edit()
		e.Put(s)
		x = e.Index()
	}
}

// BenchmarkMemory measures the heap that a service with a VIP and an endpoint take, with 100,000 of each, without the
// input.
func BenchmarkMemory(b *testing.B) {
	b.Run("service", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			x := syntheticIndex(100_000)
			b.ReportMetric(float64(heap()-before)/100_000, "B/service")
			runtime.KeepAlive(x)
		}
	})
	for _, shape := range []struct {
		name                string
		services, endpoints int
		hostnames           bool
	}{{"endpoint-of-10000", 10, 10_000, false}, {"endpoint-of-3x30", 1111, 30, false},
		{"endpoint-of-3x30-hostnames", 1111, 30, true}} {
		b.Run(shape.name, func(b *testing.B) {
			clusters := 1
			if shape.endpoints == 30 {
				clusters = 3
			}
			imp, list := synthetic(clusters, shape.endpoints, shape.hostnames)
			for b.Loop() {
				before := heap()
				kept := make([]*Service, shape.services)
				for i := range kept {
					kept[i] = Build(imp, list, Options{ClusterNames: true})
				}
				b.ReportMetric(float64(heap()-before)/float64(shape.services*clusters*shape.endpoints), "B/endpoint")
				runtime.KeepAlive(kept)
			}
			runtime.KeepAlive(list)
		})
	}
}

// heap is the live heap.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
