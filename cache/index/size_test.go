package index

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// performance is the document with the figures that are tested here.
const performance = "../../docs/benchmarks/memory.md"

// statedSizes reads the rows of the document that begin with "| `index.NAME` | OCTETS | BLOCK |", by name.
func statedSizes(t *testing.T) map[string][2]uintptr {
	t.Helper()
	text, err := os.ReadFile(performance)
	if err != nil {
		t.Fatal(err)
	}
	stated := map[string][2]uintptr{}
	for _, row := range regexp.MustCompile("(?m)^\\| `index\\.(\\w+)` *\\| *(\\d+) *\\| *(\\d+) *\\|").FindAllStringSubmatch(string(text), -1) {
		size, _ := strconv.Atoi(row[2])
		block, _ := strconv.Atoi(row[3])
		stated[row[1]] = [2]uintptr{uintptr(size), uintptr(block)}
	}
	return stated
}

// block is the size of the block that the allocator uses for so many octets.
func block(size uintptr) uintptr { return uintptr(cap(append([]byte(nil), make([]byte, size)...))) }

// The document has the size of each structure, and the size of its block on the heap.
func TestStatedSizes(t *testing.T) {
	sizes := map[string]uintptr{
		"Import": unsafe.Sizeof(Import{}), "Service": unsafe.Sizeof(Service{}), "Slice": unsafe.Sizeof(Slice{}),
		"endpoints": unsafe.Sizeof(endpoints{}), "cluster": unsafe.Sizeof(cluster{}), "group": unsafe.Sizeof(group{}),
		"portRecords": unsafe.Sizeof(portRecords{}), "run": unsafe.Sizeof(run{}), "family": unsafe.Sizeof(family{}),
		"pick": unsafe.Sizeof(pick{}), "node": unsafe.Sizeof(node[*Service]{}), "namespace": unsafe.Sizeof(namespace{}),
	}
	stated := statedSizes(t)
	for name, size := range sizes {
		if got, want := stated[name], [2]uintptr{size, block(size)}; got != want {
			t.Errorf("%s states %d and %d octets for index.%s, want %d and %d", performance, got[0], got[1], name, want[0],
				want[1])
		}
	}
	for name := range stated {
		if _, ok := sizes[name]; !ok {
			t.Errorf("%s states a size for index.%s, which is not checked", performance, name)
		}
	}
}

// heapAfter returns the octets of the heap that the result of build takes.
func heapAfter(build func() any) float64 {
	read := func() uint64 {
		// Memory of pools and finalizers survives the first collections.
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := read()
	kept := build()
	after := read()
	runtime.KeepAlive(kept)
	return float64(after) - float64(before)
}

// synthesize builds so many services: Headless ones with so many endpoints in each of three clusters, or, with 0, those
// with a VIP. It returns the index alone, or with the slices that a server keeps too.
func synthesize(services, endpoints int, withSlices bool) any {
	edit, all := new(Index).Edit(), [][]*Slice{}
	ports := NewPorts([]Port{{"http", TCP, 80}})
	addr := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}) }
	for s := range services {
		spec := ImportSpec{Namespace: "shop", Name: fmt.Sprintf("svc-%05d", s), Type: Headless, Ports: ports}
		if endpoints == 0 {
			spec.Type, spec.IPs = ClusterSetIP, []netip.Addr{addr(s)}
		}
		var list []*Slice
		for c, cluster := range []string{"east", "north", "west"} {
			slice := SliceSpec{Cluster: cluster, Ports: ports}
			for e := range endpoints {
				slice.Endpoints = append(slice.Endpoints, Endpoint{Host: fmt.Sprintf("pod-%02d", e),
					Addrs: []netip.Addr{addr(s*300 + c*100 + e)}})
			}
			if endpoints > 0 {
				list = append(list, NewSlice(slice))
			}
		}
		edit.Put(Build(NewImport(spec), list, Options{ClusterNames: true}))
		if withSlices {
			all = append(all, list)
		}
	}
	return []any{edit.Index(), all}
}

// A service with a VIP takes the memory that the document lists: the import, its name and its address, the service and
// its place in the trie. The hash of the trie has a random seed, so its size differs from run to run.
func TestHeapPerService(t *testing.T) {
	const services = 50_000
	each := heapAfter(func() any { return synthesize(services, 0, false) }) / services
	name, address := block(uintptr(len("svc-00000.shop"))), uintptr(16)
	want := float64(block(unsafe.Sizeof(Import{})) + name + address + block(unsafe.Sizeof(Service{})) + statedTrie)
	if each > 1.05*want || each < 0.9*want {
		t.Errorf("a service with a VIP takes %.1f octets in the index, want about %.0f", each, want)
	}
}

// statedTrie is the mean number of octets of an entry in a trie of 50,000.
const statedTrie = 36

func TestStatedTrie(t *testing.T) {
	text, err := os.ReadFile(performance)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("about %d octets for each service", statedTrie); !strings.Contains(string(text), want) {
		t.Errorf("%s does not say %q", performance, want)
	}
}

// An endpoint takes the memory that the document lists: 8 octets and its label in the index, 7 octets and its label in
// the slice. A block on the heap is larger than its content by up to an eighth.
func TestHeapPerEndpoint(t *testing.T) {
	const services, few, many = 500, 30, 90
	const label, addr, end, lengths = uintptr(len("pod-00")), 4, 4, 3
	// octets of a service with so many endpoints in each of three clusters
	inIndex := func(n uintptr) uintptr { return block(3*n*label) + block(3*n*end) + block(3*n*addr) }
	inSlices := func(n uintptr) uintptr { return 3 * block(n*(lengths+label+addr)) }
	for _, tt := range []struct {
		name       string
		withSlices bool
		want       uintptr // of the further endpoints of one service
	}{
		{"index", false, inIndex(many) - inIndex(few)},
		{"index and slices", true, inIndex(many) - inIndex(few) + inSlices(many) - inSlices(few)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			small := heapAfter(func() any { return synthesize(services, few, tt.withSlices) })
			large := heapAfter(func() any { return synthesize(services, many, tt.withSlices) })
			const endpoints = 3 * (many - few)
			each, want := (large-small)/(services*endpoints), float64(tt.want)/endpoints
			if each > 1.02*want || each < 0.98*want {
				t.Errorf("an endpoint takes %.2f octets, want %.2f", each, want)
			}
		})
	}
}
