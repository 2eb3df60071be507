package index

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// A Reverse that follows changes is the one that is made anew, and those from before stay as they were.
func TestReverseFollows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, reverse := new(Index), new(Reverse)
	type pair struct {
		*Reverse
		text map[string][]string
	}
	var before []pair
	for range 200 {
		edit := x.Edit()
		var changes []Replacement
		for range 1 + r.IntN(3) {
			s, key := randomService(r)
			old := edit.next.Service(key)
			if s == nil {
				edit.Remove(key)
			} else {
				edit.Put(s)
			}
			changes = append(changes, Replacement{Old: old, New: s})
		}
		x = edit.Index()
		reverse = reverse.With(changes)
		got := services(reverse)
		if want := services(NewReverse(x)); !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("after %d changes: %v, want %v", len(before)+1, got, want)
		}
		before = append(before, pair{reverse, got})
	}
	for i, p := range before {
		if got := services(p.Reverse); !maps.EqualFunc(got, p.text, slices.Equal) {
			t.Errorf("the one after change %d changed: %v, was %v", i+1, got, p.text)
		}
	}
}

// randomService is a service, or nil, and its key. Pools are small, so that services share addresses.
func randomService(r *rand.Rand) (*Service, string) {
	spec := ImportSpec{Namespace: "shop", Name: string(rune('a' + r.IntN(5))), Type: Headless}
	key := spec.Name + ".shop"
	if r.IntN(4) == 0 {
		return nil, key
	}
	pool := append(addrs("10.0.0.1", "10.0.0.2", "10.0.0.3"), addrs("fd00::1", "fd00::2")...)
	if r.IntN(2) == 0 {
		spec.Type, spec.VIP, spec.IPs = ClusterSetIP, true, pool[r.IntN(len(pool)):][:1]
	}
	var list []*Slice
	for _, cluster := range []string{"east", "west"} {
		sl := SliceSpec{Cluster: cluster, Family: V4, Ports: Ports{}}
		for range r.IntN(4) {
			sl.Endpoints = append(sl.Endpoints, Endpoint{Addrs: pool[r.IntN(3):][:1]})
		}
		list = append(list, NewSlice(sl))
	}
	return Build(NewImport(spec), list, Options{}), key
}

func services(r *Reverse) map[string][]string {
	all := map[string][]string{}
	r.addresses.each(func(o *owners) { all[o.address] = slices.Collect(r.Services(o.address)) })
	return all
}
