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

// A ghost is a member whose controller is the test.
type ghost struct {
	t             testing.TB
	id, namespace string
}

// haunt makes a member that exports a service with one endpoint. It is gone when the test ends. uid is the end of the UID of its
// kube-system, two hex digits.
func haunt(t testing.TB, id, uid, namespace, name, address string) ghost {
	t.Helper()
	g := ghost{t, id, broker.NamespaceName(admin.DefaultPrefix, id)}
	admission := admin.Admission{ClusterID: id, Quota: admin.DefaultQuota(), Spec: v1alpha1.MemberSpec{
		KubeSystemUID: "01234567-89ab-cdef-0123-456789abcd" + uid, Namespace: g.namespace, PodCIDRs: []string{"10.30.0.0/16"},
	}}
	objects := slices.DeleteFunc(admission.Objects(), func(o runtime.Object) bool {
		return o.GetObjectKind().GroupVersionKind().Kind == "ValidatingAdmissionPolicyBinding" // see dropParameters
	})
	if err := clusters.Broker.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
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
	return g
}

// beat renews a heartbeat once, with a time that need not be true.
func beat(ctx context.Context, namespace, id string, at time.Time) error {
	renewed := metav1.NewMicroTime(at)
	return clusters.Broker.Apply(ctx, &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: broker.HeartbeatName, Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &id, RenewTime: &renewed},
	})
}

// beats renews the heartbeat of a member until the returned function is called. clock says what time the n-th is to have.
func beats(t testing.TB, namespace, id string, clock func(n int) time.Time) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if err := beat(ctx, namespace, id, clock(n)); err != nil && ctx.Err() == nil {
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

func trueClock(int) time.Time { return time.Now() }

// All members but one fall silent at once: that is the broker's fault more likely than theirs. Nothing expires, which is told,
// and own endpoints stay true meanwhile (section 8).
func TestAllExpireAtOnce(t *testing.T) {
	const ns = "mass"
	export(t, east, ns, "web", "10.21.0.1")
	west.Put(t, testclusterset.Namespace(ns))
	e, w := run(t, east), run(t, west)
	ids := []string{"ghost-a", "ghost-b", "ghost-c"}
	var stops []func()
	var ghosts []ghost
	for i, id := range ids {
		g := haunt(t, id, "e"+string(rune('0'+i)), ns, "web", "10.30.0.1"+string(rune('0'+i)))
		ghosts = append(ghosts, g)
		stops = append(stops, beats(t, g.namespace, id, trueClock))
	}
	const all = "10.21.0.1 10.30.0.10 10.30.0.11 10.30.0.12"
	sees(t, west, ns, "web", all)
	sees(t, east, ns, "web", all)
	for _, id := range append(ids, "west") {
		e.hears(id)
	}
	check := undisturbed(t, east, ns)
	for _, stop := range stops {
		stop()
	}
	w.stop()
	e.shows("frozen", "mass_expiry", 1)
	for _, id := range ids {
		e.silent(id)
	}
	serve(t, east, ns, "web", "10.21.0.2")
	const changed = "10.21.0.2 10.30.0.10 10.30.0.11 10.30.0.12"
	sees(t, east, ns, "web", changed)
	e.shows("frozen", "mass_expiry", 1)

	for _, g := range ghosts {
		beats(t, g.namespace, g.id, trueClock)
	}
	e.shows("frozen", "mass_expiry", 0)
	sees(t, east, ns, "web", changed)
	check()
}

// A clock that is an hour off, or that jumps, makes no difference: a heartbeat that changes is one, whatever it says. One that
// no longer changes is none, be it an hour in the future (section 8).
func TestClockIsWrong(t *testing.T) {
	const ns = "clock"
	west.Put(t, testclusterset.Namespace(ns))
	run(t, east) // lest it is one more that falls silent
	w := run(t, west)
	clocks := map[string]func(n int) time.Time{
		"behind": func(int) time.Time { return time.Now().Add(-time.Hour) },
		"jumps":  func(n int) time.Time { return time.Now().Add([]time.Duration{time.Hour, -time.Hour}[n%2]) },
	}
	var stops []func()
	for i, id := range []string{"behind", "jumps"} {
		g := haunt(t, id, "d"+string(rune('0'+i)), ns, "web", "10.30.0.2"+string(rune('0'+i)))
		stops = append(stops, beats(t, g.namespace, id, clocks[id]))
	}
	stuck := haunt(t, "stuck", "d9", ns, "web", "10.30.0.29")
	stop := beats(t, stuck.namespace, stuck.id, func(int) time.Time { return time.Now().Add(time.Hour) })
	sees(t, west, ns, "web", "10.30.0.20 10.30.0.21 10.30.0.29")
	stop()
	// That one expires shows that the others do not.
	sees(t, west, ns, "web", "10.30.0.20 10.30.0.21")
	stops[0]()
	sees(t, west, ns, "web", "10.30.0.21")
	w.shows("frozen", "mass_expiry", 0)
}
