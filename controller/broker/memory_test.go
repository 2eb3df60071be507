package broker

import (
	"fmt"
	"runtime"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/admin"
)

// A member that fills its default quota with slices of the most endpoints, with usual hostnames and zones, takes less than nine tenths of the
// memory that deploy/controller gives the controllers of all others (docs/spec/controller.md 9.6), also under the race detector, which adds
// a sixth.
func TestFullQuotaFitsMemory(t *testing.T) {
	const endpoints, limit = 1000, 512 << 20
	const sample = 100
	stored := make([]any, 0, sample)
	before := liveHeap()
	for i := range sample {
		o, err := dropUnused(received(t, i, endpoints))
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, o)
	}
	each := (liveHeap() - before) / sample
	runtime.KeepAlive(stored)
	quota := admin.DefaultQuota().Slices
	t.Logf("a slice of %d endpoints takes %d KB; %d of them %d MB", endpoints, each/1000, quota, each*quota/1e6)
	if each*quota > limit*9/10 {
		t.Errorf("the slices of a full quota take %d MB, want at most nine tenths of %d MiB", each*quota/1e6, limit>>20)
	}
}

// received returns a slice as it is decoded from what a broker sends.
func received(t *testing.T, i, endpoints int) *discoveryv1.EndpointSlice {
	t.Helper()
	o := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "member", Name: fmt.Sprint("slice-", i)},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for j := range endpoints {
		host, zone := fmt.Sprint("host-", j), "zone-a"
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", i, j/250, j%250+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			Hostname:   &host, Zone: &zone,
		})
	}
	sent, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var got discoveryv1.EndpointSlice
	if err := got.Unmarshal(sent); err != nil {
		t.Fatal(err)
	}
	return &got
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
