package resolver_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"

	"github.com/miekg/dns"
)

// docs/spec/dns.md 3.2: over any minutes each cluster answers as often as its weight says, without long breaks, and A
// and AAAA have the same one.
func TestWeights(t *testing.T) {
	for _, tt := range []struct {
		weights map[string]int
		run     int // the most seconds for which one cluster answers
		gap     int // the most seconds for which one does not
	}{
		{map[string]int{"east": 1, "west": 1}, 2, 3},
		{map[string]int{"east": 3, "west": 1}, 4, 5},
		{map[string]int{"east": 2, "north": 3, "west": 5}, 2, 8},
		{map[string]int{"east": 90, "west": 10}, 12, 13},
		{map[string]int{"east": 1000, "west": 1}, 1596, 1597},
	} {
		total, spec := 0, index.ImportSpec{Namespace: "shop", Name: "web", Type: index.ClusterSetIP}
		var list []*index.Slice
		of := map[string]string{}
		for id, weight := range tt.weights {
			total += weight
			spec.Weights = append(spec.Weights, index.Weight{Cluster: id, Share: uint16(weight)})
			for f, addr := range map[index.Family]string{index.V4: fmt.Sprintf("10.0.0.%d", len(of)+1),
				index.V6: fmt.Sprintf("fd00::%d", len(of)+1)} {
				of[addr] = id
				list = append(list, index.NewSlice(index.SliceSpec{
					Cluster: id, Family: f, Endpoints: []index.Endpoint{{Addrs: []netip.Addr{netip.MustParseAddr(addr)}}},
				}))
			}
		}
		e := new(index.Index).Edit()
		e.Put(index.Build(index.NewImport(spec), list, index.Options{}))
		x := e.Index()
		for _, begin := range []uint64{0, 1 << 40, 1<<64 - 5000, 0x9E3779B97F4A7C15} {
			last, run := "", 0
			count, seen := map[string]int{}, map[string]int{}
			seconds := 20 * total
			for second := range seconds {
				var ids [2]string
				for i, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
					q := resolver.Question{Name: "web.shop.svc", Type: qtype, ClientRotation: begin + uint64(second)}
					a := resolver.Resolve(x, q, &resolver.Options{})
					addr, _ := netip.AddrFromSlice([]byte(a.Addresses.At(0)))
					ids[i] = of[addr.String()]
				}
				if ids[0] != ids[1] {
					t.Fatalf("weights %v: A of %s and AAAA of %s in one second", tt.weights, ids[0], ids[1])
				}
				if run++; ids[0] != last {
					last, run = ids[0], 1
				}
				if before, ok := seen[last]; run > tt.run || ok && second-before > tt.gap {
					t.Fatalf("weights %v: %s answers for %d seconds, after %d seconds, want at most %d and %d",
						tt.weights, last, run, second-before, tt.run, tt.gap)
				}
				seen[last] = second
				count[last]++
			}
			for id, weight := range tt.weights {
				if want := 20 * weight; count[id] < want-2 || count[id] > want+2 {
					t.Errorf("weights %v: %s answers in %d of %d seconds, want some %d", tt.weights, id, count[id], seconds, want)
				}
			}
		}
	}
}
