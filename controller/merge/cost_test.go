package merge

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/allocs"
)

// claimed is the merge of n members that claim one address. A claim counts only if the address is in a VIP CIDR of its
// member.
func claimed(n int) func() {
	o := Options{VIP: CIDR}
	var records []Record
	for i := range n {
		id := fmt.Sprintf("member-%04d", i)
		records = append(records, record(id, i%24, vip(true)))
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{243, byte(i >> 8), byte(i), 0}), 24)
		o.VIPs.Pools = append(o.VIPs.Pools, Pool{Cluster: id, Prefix: prefix})
		o.VIPs.Claims = append(o.VIPs.Claims, exporting(1, claims(id+" 243.0.0.1 1"))...)
	}
	return func() { Merge(shop, records, o) }
}

// The work of a merge grows with the members that claim an address, not with their square.
func TestAllocationsAreLinear(t *testing.T) {
	if n, times4 := allocs.PerRun(10, claimed(10)), allocs.PerRun(10, claimed(40)); times4 > 5*n {
		t.Errorf("%.0f allocations with 40 members that claim one address and %.0f with 10, want at most five times as many",
			times4, n)
	}
}

// BenchmarkClaims merges members that claim one address.
func BenchmarkClaims(b *testing.B) {
	for _, members := range []int{250, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			work := claimed(members)
			b.ReportAllocs()
			for b.Loop() {
				work()
			}
		})
	}
}
