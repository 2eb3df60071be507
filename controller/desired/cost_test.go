package desired

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/allocs"
)

// reconciled is what a reconcile works out when nothing changed: the merge of n members that export the same service,
// what follows from it, and that there is nothing to write.
func reconciled(tb testing.TB, n int) func() {
	var records []merge.Record
	var sources []Source
	for i := range n {
		id := fmt.Sprintf("member-%03d", i)
		records = append(records, record(id, i%24))
		from := slice(id, "db-1", discoveryv1.AddressTypeIPv4)
		from.Ports = source([]string{"http"}).Ports
		for e := range 10 {
			from.Endpoints = append(from.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.0.%d", i, e)}})
		}
		of := sourceOf(from)
		of.Cluster = id
		sources = append(sources, of)
	}
	cluster := ImportingCluster{Sources: sources, Families: []corev1.IPFamily{v4}, ClusterIPs: []string{"10.96.0.9"}}
	var existing Objects
	work := func() Changes {
		desired, _ := ObjectsOf(merge.Merge(shop, records, merge.Options{}), cluster)
		return Diff(desired, existing)
	}
	existing.apply(work())
	for _, s := range existing.Slices {
		own(s)
	}
	own(existing.Import)
	existing.Import.UID = "uid-1"
	own(existing.Service)
	existing.Service.Spec.ClusterIP, existing.Service.Spec.ClusterIPs = "10.96.0.9", []string{"10.96.0.9"}
	return func() {
		if c := work(); !c.Empty() {
			tb.Fatalf("changes %+v, want none", c)
		}
	}
}

// The work of a reconcile grows with the members that export the service, not with their square.
func TestAllocationsAreLinear(t *testing.T) {
	of := func(members int) float64 { return allocs.PerRun(10, reconciled(t, members)) }
	ten, hundred := of(10), of(100)
	t.Logf("%.0f allocations with 10 members, %.0f with 100", ten, hundred)
	if hundred > 11*ten {
		t.Errorf("%.0f allocations with 100 members and %.0f with 10, want at most eleven times as many", hundred, ten)
	}
	// For each member its slice with endpoints and ports as it is to be, and what that is compared by.
	const most = 100
	if hundred > 100*most {
		t.Errorf("%.0f allocations a member, want at most %d", hundred/100, most)
	}
}

// BenchmarkReconcile works out that nothing is to be written.
func BenchmarkReconcile(b *testing.B) {
	for _, members := range []int{3, 100} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			work := reconciled(b, members)
			b.ReportAllocs()
			for b.Loop() {
				work()
			}
		})
	}
}

// BenchmarkSlices reads 20,000 slices of one member and service: of one endpoint each, and with an address that is
// rejected.
func BenchmarkSlices(b *testing.B) {
	for _, bad := range []bool{false, true} {
		address := "10.1.0.1"
		if bad {
			address = "10.96.0.1"
		}
		var all []*discoveryv1.EndpointSlice
		for i := range 20_000 {
			s := source([]string{"http"}, address)
			s.Name = broker.SliceName(shop.Namespace, shop.Name, fmt.Sprintf("db-%d", i))
			all = append(all, s)
		}
		r := merge.Merge(shop, []merge.Record{record("b", 1)}, merge.Options{})
		b.Run(fmt.Sprintf("rejected=%t", bad), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				imported, rejected := Slices(r, sourceOf(all...))
				if len(imported)+len(rejected) != len(all) {
					b.Fatalf("%d imported and %d rejected, want %d", len(imported), len(rejected), len(all))
				}
			}
		})
	}
}
