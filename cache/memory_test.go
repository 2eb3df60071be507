package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// The largest clusterset that is supported: what all of it may take on the heap, index and stores together.
const heapCeiling = 60 << 20

func TestMemory(t *testing.T) {
	s, err := New(Config{Manifests: []string{t.TempDir()}, Index: index.Options{ClusterNames: true}})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	load(s, add)
	stores := heap()
	for _, w := range s.all {
		w.progress = listed
	}
	p := s.publisher
	p.round()
	after := heap()
	st := s.Stats()
	endpoints := 0
	for _, n := range st.Endpoints {
		endpoints += n
	}
	if st.Objects[ServiceImport] != 53_001 || endpoints != 280_000 || s.State().Index.Len() != 53_001 {
		t.Fatalf("%v, %d endpoints, %d services", st.Objects, endpoints, s.State().Index.Len())
	}
	t.Logf("%d slices; stores %.1f MB, index %.1f MB", st.Objects[EndpointSlice], float64(stores-before)/1e6,
		float64(after-stores)/1e6)
	if got := after - before; got > heapCeiling {
		t.Errorf("%d octets, want at most %d", got, heapCeiling)
	}
	// The maps and the trie hash with a random seed, so that their room differs from run to run.
	_, stated := parts(t)
	if got := float64(after-before) / 1e6; math.Abs(got-stated) > 0.05*stated {
		t.Errorf("all of it takes %.2f MB, and %s says %.1f", got, performance, stated)
	}
	runtime.KeepAlive(s)
}

// relistCeiling is how much of the memory before new lists of all kinds may take beside the old state, until that is
// replaced.
const relistCeiling = 1.5

// A list that is under way stands beside the served state. It holds items, not objects, and shares unchanged ones with
// the state. Garbage that was not collected yet is not counted here.
func TestMemoryOfRelist(t *testing.T) {
	tier.All(t)
	s, err := New(Config{Manifests: []string{t.TempDir()}, Index: index.Options{ClusterNames: true}})
	if err != nil {
		t.Fatal(err)
	}
	base := heap()
	load(s, add)
	for _, w := range s.all {
		w.progress = listed
	}
	p := s.publisher
	p.round()
	live := heap() - base
	lists := map[*watchStore][]any{}
	load(s, func(w *watchStore, obj any) {
		it := w.acceptListed(obj)
		lists[w] = append(lists[w], &it)
	})
	peak := heap() - base
	for w, list := range lists {
		if err := w.Replace(list, "2"); err != nil {
			t.Fatal(err)
		}
		peak = max(peak, heap()-base)
	}
	runtime.KeepAlive(lists)
	lists = nil
	p.round()
	after := heap() - base
	runtime.KeepAlive(s)
	outages.Measured(t, "F7", "heap %.1f MB, %.2f times as much with new lists of all kinds, %.2f times after them",
		float64(live)/1e6,
		float64(peak)/float64(live), float64(after)/float64(live))
	t.Logf("%d octets, %d with new lists, %d after them", live, peak, after)
	if float64(peak) > relistCeiling*float64(live) {
		t.Errorf("%d octets with new lists, want at most %.1f times %d", peak, relistCeiling, live)
	}
	if float64(after) > 1.05*float64(live) {
		t.Errorf("%d octets after new lists, want %d as before", after, live)
	}
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// load brings in 50,000 imports with an address, 3,000 headless ones with 30 endpoints in each of three clusters, and
// one with 10,000 endpoints.
func load(s *Store, to sink) {
	for i := range 50_000 {
		loadVIP(s, i, to)
	}
	for i := range 3_000 {
		loadHeadless(s, fmt.Sprintf("headless-%d", i), 3, 30, to)
	}
	loadImport(s, "large", headlessSpec, to)
	for part := range 100 {
		to(s.stores[1], headlessSlice("large", 0, part, 100))
	}
}

// A sink takes an object of a watch.
type sink func(w *watchStore, obj any)

// add is the sink that stores it.
func add(w *watchStore, obj any) {
	if err := w.Add(obj); err != nil {
		panic(err)
	}
}

func loadImport(s *Store, name, spec string, to sink) {
	obj := &customObject{Spec: json.RawMessage(spec)}
	obj.Namespace, obj.Name = fmt.Sprintf("ns-%d", len(name)), name
	to(s.stores[0], obj)
}

// loadVIP brings in the i-th import with an address.
func loadVIP(s *Store, i int, to sink) {
	loadImport(s, fmt.Sprintf("vip-%d", i), fmt.Sprintf(
		`{"type":"ClusterSetIP","ips":["10.%d.%d.%d"],"ports":[{"name":"http","protocol":"TCP","port":80}]}`, i>>16, i>>8&255, i&255), to)
}

const headlessSpec = `{"type":"Headless","ports":[{"name":"http","port":80}]}`

// loadHeadless brings in a headless import with a slice of n endpoints in each cluster.
func loadHeadless(s *Store, name string, clusters, n int, to sink) {
	loadImport(s, name, headlessSpec, to)
	for cluster := range clusters {
		to(s.stores[1], headlessSlice(name, cluster, 0, n))
	}
}

func headlessSlice(name string, cluster, part, n int) *discoveryv1.EndpointSlice {
	obj := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("ns-%d", len(name)), Name: fmt.Sprintf("imported-%s-%d-%d", name, cluster, part),
			Labels: map[string]string{labelService: name, labelCluster: fmt.Sprintf("cluster-%d", cluster)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr[int32](80)}},
	}
	for e := range n {
		obj.Endpoints = append(obj.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+cluster, (part*n+e)>>8, (part*n+e)&255)},
			Hostname:  ptr(fmt.Sprintf("pod-%d", part*n+e)),
		})
	}
	return obj
}

