package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	"github.com/clusterset-dns/clusterset/controller/page"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
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
	// The record before its slice, which a member does not do: what reads them has two watches, and may see them in this order anyway.
	g.export = func() {
		t.Helper()
		if err := clusters.Broker.Apply(t.Context(), g.record(namespace, name, 80), &discoveryv1.EndpointSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: g.meta(broker.SliceName(namespace, name, "source"), namespace, name), AddressType: discoveryv1.AddressTypeIPv4,
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

// meta is that of an object of the member for a service.
func (g fakeMember) meta(object, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: g.namespace, Name: object, Labels: map[string]string{
		mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: g.id, broker.LabelSourceNamespace: namespace,
	}}
}

// record is an export record of the member with one port.
func (g fakeMember) record(namespace, name string, port int32) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExportedService"},
		ObjectMeta: g.meta(broker.RecordName(namespace, name), namespace, name),
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: namespace, Name: name, Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:         []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port}},
			ExportCreated: metav1.Now().Rfc3339Copy(),
		},
	}
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
	export(t, east, ns, "clash", "10.21.0.9")
	west.Put(t, testclusterset.Namespace(ns))
	look := &testclusterset.StatusPage{}
	e, w := run(t, east, look.Serve), run(t, west)
	ids := []string{"fake-a", "fake-b", "fake-c"}
	var stops []func()
	var fakes []fakeMember
	for i, id := range ids {
		g := newFakeMember(t, id, "e"+string(rune('0'+i)), ns, "web", "10.30.0.1"+string(rune('0'+i)))
		fakes = append(fakes, g)
		stops = append(stops, heartbeats(t, g.namespace, id, rightClock))
	}
	if err := clusters.Broker.Apply(t.Context(), fakes[0].record(ns, "clash", 81)); err != nil {
		t.Fatal(err)
	}
	const all = "10.21.0.1 10.30.0.10 10.30.0.11 10.30.0.12"
	awaitImport(t, west, ns, "web", all)
	awaitImport(t, east, ns, "web", all)
	for _, id := range append(ids, "west") {
		e.awaitHeartbeat(id)
	}
	looksLive(t, look, append(ids, "west"))
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
	looksFrozen(t, look, ids)

	for _, g := range fakes {
		heartbeats(t, g.namespace, g.id, rightClock)
	}
	e.awaitMetric("frozen", "mass_expiry", 0)
	awaitImport(t, east, ns, "web", changed)
	check()
}

// looksLive waits until the status page shows these members as live, and the conflict (docs/spec/operations.md 8).
func looksLive(t *testing.T, look *testclusterset.StatusPage, ids []string) {
	t.Helper()
	look.Await(t, "live members and a conflict", func(s page.Status, html string) error {
		states := testclusterset.MemberStates(s)
		for _, id := range ids {
			if states[id] != page.Live {
				return fmt.Errorf("%s is %q, want live", id, states[id])
			}
		}
		if !s.Broker.Connected || s.Cluster != "east" || states["east"] != page.Self {
			return errors.New("want east, connected")
		}
		return contains(html, "PortConflict", "mass/clash", "fake-b: 1 of 1 services are imported here")
	})
}

// looksFrozen waits until the status page shows the freeze, and these members as silent and kept.
func looksFrozen(t *testing.T, look *testclusterset.StatusPage, ids []string) {
	t.Helper()
	look.Await(t, "what is frozen", func(s page.Status, html string) error {
		states := testclusterset.MemberStates(s)
		for _, id := range ids {
			if states[id] != page.Silent {
				return fmt.Errorf("%s is %q, want silent", id, states[id])
			}
		}
		if !slices.ContainsFunc(s.Frozen, func(f page.Freeze) bool {
			return f.Reason == "mass_expiry" && !f.Since.IsZero() && !f.Since.After(s.At)
		}) {
			return errors.New("want it frozen for mass_expiry, since before now")
		}
		return contains(html, "went silent at once", "<td>expiry</td>", "PortConflict", "mass/clash")
	})
}

// contains returns an error if a page lacks a part.
func contains(html string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(html, part) {
			return fmt.Errorf("the page lacks %q: %s", part, html)
		}
	}
	return nil
}

// The clocks of members are an hour off, or jump: a heartbeat counts when it changes, whatever time it contains. A heartbeat that does
// not change does not count, even if its time is an hour in the future (docs/spec/controller.md 8).
func TestClockIsWrong(t *testing.T) {
	const ns = "clock"
	west.Put(t, testclusterset.Namespace(ns))
	run(t, east) // so that its heartbeat does not stop, too
	look := &testclusterset.StatusPage{}
	w := run(t, west, look.Serve)
	clocks := map[string]func(n int) time.Time{
		"behind": func(int) time.Time { return time.Now().Add(-time.Hour) },
		"jumps":  func(n int) time.Time { return time.Now().Add([]time.Duration{time.Hour, -time.Hour}[n%2]) },
	}
	var stops []func()
	var oldest fakeMember
	for i, id := range []string{"behind", "jumps"} {
		g := newFakeMember(t, id, "d"+string(rune('0'+i)), ns, "web", "10.30.0.2"+string(rune('0'+i)))
		stops = append(stops, heartbeats(t, g.namespace, id, clocks[id]))
		if i == 0 {
			oldest = g
		}
	}
	stuck := newFakeMember(t, "stuck", "d9", ns, "web", "10.30.0.29")
	stop := heartbeats(t, stuck.namespace, stuck.id, func(int) time.Time { return time.Now().Add(time.Hour) })
	// The oldest export decides, whatever its member takes for the time.
	record := oldest.record(ns, "web", 80)
	hourAgo := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	record.Spec.SessionAffinity, record.Spec.ExportCreated = corev1.ServiceAffinityClientIP, hourAgo
	if err := clusters.Broker.Apply(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	affinity := func(ctx context.Context) error {
		imp, err := west.Import(ctx, ns, "web")
		if err == nil && imp.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
			err = fmt.Errorf("session affinity %q, want that of the oldest export", imp.Spec.SessionAffinity)
		}
		return err
	}
	until.OK(t, "session affinity of the oldest export", affinity)
	awaitImport(t, west, ns, "web", "10.30.0.20 10.30.0.21 10.30.0.29")
	inWest := undisturbed(t, west, ns, "behind", "jumps")
	stop()
	// The time in which one expires is enough for the others.
	awaitImport(t, west, ns, "web", "10.30.0.20 10.30.0.21")
	inWest()
	if err := affinity(t.Context()); err != nil {
		t.Error(err)
	}
	look.Await(t, "one member is expired", func(s page.Status, _ string) error {
		states := testclusterset.MemberStates(s)
		if states["stuck"] != page.Expired || s.Counts.Expired < 1 || states["behind"] != page.Live || states["jumps"] != page.Live {
			return errors.New("want stuck as expired, behind and jumps as live")
		}
		return nil
	})
	stops[0]()
	awaitImport(t, west, ns, "web", "10.30.0.21")
	w.awaitMetric("frozen", "mass_expiry", 0)
}
