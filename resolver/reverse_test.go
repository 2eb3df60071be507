package resolver_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/test/harness/allocs"

	"github.com/miekg/dns"
)

// pointersAreConfirmed checks that reverse names point to names that have the address, and that each name which a
// reverse name can point to is found by its address.
func pointersAreConfirmed(t *testing.T, objs objects) {
	x := newIndex(objs)
	r := index.NewReverse(x)
	o := objs.serve
	want := map[string][]string{}
	for a := range resolver.RRsets(x, &o) {
		for i := range a.Addresses.Len() {
			address := a.Addresses.At(i)
			if _, ok := want[address]; !ok {
				want[address] = nil
			}
			if isPointedTo(&a.Name, address) && (a.Name.Kind == resolver.Service || o.LocalCluster != "" &&
				a.Name.ClusterID() != o.LocalCluster) {
				want[address] = append(want[address], string(a.Name.AppendName(nil)))
			}
		}
	}
	for address, names := range want {
		var got []string
		for _, n := range resolver.Pointers(x, r, address, &o) {
			got = append(got, string(n.AppendName(nil)))
		}
		slices.Sort(got)
		slices.Sort(names)
		if ip, _ := netip.AddrFromSlice([]byte(address)); !slices.Equal(got, names) {
			t.Errorf("%s points to %q, want %q", ip, got, names)
		}
	}
}

// isPointedTo reports whether the reverse name of one of its addresses points to n: the host if there is one, else the
// cluster, and the service only by a virtual IP.
func isPointedTo(n *resolver.Name, address string) bool {
	switch n.Kind {
	case resolver.Service:
		return n.Service.HasVIP()
	case resolver.Host:
		return true
	case resolver.Cluster:
		for host := range n.Service.HostsWith(address) {
			c := n.Service.ClusterOf(host)
			if n.Service.ClusterID(c) == n.ClusterID() && !n.Service.HostNamed(host) {
				return true
			}
		}
	}
	return false
}

func TestPointersAreConfirmed(t *testing.T) { eachCase(t, pointersAreConfirmed) }

func FuzzPointersAreConfirmed(f *testing.F) {
	f.Add(randomEntropy(1662, 202)) // a cluster with the name of a host in another
	fuzz(f, pointersAreConfirmed)
}

// TestPointersAreBounded: an address that a hostile member exports often gets no long answer, and the first names in
// order.
func TestPointersAreBounded(t *testing.T) {
	edit := new(index.Index).Edit()
	for i := range 100 {
		imp := importObject{name: fmt.Sprintf("db-%d", i), namespace: "shop", typ: index.Headless, slices: []sliceObject{{
			cluster: "west", endpoints: []index.Endpoint{{Host: "a", Addrs: pool4[:1]}},
		}}}
		packed, list := imp.pack()
		edit.Put(index.Build(packed, list, index.Options{}))
	}
	x := edit.Index()
	got := resolver.Pointers(x, index.NewReverse(x), "\x0a\x00\x00\x01",
		&resolver.Options{ClusterNames: true, LocalCluster: "east"})
	if len(got) != 16 {
		t.Fatalf("%d names, want 16", len(got))
	}
	if many := resolver.Pointers(hostsAt(20_000), index.NewReverse(hostsAt(20_000)), "\x0a\x00\x00\x01",
		&resolver.Options{LocalCluster: "east"}); len(many) != 16 {
		t.Errorf("%d names of one service, want 16", len(many))
	}
	few, more := allocations(hostsAt(100)), allocations(hostsAt(20_000))
	if more > few {
		t.Errorf("%v allocations for 20,000 hosts with one address, want those for 100: %v", more, few)
	}
	a := resolver.Answer{Name: got[0]}
	if a.Ask(&resolver.Question{Type: dns.TypeA}, &resolver.Options{ClusterNames: true,
		LocalCluster: "east"}); a.Addresses.Len() != 1 {
		t.Errorf("the first name has %d addresses, want 1", a.Addresses.Len())
	}
}

// hostsAt is an index of one service with one address for all hosts.
func hostsAt(n int) *index.Index {
	sl := sliceObject{cluster: "west"}
	for i := range n {
		sl.endpoints = append(sl.endpoints, index.Endpoint{Host: fmt.Sprintf("h%d", i), Addrs: pool4[:1]})
	}
	return newIndex(objects{imports: []importObject{{name: "db", namespace: "shop", typ: index.Headless,
		slices: []sliceObject{sl}}}})
}

// allocations is how often a PTR question allocates.
func allocations(x *index.Index) float64 {
	r := index.NewReverse(x)
	return allocs.PerRun(10, func() {
		resolver.Pointers(x, r, "\x0a\x00\x00\x01",
			&resolver.Options{LocalCluster: "east"})
	})
}
