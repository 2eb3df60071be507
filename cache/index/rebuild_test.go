package index

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// A Rebuild after any change is the Build of the same slices, whatever hosts, clusters, groups and families they share.
func TestRebuildIsBuild(t *testing.T) {
	r, copied := rand.New(rand.NewPCG(1, 2)), 0
	for run := range 400 {
		g := newRebuilds(r)
		imp, list := g.imp(), g.slices(12)
		old := Build(imp, list, g.options)
		for step := range 10 {
			if remember(old, list, g.options) && r.IntN(4) > 0 {
				list = g.change(list)
			} else {
				imp = g.imp()
			}
			if old != nil && old.eps != nil && old.eps.changedLabels(originOf(imp, list, g.options)) != nil {
				copied++
			}
			got, want := Rebuild(old, imp, list, g.options), Build(imp, list, g.options)
			if got != nil && got.eps != nil {
				got.eps.from = nil
			}
			if !Equal(got, want) || got.digest() != want.digest() || !reflect.DeepEqual(got, want) {
				t.Fatalf("run %d, step %d: rebuilt to\n%+v, want\n%+v", run, step, got.eps, want.eps)
			}
			old = got
		}
	}
	if copied < 1000 {
		t.Errorf("hosts were copied %d times, want at least 1,000", copied)
	}
}

// Of a large service only the hosts that changed are built anew.
func TestRebuildOfLarge(t *testing.T) {
	imp, list := synthetic(2, largeService/2, false)
	old := Build(imp, list, Options{ClusterNames: true})
	spec := list[0].Spec()
	gone := spec.Endpoints[7].Addrs[0].AsSlice()
	spec.Endpoints[7].Addrs = addrs("192.0.2.1")
	list = append([]*Slice{NewSlice(spec)}, list[1:]...)
	in := origin{list: list, options: Options{ClusterNames: true}}
	want := labels{"cluster-0": {"192-0-2-1": true, AddressLabel(string(gone)): true}}
	if changed := old.eps.changedLabels(&in); !reflect.DeepEqual(changed, want) {
		t.Errorf("changed hosts: %v, want %v", changed, want)
	}
	if got := Rebuild(old, imp, list, Options{ClusterNames: true}); !Equal(got,
		Build(imp, list, Options{ClusterNames: true})) || got.eps.from == nil {
		t.Errorf("rebuilt to %+v", got.eps)
	}
}

// originOf is the origin of a service that is built so.
func originOf(imp *Import, list []*Slice, o Options) *origin {
	in := &origin{rest: unselectedClusters(imp, list), options: o}
	if in.list = slicesInUse(list, in.rest, &o); len(o.MaxNames) > 0 {
		in.maxName = o.MaxNames[0]
	}
	return in
}

// remember makes a service keep its origin, as a large one does. It reports whether there is one.
func remember(s *Service, list []*Slice, o Options) bool {
	if s == nil || s.eps == nil {
		return false
	}
	s.eps.from = originOf(s.Import, list, o)
	return true
}

// A rebuilds makes random imports and slices. Pools are small, so that slices share labels and addresses.
type rebuilds struct {
	*rand.Rand
	typ               Type
	hosts, clusterIDs []string
	zones             []string
	addresses         []netip.Addr
	ports             []Ports
	options           Options
}

func newRebuilds(r *rand.Rand) *rebuilds {
	g := &rebuilds{
		Rand: r, typ: Type(1 + r.IntN(2)), clusterIDs: []string{"east", "north", "west"}, zones: []string{""},
		addresses: addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.10", "fd00::1", "fd00::2", "::2:3"),
		ports:     []Ports{{}, NewPorts([]Port{{"http", TCP, 80}}), NewPorts([]Port{{"http", TCP, 81}, {"dns", UDP, 53}})},
		options:   Options{ClusterNames: true},
	}
	for i := range 40 {
		g.addresses = append(g.addresses, netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}))
	}
	if g.hosts = []string{""}; r.IntN(2) == 0 {
		g.hosts = []string{"", "db-0", "db-1", "db-10", "db-2", "10-0-0-1", "0--2-3", "a-long-hostname"}
	}
	if r.IntN(4) == 0 {
		g.zones, g.options.Zone = []string{"", "here", "there"}, "here"
	}
	if r.IntN(4) == 0 {
		g.options.MaxNames = [][]int{{200}, {200, 25}, {25, 24}, {25}}[r.IntN(4)]
	}
	if r.IntN(8) == 0 {
		g.clusterIDs = append(g.clusterIDs, "")
	}
	return g
}

func pickOf[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func (g *rebuilds) imp() *Import {
	spec := ImportSpec{Namespace: "shop", Name: "db", Type: g.typ, VIP: g.IntN(2) == 0, Ports: pickOf(g.Rand, g.ports)}
	if g.IntN(2) == 0 {
		spec.Weights = []Weight{{"west", 3}}
	}
	return NewImport(spec)
}

func (g *rebuilds) slices(n int) (list []*Slice) {
	hidden := pickOf(g.Rand, g.clusterIDs)
	for range n {
		spec := SliceSpec{Cluster: pickOf(g.Rand, g.clusterIDs), Zone: pickOf(g.Rand, g.zones),
			Family: Family(g.IntN(3) / 2), Ports: pickOf(g.Rand, g.ports)}
		spec.Hidden = spec.Cluster == hidden && g.IntN(8) > 0
		for range 1 + g.IntN(4) {
			ep := Endpoint{Host: pickOf(g.Rand, g.hosts)}
			for range 1 + g.IntN(5)/4 {
				if addr := pickOf(g.Rand, g.addresses); addr.Is6() == (spec.Family == V6) {
					ep.Addrs = append(ep.Addrs, addr)
				}
			}
			spec.Endpoints = append(spec.Endpoints, ep)
		}
		list = append(list, NewSlice(spec))
	}
	return list
}

// change replaces, removes or adds a slice, or changes one endpoint of a slice.
func (g *rebuilds) change(list []*Slice) []*Slice {
	list, at := slices.Clone(list), g.IntN(len(list))
	switch g.IntN(4) {
	case 0:
		return append(list, g.slices(1)...)
	case 1:
		if len(list) > 1 {
			return slices.Delete(list, at, at+1)
		}
	case 2:
		spec := list[at].Spec()
		if spec.Endpoints = append(spec.Endpoints, list[g.IntN(len(list))].Spec().Endpoints...); list[at].family == V4 {
			spec.Endpoints = slices.DeleteFunc(spec.Endpoints, func(ep Endpoint) bool { return ep.Addrs[0].Is6() })
		} else {
			spec.Endpoints = slices.DeleteFunc(spec.Endpoints, func(ep Endpoint) bool { return ep.Addrs[0].Is4() })
		}
		list[at] = NewSlice(spec)
		return list
	}
	list[at] = g.slices(1)[0]
	return list
}
