package faults

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// A fakeMember is a member on the broker without a cluster: the test writes what its controller would.
type fakeMember struct {
	t             testing.TB
	id, namespace string
	join, export  func() // again
}

// newFakeMember joins a member that exports a service with one endpoint. It is removed with the test. uid is the end of the UID of its kube-system,
// two hex digits.
func newFakeMember(t testing.TB, id, uid, namespace, name, address string) fakeMember {
	t.Helper()
	g := fakeMember{t: t, id: id, namespace: broker.NamespaceName(admin.DefaultPrefix, id)}
	admission := admin.Admission{ClusterID: id, Quota: admin.DefaultQuota(), Spec: v1alpha1.MemberSpec{
		KubeSystemUID: "01234567-89ab-cdef-0123-456789abcd" + uid, Namespace: g.namespace, PodCIDRs: []string{"10.30.0.0/16"},
	}}
	objects := slices.DeleteFunc(admission.Objects(), func(o runtime.Object) bool {
		return o.GetObjectKind().GroupVersionKind().Kind == "ValidatingAdmissionPolicyBinding" // see dropParameters
	})
	g.join = func() {
		t.Helper()
		if err := clusters.Broker.Apply(t.Context(), objects...); err != nil {
			t.Fatal(err)
		}
	}
	g.join()
	t.Cleanup(func() {
		if err := clusters.Broker.Delete(context.WithoutCancel(t.Context()), objects...); err != nil {
			t.Error(err)
		}
	})
	meta := func(object string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: g.namespace, Name: object, Labels: map[string]string{
			mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: id, broker.LabelSourceNamespace: namespace,
		}}
	}
	// The record before its slice, which a member does not do: what reads them has two watches, and may see them in this order anyway.
	g.export = func() {
		t.Helper()
		if err := clusters.Broker.Apply(t.Context(), &v1alpha1.ExportedService{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExportedService"},
			ObjectMeta: meta(broker.RecordName(namespace, name)),
			Spec: v1alpha1.ExportedServiceSpec{
				Namespace: namespace, Name: name, Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
				Ports:         []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
				ExportCreated: metav1.Now().Rfc3339Copy(),
			},
		}, &discoveryv1.EndpointSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: meta(broker.SliceName(namespace, name, "source")), AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			}},
			Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	g.export()
	return g
}

// heartbeat renews a heartbeat once, with any time.
func heartbeat(ctx context.Context, namespace, id string, at time.Time) error {
	renewed := metav1.NewMicroTime(at)
	return clusters.Broker.Apply(ctx, &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: broker.HeartbeatName, Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &id, RenewTime: &renewed},
	})
}

// heartbeats renews the heartbeat of a member until the returned function is called. clock returns the time of the n-th renewal.
func heartbeats(t testing.TB, namespace, id string, clock func(n int) time.Time) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if err := heartbeat(ctx, namespace, id, clock(n)); err != nil && ctx.Err() == nil {
				t.Errorf("heartbeat of %s: %v", id, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(renew):
			}
		}
	})
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func rightClock(int) time.Time { return time.Now() }

// The heartbeats of all members but one stop at once, which is more likely a fault of the broker. No member expires, a metric says so, and
// own endpoints stay up to date meanwhile (docs/spec/controller.md 8).
func TestAllExpireAtOnce(t *testing.T) {
	const ns = "mass"
	export(t, east, ns, "web", "10.21.0.1")
	west.Put(t, testclusterset.Namespace(ns))
	e, w := run(t, east), run(t, west)
	ids := []string{"fake-a", "fake-b", "fake-c"}
	var stops []func()
	var fakes []fakeMember
	for i, id := range ids {
		g := newFakeMember(t, id, "e"+string(rune('0'+i)), ns, "web", "10.30.0.1"+string(rune('0'+i)))
		fakes = append(fakes, g)
		stops = append(stops, heartbeats(t, g.namespace, id, rightClock))
	}
	const all = "10.21.0.1 10.30.0.10 10.30.0.11 10.30.0.12"
	awaitImport(t, west, ns, "web", all)
	awaitImport(t, east, ns, "web", all)
	for _, id := range append(ids, "west") {
		e.awaitHeartbeat(id)
	}
	check := undisturbed(t, east, ns)
	for _, stop := range stops {
		stop()
	}
	w.stop()
	e.awaitMetric("frozen", "mass_expiry", 1)
	for _, id := range ids {
		e.awaitSilence(id)
	}
	serve(t, east, ns, "web", "10.21.0.2")
	const changed = "10.21.0.2 10.30.0.10 10.30.0.11 10.30.0.12"
	awaitImport(t, east, ns, "web", changed)
	e.awaitMetric("frozen", "mass_expiry", 1)

	for _, g := range fakes {
		heartbeats(t, g.namespace, g.id, rightClock)
	}
	e.awaitMetric("frozen", "mass_expiry", 0)
	awaitImport(t, east, ns, "web", changed)
	check()
}

// The clocks of members are an hour off, or jump: a heartbeat counts when it changes, whatever time it contains. A heartbeat that does
// not change does not count, even if its time is an hour in the future (docs/spec/controller.md 8).
func TestClockIsWrong(t *testing.T) {
	const ns = "clock"
	west.Put(t, testclusterset.Namespace(ns))
	run(t, east) // so that its heartbeat does not stop, too
	w := run(t, west)
	clocks := map[string]func(n int) time.Time{
		"behind": func(int) time.Time { return time.Now().Add(-time.Hour) },
		"jumps":  func(n int) time.Time { return time.Now().Add([]time.Duration{time.Hour, -time.Hour}[n%2]) },
	}
	var stops []func()
	for i, id := range []string{"behind", "jumps"} {
		g := newFakeMember(t, id, "d"+string(rune('0'+i)), ns, "web", "10.30.0.2"+string(rune('0'+i)))
		stops = append(stops, heartbeats(t, g.namespace, id, clocks[id]))
	}
	stuck := newFakeMember(t, "stuck", "d9", ns, "web", "10.30.0.29")
	stop := heartbeats(t, stuck.namespace, stuck.id, func(int) time.Time { return time.Now().Add(time.Hour) })
	awaitImport(t, west, ns, "web", "10.30.0.20 10.30.0.21 10.30.0.29")
	stop()
	// The time in which one expires is enough for the others.
	awaitImport(t, west, ns, "web", "10.30.0.20 10.30.0.21")
	stops[0]()
	awaitImport(t, west, ns, "web", "10.30.0.21")
	w.awaitMetric("frozen", "mass_expiry", 0)
}
