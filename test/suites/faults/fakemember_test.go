package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/page"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A fakeMember is a member on the broker without a cluster: the test writes what its controller would.
type fakeMember struct {
	t             testing.TB
	id, namespace string
	join, export  func() // again
}

// newFakeMember joins a member that exports a service with one endpoint. It is removed with the test. uid is the end of
// the UID of its kube-system, two hex digits.
func newFakeMember(t testing.TB, id, uid, namespace, name, address string) fakeMember {
	t.Helper()
	g := fakeMember{t: t, id: id, namespace: broker.NamespaceName(join.DefaultPrefix, id)}
	admission := join.Admission{ClusterID: id, Quota: join.DefaultQuota(), Spec: v1alpha1.MemberSpec{
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
		ctx := context.WithoutCancel(t.Context())
		_, err := join.Remove(ctx, clusters.Broker.Config(), id, join.LeaveOptions{Force: true})
		if err != nil {
			t.Error(err)
		}
	})
	// The record before its slice, which a member does not do: what reads them has two watches, and may see them in this
	// order anyway.
	g.export = func() {
		t.Helper()
		slice := g.meta(broker.SliceName(namespace, name, "source"), namespace, name)
		slice.Annotations = map[string]string{broker.AnnotationStamp: "3", broker.AnnotationExportUID: fakeExport}
		inventory := &v1alpha1.Inventory{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Inventory"},
			ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: broker.InventoryPart(namespace, name)},
			Spec: v1alpha1.InventorySpec{Stamp: 1, Exports: []v1alpha1.InventoryEntry{{Name: broker.RecordName(namespace,
				name), UID: fakeExport}}},
		}
		if err := clusters.Broker.Apply(t.Context(), inventory, g.record(namespace, name, 80), &discoveryv1.EndpointSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: slice, AddressType: discoveryv1.AddressTypeIPv4,
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

// fakeExport is the UID of all ServiceExports of fake members. What they write is newer than their inventories.
const fakeExport = "00000000-0000-4000-8000-000000000001"

// meta is that of an object of the member for a service.
func (g fakeMember) meta(object, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: g.namespace, Name: object, Labels: map[string]string{
		mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: g.id, broker.LabelSourceNamespace: namespace,
	}}
}

// record is an export record of the member with one port, which lists the slice of fakeMember.export.
func (g fakeMember) record(namespace, name string, port int32) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExportedService"},
		ObjectMeta: g.meta(broker.RecordName(namespace, name), namespace, name),
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: namespace, Name: name, Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:         []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port}},
			ExportCreated: metav1.Now().Rfc3339Copy(), Stamp: 2, ExportUID: fakeExport,
			Slices: []string{broker.Hash(16, "source")},
		},
	}
}

// claim writes the export record again, with the time that the member takes for that of the export.
func (g fakeMember) claim(namespace, name string, at time.Time, change func(*v1alpha1.ExportedServiceSpec)) {
	g.t.Helper()
	record := g.record(namespace, name, 80)
	record.Spec.ExportCreated = metav1.NewTime(at.Truncate(time.Second))
	change(&record.Spec)
	if err := clusters.Broker.Apply(g.t.Context(), record); err != nil {
		g.t.Fatal(err)
	}
}

// awaitNextSecond waits until what the broker creates now is of a later second than the export record: it keeps whole
// seconds.
func (g fakeMember) awaitNextSecond(namespace, name string) {
	g.t.Helper()
	record, err := clusters.Broker.Dynamic().Resource(records).Namespace(g.namespace).
		Get(g.t.Context(), broker.RecordName(namespace, name), metav1.GetOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	until.True(g.t, "the next second", func() bool { return time.Since(record.GetCreationTimestamp().Time) > time.Second })
}

// heartbeat renews a heartbeat once, with any time. blind is the reason that its heartbeat has.
func heartbeat(ctx context.Context, namespace, id string, at time.Time, blind ...string) error {
	renewed := metav1.NewMicroTime(at)
	says := map[string]string{broker.AnnotationComplete: strconv.FormatInt(at.UnixMicro(), 10)}
	if text := strings.Join(blind, ""); text != "" {
		says[broker.AnnotationBlind] = text
	}
	return clusters.Broker.Apply(ctx, &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: broker.HeartbeatName, Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
			Annotations: says,
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &id, RenewTime: &renewed},
	})
}

// heartbeats renews the heartbeat of a member until the returned function is called. clock returns the time of the n-th
// renewal.
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

