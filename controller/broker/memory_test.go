package broker

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A member that fills its default quota with the largest slices and records that the broker admits takes less than nine
// tenths of the memory that deploy/controller gives the controllers of all others (docs/spec/controller.md 9.6), also
// under the race detector, which adds a sixth.
func TestFullQuotaFitsMemory(t *testing.T) {
	const limit = 1 << 30
	quota := join.DefaultQuota()
	perSlice := octetsStored(t, dropUnusedOfSlice("own"), func(i int) any { return largestSlice(t, i) })
	perRecord := octetsStored(t, dropUnused, func(i int) any { return largestRecord(t, i) })
	slices, records := perSlice*quota.Slices, perRecord*quota.Exports
	t.Logf("a slice takes %d KB, a record %d KB; %d and %d of them %d and %d MB", perSlice/1000, perRecord/1000,
		quota.Slices, quota.Exports,
		slices/1e6, records/1e6)
	if slices+records > limit*9/10 {
		t.Errorf("a full quota takes %d MB, want at most nine tenths of %d MiB", (slices+records)/1e6, limit>>20)
	}
}

// Own slices stay complete: exports are compared with them. In slices of others, endpoints of one zone share its name.
func TestSlicesAreShrunk(t *testing.T) {
	for own, want := range map[string]string{"member": "1001 names, protocols true",
		"another": "100 names, protocols false"} {
		o := largestSlice(t, 0)
		o.Endpoints = append(o.Endpoints, *o.Endpoints[0].DeepCopy())
		if _, err := dropUnusedOfSlice(own)(o); err != nil {
			t.Fatal(err)
		}
		names := map[*string]bool{}
		for _, e := range o.Endpoints {
			if e.Zone != nil {
				names[e.Zone] = true
			}
		}
		if got := fmt.Sprintf("%d names, protocols %t", len(names), o.Ports[0].AppProtocol != nil); got != want {
			t.Errorf("a slice of member in the controller of %s: %s, want %s", own, got, want)
		}
	}
}

// octetsStored returns what one object takes in the caches.
func octetsStored(t *testing.T, transform cache.TransformFunc, received func(i int) any) int64 {
	t.Helper()
	const sample = 50
	stored := make([]any, 0, sample)
	before := liveHeap()
	for i := range sample {
		o, err := transform(received(i))
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, o)
	}
	each := (liveHeap() - before) / sample
	runtime.KeepAlive(stored)
	return each
}

// label returns a label of the most octets that differs by its numbers.
func label(numbers ...any) string {
	text := strings.ReplaceAll(fmt.Sprintln(numbers...), " ", "-")
	return strings.Repeat("x", 64-len(text)) + strings.TrimSpace(text)
}

// domain returns the longest prefix of a qualified name.
func domain() string {
	return strings.Join([]string{label(1), label(2), label(3), label(4)[:61]}, ".") + "/"
}

// largestSlice returns a slice as it is decoded from what a broker sends.
func largestSlice(t *testing.T, i int) *discoveryv1.EndpointSlice {
	t.Helper()
	o := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "member", Name: fmt.Sprint("slice-", i)},
		AddressType: discoveryv1.AddressTypeIPv6,
	}
	for j := range broker.MaxEndpoints {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("fd00:1000:1000:1000:1000:1000:%04x:%04x", 0x1000+i, 0x1000+j)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			Hostname:   new(label("host", j)), Zone: new(label("zone", j)),
		})
	}
	for j := range broker.MaxPorts {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{
			Name: new(label("port", j)), Port: new(int32(j)), Protocol: new(corev1.ProtocolTCP),
			AppProtocol: new(domain() + label("protocol", j)),
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

// largestRecord returns a record as it is decoded from what a broker sends.
func largestRecord(t *testing.T, i int) *v1alpha1.ExportedService {
	t.Helper()
	name := label("service", i)
	spec := v1alpha1.ExportedServiceSpec{Namespace: "shop", Name: name, ClusterSelectors: largestSelectors(),
		ToClusters: largestSelectors()}
	for j := range broker.MaxPorts {
		spec.Ports = append(spec.Ports, v1alpha1.ServicePort{
			Name: label("port", j), Protocol: corev1.ProtocolTCP, AppProtocol: new(domain() + label("protocol", j)),
			Port: int32(j),
		})
	}
	for j := range broker.MaxMetadata {
		spec.Labels = append(spec.Labels, v1alpha1.Label{Key: domain() + label("key", j), Value: label("value", j)})
		key := fmt.Sprint(j)
		spec.Annotations = append(spec.Annotations, v1alpha1.Annotation{Key: key,
			Value: strings.Repeat("x", broker.MaxAnnotations/64-len(key))})
	}
	for j := range broker.MaxSlices {
		spec.Slices = append(spec.Slices, fmt.Sprintf("%016x", j))
	}
	sent, err := json.Marshal(&v1alpha1.ExportedService{ObjectMeta: metav1.ObjectMeta{Namespace: "member",
		Name: name + ".shop"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.ExportedService
	if err := json.Unmarshal(sent, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

// largestSelectors returns as many values as the policy admits, with nearly all characters that the CRD admits.
func largestSelectors() (all []v1alpha1.ClusterSelector) {
	for range broker.MaxSelectors {
		var s v1alpha1.ClusterSelector
		for range broker.MaxRequirements {
			e := v1alpha1.PropertyExpression{Key: "k", Operator: "In"}
			for range broker.MaxValues / broker.MaxSelectors / broker.MaxRequirements {
				e.Values = append(e.Values, strings.Repeat("\U0001d11e",
					(broker.MaxSelectorSize-broker.MaxSelectors*broker.MaxRequirements)/broker.MaxValues))
			}
			s.MatchExpressions = append(s.MatchExpressions, e)
		}
		all = append(all, s)
	}
	return all
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