// A changingService is a headless service with one endpoint that changes.
type changingService struct{ clusters, slices, endpoints int } // slices of a cluster, endpoints of a slice

var smallChange, largeChange = changingService{3, 1, 30}, changingService{1, 40, 1000}

// changing makes a store that has published services with a VIP, and the one that [changingService.slice] changes.
func changing(tb testing.TB, services int, changed changingService) (*Store, *publisher) {
	tb.Helper()
	s, err := New(Config{Manifests: []string{tb.TempDir()}, Index: index.Options{ClusterNames: true}})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range services {
		loadVIP(s, i, add)
	}
	loadImport(s, "changed", headlessSpec, add)
	for part := range changed.clusters * changed.slices {
		add(s.stores[1], headlessSlice("changed", part%changed.clusters, part/changed.clusters, changed.endpoints))
	}
	for _, w := range s.all {
		w.progress = listed
	}
	s.publisher.round()
	return s, s.publisher
}

// slice is the first slice of a cluster; one of its endpoints has an address of the number n.
func (c changingService) slice(n int) *discoveryv1.EndpointSlice {
	slice := headlessSlice("changed", c.clusters-1, 0, c.endpoints)
	slice.Endpoints[c.endpoints/2].Addresses = []string{fmt.Sprintf("10.9.0.%d", n)}
	return slice
}

// BenchmarkChange is one changed slice of a service among 100,001: of 30 endpoints with 90 in all, and of 1,000 with
// 40,000 in all. It is measured from the octets of the object in its event to the published state. CPU time is that of
// the process, with what the garbage collector does beside.
func BenchmarkChange(b *testing.B) {
	b.Run("90", func(b *testing.B) { benchmarkChange(b, 100_000, smallChange) })
	b.Run("40000", func(b *testing.B) { benchmarkChange(b, 100, largeChange) })
}

func benchmarkChange(b *testing.B, services int, changed changingService) {
	b.Helper()
	s, p := changing(b, services, changed)
	var events [2][]byte
	for i := range events {
		var err error
		if events[i], err = changed.slice(i).Marshal(); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	before := cpuTime(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		before, slice := s.State(), new(discoveryv1.EndpointSlice)
		if err := errors.Join(slice.Unmarshal(events[i%2]), s.stores[1].Update(slice)); err != nil {
			b.Fatal(err)
		}
		if p.round(); s.State() == before {
			b.Fatal("not published")
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