// The heartbeats of all members but one stop at once, without a fault of the broker. Each is silent by itself: what
// only they serve stays as a last resort, and where another has a ready endpoint theirs go
// (docs/spec/controller.md 8.2).
func TestAllAreSilentAtOnce(t *testing.T) {
	tier.Nightly(t)
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
	newFakeMember(t, "fake-d", "e9", ns, "alone", "10.30.0.19") // without a heartbeat from the start
	const all = "10.21.0.1 10.30.0.10 10.30.0.11 10.30.0.12"
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", all)
		awaitImport(t, m, ns, "alone", "10.30.0.19")
	}
	for _, id := range append(ids, "west") {
		e.awaitHeartbeat(id)
	}
	looksLive(t, look, append(ids, "west"))
	inEast := undisturbed(t, east, ns, "east", "fake-d")
	for _, stop := range stops {
		stop()
	}
	w.stop()
	awaitImport(t, east, ns, "web", "10.21.0.1")
	for _, id := range ids {
		e.awaitSilence(id)
	}
	looksSilent(t, look, append(ids, "west", "fake-d"))
	checkImport(t, east, ns, "alone", "10.30.0.19")
	serve(t, east, ns, "web")
	awaitImport(t, east, ns, "web", "10.30.0.10 10.30.0.11 10.30.0.12")
	serve(t, east, ns, "web", "10.21.0.2")
	awaitImport(t, east, ns, "web", "10.21.0.2")

	for _, g := range fakes {
		heartbeats(t, g.namespace, g.id, rightClock)
	}
	awaitImport(t, east, ns, "web", "10.21.0.2 10.30.0.10 10.30.0.11 10.30.0.12")
	inEast()
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

// looksSilent waits until the status page shows these members as silent.
func looksSilent(t *testing.T, look *testclusterset.StatusPage, ids []string) {
	t.Helper()
	look.Await(t, "silent members", func(s page.Status, html string) error {
		states := testclusterset.MemberStates(s)
		for _, id := range ids {
			if states[id] != page.Expired {
				return fmt.Errorf("%s is %q, want expired", id, states[id])
			}
		}
		return contains(html, "PortConflict", "mass/clash")
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

// The clocks of members are an hour off, or jump: a heartbeat counts when its time grows, whatever time that is, and a
// member whose clock goes back counts on from the last time. A heartbeat that does not change does not count, even if
// its time is an hour in the future. The oldest export stays the oldest, whatever time its member and later ones claim
// (docs/spec/controller.md 4.2, docs/spec/controller.md 8.1).
func TestClockIsWrong(t *testing.T) {
	tier.Nightly(t)
	const ns = "clock"
	west.Put(t, testclusterset.Namespace(ns))
	run(t, east) // so that its heartbeat does not stop, too
	look := &testclusterset.StatusPage{}
	run(t, west, look.Serve)
	var back atomic.Bool // the clock that jumps goes back
	ahead := func(int) time.Time { return time.Now().Add(time.Hour) }
	behind := func(int) time.Time { return time.Now().Add(-time.Hour) }
	var last atomic.Int64 // as the clock of stamps: it never goes back
	jumps := func(n int) time.Time {
		at := ahead(n)
		if back.Load() {
			at = behind(n)
		}
		last.Store(max(last.Load()+1, at.UnixMicro()))
		return time.UnixMicro(last.Load())
	}
	// The oldest is not that of the lowest id, and its clock is ahead.
	oldest := newFakeMember(t, "jumps", "d1", ns, "web", "10.30.0.21")
	heartbeats(t, oldest.namespace, oldest.id, jumps)
	oldest.claim(ns, "web", jumps(0), func(
		s *v1alpha1.ExportedServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	oldest.awaitNextSecond(ns, "web")
	late := newFakeMember(t, "behind", "d0", ns, "web", "10.30.0.20")
	stopLate := heartbeats(t, late.namespace, late.id, behind)
	late.claim(ns, "web", behind(0), func(s *v1alpha1.ExportedServiceSpec) {
		// shows that the claim has arrived
		s.Ports = append(s.Ports, v1alpha1.ServicePort{Name: "admin", Protocol: corev1.ProtocolTCP, Port: 81})
	})
	stuck := newFakeMember(t, "stuck", "d9", ns, "web", "10.30.0.29")
	stopStuck := heartbeats(t, stuck.namespace, stuck.id, ahead)
	awaitImport(t, west, ns, "web", "10.30.0.20 10.30.0.21 10.30.0.29")
	oldestDecides := func(ctx context.Context) error {
		imp, err := west.Import(ctx, ns, "web")
		if err == nil && (imp.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || len(imp.Spec.Ports) != 2) {
			err = fmt.Errorf("session affinity %q, %d ports, want that of the oldest export and two", imp.Spec.SessionAffinity,
				len(imp.Spec.Ports))
		}
		return err
	}
	until.OK(t, "the oldest export decides", oldestDecides)

	inWest, ofJumps := undisturbed(t, west, ns, "behind", "jumps"), undisturbed(t, west, ns, "jumps")
	back.Store(true)
	stopStuck()
	// The time in which one expires is enough for the others.
	awaitImport(t, west, ns, "web", "10.30.0.20 10.30.0.21")
	inWest()
	outages.Measured(
		t, "F13", "0 withdrawals of 2 members with a wrong clock; a third, whose heartbeats ended, is expired")
	look.Await(t, "one member is expired", func(s page.Status, _ string) error {
		states := testclusterset.MemberStates(s)
		if states["stuck"] != page.Expired || s.Counts.Expired < 1 || states["behind"] != page.Live ||
			states["jumps"] != page.Live {
			return errors.New("want stuck as expired, behind and jumps as live")
		}
		return nil
	})
	stopLate()
	awaitImport(t, west, ns, "web", "10.30.0.21")
	ofJumps()
	if err := oldestDecides(t.Context()); err != nil {
		t.Error(err)
	}
}
