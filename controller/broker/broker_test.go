package broker_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	api "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/leaks"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var (
	db  = types.NamespacedName{Namespace: "shop", Name: "db"}
	web = types.NamespacedName{Namespace: "shop", Name: "web"}
)

// An admin writes to a broker whatever it likes.
type admin struct {
	*testing.T
	cp *controlplane.ControlPlane
	c  *apiserver.Client
}

func newAdmin(t *testing.T, crds ...[]byte) admin {
	t.Helper()
	cp := controlplane.StartT(t, controlplane.Options{CRDs: append([][]byte{}, crds...)})
	c, err := apiserver.NewClient(cp.Config())
	must(t, err)
	t.Cleanup(c.Close)
	return admin{t, cp, c}
}

func (a admin) apply(objects ...apiserver.Object) {
	a.Helper()
	for _, o := range objects {
		must(a.T, a.c.Apply(a.Context(), o, "admin"))
	}
}

func (a admin) delete(o apiserver.Object) {
	a.Helper()
	must(a.T, a.cp.Delete(a.Context(), o.(runtime.Object)))
}

func namespaceOf(id string) string { return api.NamespaceName("clusterset", id) }

func namespace(id string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(id), Labels: map[string]string{
			api.LabelClusterID: id, api.LabelManagedBy: api.ManagedBy,
		}},
	}
}

func member(id string) *v1alpha1.Member {
	return &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.MemberSpec{
		KubeSystemUID: "11111111-2222-3333-4444-555555555555", Namespace: namespaceOf(id), PodCIDRs: []string{"10.0.0.0/8"},
	}}
}

func (a admin) join(ids ...string) {
	a.Helper()
	for _, id := range ids {
		a.apply(namespace(id), member(id))
	}
}

func labels(id string, svc types.NamespacedName) map[string]string {
	return map[string]string{
		mcsv1beta1.LabelServiceName: svc.Name, mcsv1beta1.LabelSourceCluster: id, api.LabelSourceNamespace: svc.Namespace,
	}
}

func record(id string, svc types.NamespacedName) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(id), Name: svc.Name + "." + svc.Namespace,
			Labels: labels(id, svc)},
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: svc.Namespace, Name: svc.Name, Type: v1alpha1.ClusterSetIP,
			Ports:      []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExportCreated: metav1.Unix(1_700_000_000, 0),
			Stamp: 1, ExportUID: exportUID,
		},
	}
}

const exportUID = "00000000-0000-4000-8000-000000000001"

// inventory lists the exports of a member in the part of db: db, or nothing.
func inventory(id string, stamp int64, exported bool) *v1alpha1.Inventory {
	i := &v1alpha1.Inventory{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(id), Name: api.InventoryPart(db.Namespace, db.Name)},
		Spec:       v1alpha1.InventorySpec{Stamp: stamp},
	}
	if exported {
		i.Spec.Exports = []v1alpha1.InventoryEntry{{Name: "db.shop", UID: exportUID}}
	}
	return i
}

func slice(id string, svc types.NamespacedName, source string) *discoveryv1.EndpointSlice {
	l := labels(id, svc)
	l[discoveryv1.LabelManagedBy] = api.ManagedBy
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(id), Name: api.SliceName(svc.Namespace, svc.Name, source), Labels: l,
			Annotations: map[string]string{api.AnnotationStamp: "1", api.AnnotationExportUID: exportUID},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
	}
}

func lease(id string, at time.Time) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(at)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(id), Name: api.HeartbeatName,
			Labels: map[string]string{api.LabelManagedBy: api.ManagedBy}},
		Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
}

// A link is a running Broker of member east, with what it reported.
type link struct {
	*testing.T
	*broker.Broker
	stop func()

	mu                       sync.Mutex
	changed, urgent, altered map[types.NamespacedName]int // changes, and which they were
	membersChanged           int
	properties, parts        map[string]int
	rejected                 []merge.Rejection
	panics                   int
}

// running counts links: only when the first and the last of them is over, no goroutine may be left.
var running atomic.Int32

func connect(t *testing.T, cfg *rest.Config, set ...func(*broker.Config)) *link {
	t.Helper()
	before, sole := goleak.IgnoreCurrent(), running.Add(1) == 1
	l := &link{
		T: t, changed: make(map[types.NamespacedName]int), urgent: make(map[types.NamespacedName]int),
		altered: make(map[types.NamespacedName]int), properties: make(map[string]int), parts: make(map[string]int),
	}
	c := broker.Config{
		REST: cfg, Namespace: namespaceOf("east"), ClusterID: "east", Log: logtest.To(t, ""),
		Interval: 200 * time.Millisecond, Silence: 10 * time.Second,
		Barrier: &logging.Barrier{Panicked: func() { l.note(func() { l.panics++ }) }},
	}
	for _, s := range set {
		s(&c)
	}
	b, err := broker.New(c)
	must(t, err)
	l.Broker = b
	b.Handle(broker.Handlers{
		Changed: func(c broker.Change) {
			svc := c.Service
			if svc.Name == "panics" {
				panic("out of order")
			}
			l.note(func() {
				l.changed[svc]++
				if c.Urgent {
					l.urgent[svc]++
				}
				if c.Altered {
					l.altered[svc]++
				}
			})
		},
		InventoryChanged:  func(_, cluster, part string) { l.note(func() { l.parts[cluster+"/"+part]++ }) },
		MembersChanged:    func() { l.note(func() { l.membersChanged++ }) },
		PropertiesChanged: func(id string) { l.note(func() { l.properties[id]++ }) },
		Rejected: func(r merge.Rejection) {
			l.note(func() { l.rejected = append(l.rejected, r) })
			if r.Object == "bool.odd" {
				panic("on one object that the review finds")
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.Close()
		if last := running.Add(-1) == 0; !last || !sole {
			return
		}
		leaks.None(t, before)
	})
	t.Cleanup(l.stop)
	return l
}

func (l *link) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *link) count(f func() int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f()
}

func (l *link) awaitState(want broker.Membership) broker.State {
	l.Helper()
	until.True(l.T, want.String(), func() bool { return l.State().Membership == want })
	return l.State()
}

func (l *link) awaitRecords(svc types.NamespacedName, clusters ...string) {
	l.Helper()
	until.True(l.T, fmt.Sprintf("records of %s from %v", svc, clusters), func() bool {
		var got []string
		for _, r := range l.Records(svc) {
			got = append(got, r.Cluster)
		}
		return slices.Equal(got, clusters)
	})
}

func TestBroker(t *testing.T) {
	a := newAdmin(t, crd.ExportedServices, crd.Inventories, crd.Members)
	a.join("east", "west")
	for _, tt := range []struct {
		name string
		test func(*testing.T, admin)
	}{
		{"read", testRead}, {"write", testWrite}, {"heartbeats", testHeartbeats}, {"malicious", testMalicious},
		{"undecodable", testUndecodable}, {"one watch fails", testOneWatch}, {"VIPs", testVIPs},
		{"aggregate view", testView}, {"expelled", testExpelled},
		{"lost", testLost}, {"restored", testRestored}, {"membership", testMembership},
	} {
		if !t.Run(tt.name, func(t *testing.T) { tt.test(t, admin{t, a.cp, a.c}) }) {
			return
		}
	}
}

func testRead(t *testing.T, a admin) {
	a.apply(record("east", db), record("west", db), slice("west", db, "db-1"), slice("west", db, "db-2"),
		slice("west", web, "web-1"))
	l := connect(t, a.cp.Config())
	until.True(t, "synced and admitted", func() bool {
		s := l.State()
		return l.Synced() && s.Link && s.Membership == broker.Admitted && s.Detail == "" && l.Waiting() == ""
	})
	l.awaitRecords(db, "east", "west")
	stored, got := &v1alpha1.ExportedService{}, l.Records(db)[1]
	must(t, a.c.Get(t.Context(), stored, namespaceOf("west"), "db.shop"))
	ns := &corev1.Namespace{}
	must(t, a.c.Get(t.Context(), ns, "", namespaceOf("west")))
	want := merge.Record{Cluster: "west", Admitted: ns.CreationTimestamp, Created: stored.CreationTimestamp,
		Spec: stored.Spec}
	if !got.Admitted.Equal(&want.Admitted) || !got.Created.Equal(&want.Created) ||
		!reflect.DeepEqual(got.Spec.Ports, want.Spec.Ports) {
		t.Errorf("record = %+v, want %+v", got, want)
	}
	if got := l.Slices(db, "west"); len(got) != 2 || got[0].Name > got[1].Name || len(got[0].ManagedFields) > 0 {
		t.Errorf("slices = %v, want two, sorted and without managed fields", got)
	}
	if got := l.Slices(db, "east"); len(got) != 0 {
		t.Errorf("slices of east = %v, want none", got)
	}
	if got := l.Services(); !slices.Equal(got, []types.NamespacedName{db, web}) {
		t.Errorf("services = %v, want db and web", got)
	}
	if got := l.Members.All(); len(got) != 2 || got[0].Name != "east" || got[1].Name != "west" {
		t.Errorf("members = %v, want east and west", got)
	}
	changes := func(svc types.NamespacedName) int { return l.count(func() int { return l.changed[svc] }) }
	// A panic on one object costs neither the process nor the watch.
	panics := record("west", types.NamespacedName{Namespace: "shop", Name: "panics"})
	a.apply(panics)
	until.True(t, "a panic", func() bool { return l.count(func() int { return l.panics }) > 0 })
	must(t, a.c.Delete(t.Context(), panics))
	before := changes(db)
	a.apply(slice("west", db, "db-3"))
	until.True(t, "a change of db", func() bool { return changes(db) > before })
	must(t, a.c.Delete(t.Context(), slice("west", web, "web-1")))
	until.True(t, "web gone", func() bool { return slices.Equal(l.Services(), []types.NamespacedName{db}) })
	if n := changes(web); n > 0 {
		t.Errorf("%d changes of a service that no member exports, want none", n)
	}
	urgentAndAltered(t, a, l)
	members := l.count(func() int { return l.membersChanged })
	must(t, l.Members.SetStatus(t.Context(), v1alpha1.MemberStatus{Properties: []v1alpha1.Property{{Name: "tier",
		Value: "gold"}}}))
	until.True(t, "other properties of east", func() bool {
		return l.count(
			func() int { return l.properties["east"] }) > 0
	})
	if n := l.count(func() int { return l.membersChanged }); n != members {
		t.Errorf("%d changes of members by other properties, want none", n-members)
	}
	if n := l.count(func() int { return len(l.rejected) }); n > 0 {
		t.Errorf("rejected %v, want nothing", l.rejected)
	}
}

// urgentAndAltered changes slices, inventories and the record of db. A change is urgent if a slice of another member
// loses its last ready endpoint, or an inventory drops the service. It is altered if another member can make it at any
// rate.
func urgentAndAltered(t *testing.T, a admin, l *link) {
	t.Helper()
	two := slice("west", db, "db-3")
	two.Endpoints = append(two.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.2"}})
	notReady := slice("west", db, "db-3")
	notReady.Endpoints[0].Conditions.Ready = new(false)
	listing, narrowed, headless, own := record("west", db), record("west", db), record("west", db), record("east", db)
	narrowed.Spec.ToClusters = []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: "region",
		Value: "eu"}}}}
	listing.Spec.Slices = []string{"0123456789abcdef"}
	headless.Spec.Type, own.Spec.Type = v1alpha1.Headless, v1alpha1.Headless
	const urgent, altered = "urgent", "altered"
	for _, step := range []struct {
		change string
		make   func()
		want   string
	}{
		{"an endpoint more", func() { a.apply(two) }, ""},
		{"one of two goes", func() { a.apply(slice("west", db, "db-3")) }, ""},
		{"the last is not ready", func() { a.apply(notReady) }, urgent},
		{"one without a ready endpoint goes", func() { a.delete(slice("west", db, "db-3")) }, ""},
		{"one with a ready endpoint comes", func() { a.apply(slice("west", db, "db-3")) }, ""},
		{"one with a ready endpoint goes", func() { a.delete(slice("west", db, "db-3")) }, urgent},
		{"an inventory lists the service", func() { a.apply(inventory("west", 7, true)) }, altered},
		{"and no more", func() { a.apply(inventory("west", 8, false)) }, urgent},
		{"an own inventory lists the service", func() { a.apply(inventory("east", 7, true)) }, ""},
		{"an own slice comes", func() { a.apply(slice("east", db, "db-1")) }, ""},
		{"an own slice goes", func() { a.delete(slice("east", db, "db-1")) }, ""},
		{"a record lists a slice", func() { a.apply(listing) }, ""},
		{"it is for other clusters", func() { a.apply(narrowed) }, ""},
		{"and for all again", func() { a.apply(record("west", db)) }, ""},
		{"its type changes", func() { a.apply(headless) }, altered},
		{"it is again as it was", func() { a.apply(record("west", db)) }, altered},
		{"an own record changes", func() { a.apply(own) }, ""},
		{"it is again as it was", func() { a.apply(record("east", db)) }, ""},
	} {
		is := func() (changed, urgent, altered int) {
			l.note(func() { changed, urgent, altered = l.changed[db], l.urgent[db], l.altered[db] })
			return changed, urgent, altered
		}
		changed, wasUrgent, wasAltered := is()
		step.make()
		until.True(t, step.change, func() bool { now, _, _ := is(); return now > changed })
		_, nowUrgent, nowAltered := is()
		if gotUrgent, gotAltered := nowUrgent > wasUrgent, nowAltered > wasAltered; gotUrgent != (step.want == urgent) ||
			gotAltered != (step.want == altered) {
			t.Errorf("%s: urgent %t, altered %t; want %q", step.change, gotUrgent, gotAltered, step.want)
		}
	}
	listed := func() int { return l.parts["west/"+inventory("west", 9, false).Name] }
	before := l.count(listed)
	a.apply(inventory("west", 9, false))
	until.True(t, "a newer part that does not list the service either", func() bool { return l.count(listed) > before })
	a.delete(inventory("west", 9, false))
	a.delete(inventory("east", 7, true))
	until.True(t, "the own inventory is gone", func() bool {
		_, old := l.Own.Inventory(inventory("east", 7, true).Name)
		return old
	})
	if got := l.Entry(l.Members.Get("west"), db); got != (protocol.Entry{Stamp: 9}) {
		t.Errorf("entry = %+v, want that of the newest inventory", got)
	}
}

func testWrite(t *testing.T, a admin) {
	l := connect(t, a.cp.Config())
	until.True(t, "synced", l.Synced)
	l.awaitRecords(db, "east", "west")
	kept := l.Records(db)[1].Spec
	copied := *kept.DeepCopy()

	// A write counts before its watch event, wherever the object said it was.
	r := record("west", web)
	must(t, l.Own.ApplyRecord(t.Context(), r))
	if r.UID != "" || r.Namespace != namespaceOf("west") {
		t.Error("ApplyRecord changed its argument")
	}
	s := slice("west", web, "web-1")
	_, err := l.Own.ApplySlice(t.Context(), s)
	must(t, err)
	own, ownSlices := l.Own.Objects(web)
	if own == nil || own.Namespace != namespaceOf("east") || own.UID == "" || len(ownSlices) != 1 ||
		ownSlices[0].Namespace != namespaceOf("east") {
		t.Fatalf("own = %v and %v right after the write, want a record and a slice", own, ownSlices)
	}
	if got := l.Own.Services(); !slices.Equal(got, []types.NamespacedName{db, web}) {
		t.Errorf("own services = %v, want db and web", got)
	}
	other := own.DeepCopy()
	other.UID = "00000000-0000-0000-0000-000000000000"
	if err := l.Own.DeleteRecord(t.Context(), other); !apierrors.IsConflict(err) {
		t.Errorf("delete with another UID: %v, want a conflict", err)
	}
	stale := record("east", web)
	stale.UID, stale.ResourceVersion = own.UID, own.ResourceVersion
	stale.Spec.Type = v1alpha1.Headless
	must(t, l.Own.ApplyRecord(t.Context(), stale))
	if err := l.Own.ApplyRecord(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("apply of an old version: %v, want a conflict", err)
	}
	must(t, l.Own.DeleteSlice(t.Context(), ownSlices[0]))
	must(t, l.Own.DeleteRecord(t.Context(), own))
	if own, ownSlices := l.Own.Objects(web); own != nil || len(ownSlices) > 0 {
		t.Errorf("own = %v and %v right after they were deleted, want none", own, ownSlices)
	}
	until.True(t, "web gone", func() bool { return !slices.Contains(l.Services(), web) })

	// A write of an inventory reports its services, if no event did: the event after it is no change.
	var told []types.NamespacedName
	still, err := broker.New(broker.Config{REST: a.cp.Config(), Namespace: namespaceOf("east"), ClusterID: "east",
		Log: logtest.To(t, "")})
	must(t, err)
	defer still.Close()
	still.Handle(broker.Handlers{Changed: func(c broker.Change) { told = append(told, c.Service) }})
	part := &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Name: api.InventoryPart(web.Namespace, web.Name)}}
	part.Spec.Exports = []v1alpha1.InventoryEntry{{Name: "web.shop", UID: exportUID}}
	must(t, still.Own.ApplyInventory(t.Context(), part))
	if !slices.Equal(told, []types.NamespacedName{web}) {
		t.Errorf("told %v, want web", told)
	}
	part.Namespace = namespaceOf("east")
	a.delete(part)

	must(t, l.Members.SetStatus(t.Context(), v1alpha1.MemberStatus{Version: "1.2.3"}))
	until.True(t, "the status", func() bool { return l.Members.All()[0].Status.Version == "1.2.3" })
	version := l.Members.All()[0].ResourceVersion
	must(t, l.Members.SetStatus(t.Context(), v1alpha1.MemberStatus{Version: "1.2.3"}))
	m := &v1alpha1.Member{}
	must(t, a.c.Get(t.Context(), m, "", "east"))
	if m.ResourceVersion != version || len(m.Spec.PodCIDRs) != 1 {
		t.Errorf("member = %+v, want that an equal status is not written and the spec stays", m)
	}
	a.apply(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf("east"),
		Name: api.ServiceAccount}})
	token, expires, err := l.Members.Token(t.Context(), time.Hour)
	if err != nil || token == "" || time.Until(expires) < 30*time.Minute {
		t.Errorf("token of %d octets until %s, %v, want one for an hour", len(token), expires, err)
	}
	if !reflect.DeepEqual(kept, copied) {
		t.Error("an object of the informer was changed")
	}
}

// seen returns when the heartbeat of a member was last seen to change, zero if never.
func seen(b *broker.Broker, cluster string) time.Time {
	for _, m := range b.Heartbeats.Liveness() {
		if m.Cluster == cluster {
			return m.Seen
		}
	}
	return time.Time{}
}

// docs/spec/controller.md 8: a Lease is renewed when the change is seen. Its time orders it, and tells nothing about
// its age.
func testHeartbeats(t *testing.T, a admin) {
	l := connect(t, a.cp.Config())
	until.True(t, "synced", l.Synced)
	if got := l.Heartbeats.Liveness(); len(got) != 2 || !seen(l.Broker, "west").IsZero() {
		t.Errorf("heartbeats = %v, want two that are zero", got)
	}
	a.apply(lease("west", time.Now().Add(-time.Hour)))
	until.True(t, "a heartbeat", func() bool { return !seen(l.Broker, "west").IsZero() })
	first := seen(l.Broker, "west")
	if time.Since(first) > 10*time.Minute {
		t.Errorf("heartbeat at %s, want it by the clock here", first)
	}
	a.apply(lease("west", time.Now().Add(-30*time.Minute)))
	until.True(t, "another heartbeat", func() bool { return seen(l.Broker, "west").After(first) })
	if !l.Heartbeats.Echo().IsZero() {
		t.Error("an echo before the first heartbeat")
	}
	sent := time.Now()
	must(t, l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, ""))
	until.True(t, "an echo", func() bool { return !l.Heartbeats.Echo().Before(sent) })
	before, same := l.liveness("west"), lease("west", time.Now())
	must(t, a.c.Get(t.Context(), same, same.Namespace, same.Name))
	same.Annotations = map[string]string{"a": "1"}
	must(t, a.c.Update(t.Context(), same)) // no heartbeat
	sent = time.Now()
	must(t, l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, ""))
	until.True(t, "the next echo", func() bool { return !l.Heartbeats.Echo().Before(sent) })
	if is := l.liveness("west"); is != before {
		t.Errorf("heartbeat of west = %+v after another change of its Lease, want %+v", is, before)
	}
	for _, m := range l.Heartbeats.Liveness() {
		if want := map[string]time.Duration{"east": 90 * time.Second}[m.Cluster]; m.TTL != want {
			t.Errorf("TTL of %s = %s, want %s", m.Cluster, m.TTL, want)
		}
	}
	// A heartbeat replaces the one that this process knows, and no other (docs/spec/controller.md 7.8).
	theirs := lease("east", time.Now())
	theirs.Spec.HolderIdentity = new("another")
	a.apply(theirs)
	if err := l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, ""); !apierrors.IsConflict(err) {
		t.Errorf("a heartbeat after that of another process: %v, want a conflict", err)
	}
	h, err := l.Heartbeats.Last(t.Context())
	if must(t, err); h.Stamp != broker.HeartbeatOf(theirs).Stamp || h.Ours {
		t.Errorf("read %+v, want theirs", h)
	}
	must(t, l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, ""))
	must(t, a.c.Delete(t.Context(), lease("east", time.Now())))
	if err := l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, ""); !apierrors.IsConflict(err) {
		t.Errorf("a heartbeat after that was deleted: %v, want a conflict", err)
	}
	h, err = l.Heartbeats.Last(t.Context())
	if must(t, err); h.Stamp != 0 {
		t.Errorf("read %+v, want none", h)
	}
	must(t, l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, ""))
	must(t, a.c.Delete(t.Context(), lease("east", time.Now())))
	_, err = l.Heartbeats.Last(t.Context())
	must(t, err)
	oddTimes(t, a, l)
	leasesAreLost(t, a, l)
}

// Leases and slices travel as protobuf, which has a form for each time that the API server accepts. So a heartbeat of a
// time for which JSON has no form decodes, and is one like any other (docs/spec/controller.md 9.1).
func oddTimes(t *testing.T, a admin, l *link) {
	t.Helper()
	const id, at = "odd", "9999-12-31T23:59:59.000000-23:00"
	l.awaitMembers(func() { a.join(id) })
	l.awaitBeat(id, func() { a.apply(lease(id, time.Now())) })
	leases := a.cp.Dynamic().Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(namespaceOf(id))
	l.awaitBeat(id, func() {
		_, err := leases.Patch(t.Context(), api.HeartbeatName, types.MergePatchType, []byte(`{"spec":{"renewTime":"`+at+`"}}`), metav1.PatchOptions{})
		must(t, err)
	})
	u, err := leases.Get(t.Context(), api.HeartbeatName, metav1.GetOptions{})
	must(t, err)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &coordinationv1.Lease{}); err == nil {
		t.Errorf("%s decodes as JSON, want a time that does not", at)
	}
	listed := connect(t, a.cp.Config())
	until.True(t, "the heartbeat, by a list", func() bool { return !listed.liveness(id).Seen.IsZero() })
	listed.stop()
	l.awaitMembers(func() { must(t, a.c.Delete(t.Context(), member(id))) })
	must(t, a.c.Delete(t.Context(), lease(id, time.Now())))
	a.delete(namespace(id))
}

// liveness returns the known heartbeat of a member; the zero value if it is no member.
func (l *link) liveness(cluster string) (known liveness.Member) {
	for _, m := range l.Heartbeats.Liveness() {
		if m.Cluster == cluster {
			known = m
		}
	}
	return known
}

// awaitBeat does something, and waits until it has led to a heartbeat of a member. All that happened to Leases before
// it is handled then.
func (l *link) awaitBeat(cluster string, do func()) {
	l.Helper()
	before := l.liveness(cluster).Seen
	do()
	until.True(l.T, "a heartbeat of "+cluster, func() bool { return l.liveness(cluster).Seen.After(before) })
}

// awaitMembers does something, and waits until it has led to a change of the members.
func (l *link) awaitMembers(do func()) {
	l.Helper()
	changes := func() int { return l.count(func() int { return l.membersChanged }) }
	before := changes()
	do()
	until.True(l.T, "a change of the members", func() bool { return changes() > before })
}

// A lost Lease does not change its member, and the next one that the member makes is a heartbeat. Without Member and
// Lease, removed in any order, nothing is known (docs/spec/controller.md 8.1).
func leasesAreLost(t *testing.T, a admin, l *link) {
	t.Helper()
	renew := func() { must(t, l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, "")) }
	at := time.Now()
	beat := func(id string) func() {
		return func() {
			r := lease(id, at)
			r.Spec.LeaseDurationSeconds = new(int32(100))
			a.apply(r)
		}
	}
	l.awaitBeat("west", beat("west"))
	before := l.liveness("west")
	must(t, a.c.Delete(t.Context(), lease("west", at)))
	thief := member("thief")
	thief.Spec.Namespace = namespaceOf("west")
	l.awaitMembers(func() { a.apply(thief) })
	l.awaitBeat("east", renew)
	l.awaitMembers(func() { must(t, a.c.Delete(t.Context(), thief)) })
	if is := l.liveness("west"); is != before || is.TTL != 100*time.Second ||
		is.Heartbeat.Stamp != protocol.Stamp(at.UnixMicro()) {
		t.Errorf("heartbeat without a Lease = %+v, want %+v", is, before)
	}
	at = at.Add(time.Second)
	l.awaitBeat("west", beat("west"))
	if is := l.liveness("west"); !is.Seen.After(before.Seen) {
		t.Errorf("heartbeat of a Lease that was made again = %+v, want it seen after %+v", is, before)
	}
	old := lease("west", at.Add(-time.Minute)) // as after a restore of the broker
	l.awaitBeat("east", func() { a.apply(old); renew() })
	if is := l.liveness("west"); is.Heartbeat.Stamp != protocol.Stamp(at.UnixMicro()) {
		t.Errorf("heartbeat %s after an old one, want the newest that was seen", is.Heartbeat.Stamp)
	}
	for _, memberFirst := range []bool{false, true} {
		l.awaitMembers(func() { a.join("south") })
		l.awaitBeat("south", beat("south"))
		loseMember := func() { l.awaitMembers(func() { must(t, a.c.Delete(t.Context(), member("south"))) }) }
		if memberFirst {
			loseMember()
		}
		must(t, a.c.Delete(t.Context(), lease("south", at)))
		l.awaitBeat("east", renew)
		if !memberFirst {
			loseMember()
		}
		l.awaitMembers(func() { a.apply(member("south")) })
		if is := l.liveness("south"); is != (liveness.Member{Cluster: "south"}) {
			t.Errorf("heartbeat of a new member = %+v, want nothing of the one before it", is)
		}
		must(t, a.c.Delete(t.Context(), member("south")))
		a.delete(namespace("south"))
	}
	must(t, a.c.Delete(t.Context(), lease("west", at)))
	must(t, a.c.Delete(t.Context(), lease("east", time.Now())))
}

// docs/spec/controller.md 9: what a hostile member writes is rejected, is reported once, and costs no other member
// anything.
func testMalicious(t *testing.T, a admin) {
	spoofed := record("west", types.NamespacedName{Namespace: "shop", Name: "spoofed"})
	spoofed.Labels[mcsv1beta1.LabelSourceCluster] = "east"
	misnamed := slice("west", db, "x")
	misnamed.Name = "db.shop.nothex"
	elsewhere := slice("west", db, "y")
	elsewhere.Name = api.SliceName("bank", "pay", "y")
	unasked := slice("west", types.NamespacedName{Namespace: "bank", Name: "nobody"}, "q")
	unasked.Name = api.SliceName("shop", "db", "q")
	nameless := slice("west", db, "z")
	nameless.Labels[mcsv1beta1.LabelServiceName], nameless.Name = "A", "nameless"
	stranger := namespace("stranger")
	strange := record("stranger", db)
	unlabelled := namespace("unlabelled")
	unlabelled.Labels = nil
	hidden := record("unlabelled", db)
	a.apply(stranger, unlabelled, spoofed, misnamed, elsewhere, unasked, nameless, strange, hidden,
		slice("stranger", db, "s"))
	for i := range 50 {
		ns := namespace(fmt.Sprint("n", i))
		ns.Labels[api.LabelClusterID] = "east" // one id, many places
		a.apply(ns)
	}
	l := connect(t, a.cp.Config())
	until.True(t, "synced", l.Synced)
	l.awaitRecords(db, "east", "west")
	l.awaitRecords(types.NamespacedName{Namespace: "shop", Name: "spoofed"})
	if got := l.Slices(db, "west"); len(got) != 2 {
		t.Errorf("%d slices of west, want the 2 that fit", len(got))
	}
	if got := l.Slices(db, "stranger"); len(got) != 0 {
		t.Errorf("slices of a stranger = %v, want none", got)
	}
	_ = l.Slices(types.NamespacedName{Namespace: "bank", Name: "pay"}, "west")
	if got := l.Members.All(); len(got) != 2 {
		t.Errorf("members = %v, want east and west", got)
	}
	want := []string{
		"/db.shop cluster_id", "/db.shop cluster_id", "west/spoofed.shop name", "west/db.shop.nothex name",
		"west/" + elsewhere.Name + " name", "west/" + unasked.Name + " name", "west/nameless name",
		"/" + slice("stranger", db, "s").Name + " cluster_id",
	}
	slices.Sort(want)
	got := func() (list []string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, r := range l.rejected {
			list = append(list, fmt.Sprintf("%s/%s %s", r.Cluster, r.Object, r.Reason))
			if r.Detail == "" || len(r.Detail) > 400 {
				t.Errorf("detail %q", r.Detail)
			}
		}
		slices.Sort(list)
		return list
	}
	until.True(t, "all reported", func() bool { return len(got()) >= len(want) })
	l.Records(db)
	if got := got(); !slices.Equal(got, want) {
		t.Errorf("rejected %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	// A Member makes a stranger's records count, for everybody at once.
	before := l.count(func() int { return l.membersChanged })
	a.apply(member("stranger"))
	l.awaitRecords(db, "east", "stranger", "west")
	until.True(t, "a change of members", func() bool { return l.count(func() int { return l.membersChanged }) > before })
	before = l.count(func() int { return l.membersChanged })
	// A Member that names another's namespace does not.
	thief := member("thief")
	thief.Spec.Namespace = namespaceOf("west")
	a.apply(thief)
	until.True(t, "the thief is known", func() bool { return l.count(func() int { return l.membersChanged }) > before })
	l.awaitRecords(db, "east", "stranger", "west")
	if got := l.Members.All(); len(got) != 3 {
		t.Errorf("members = %v, want three", got)
	}
	must(t, a.c.Delete(t.Context(), thief))
	must(t, a.c.Delete(t.Context(), member("stranger")))
	l.awaitRecords(db, "east", "west")
	for _, o := range []apiserver.Object{spoofed, misnamed, elsewhere, unasked, nameless} {
		must(t, a.c.Delete(t.Context(), o))
	}
}

// docs/spec/controller.md 5.7: the newest known inventory of each member decides on clusterset IPs, also if the broker
// has an older one, or lost it.
func testVIPs(t *testing.T, a admin) {
	shared := types.NamespacedName{Namespace: "shop", Name: "shared"}
	part := func(id string, stamp int64, claims ...v1alpha1.Claim) *v1alpha1.Inventory {
		return &v1alpha1.Inventory{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Inventory"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace(id).Name, Name: api.InventoryPart(shared.Namespace, shared.Name)},
			Spec: v1alpha1.InventorySpec{Stamp: stamp, Exports: []v1alpha1.InventoryEntry{{Name: api.RecordName(
				shared.Namespace, shared.Name), Claims: claims}}},
		}
	}
	l := connect(t, a.cp.Config())
	until.True(t, "synced", l.Synced)
	await := func(want string) {
		t.Helper()
		until.True(t, want, func() bool {
			_, o := l.View(shared, merge.Options{VIP: merge.CIDR})
			var got []string
			for _, c := range o.VIPs.Claims {
				got = append(got, fmt.Sprint(c.Cluster, " ", c.IP, " since ", c.Since.UnixMicro(), ", exports ",
					!c.Created.IsZero()))
			}
			return strings.Join(got, "; ") == want && o.VIPs.Stamps["west"] == 9
		})
	}
	west := part("west", 9, v1alpha1.Claim{IP: "243.0.0.1", Since: 5},
		v1alpha1.Claim{IP: "243.0.0.2", Since: 5, Released: 6})
	a.apply(west, record("west", shared), part("east", 3, v1alpha1.Claim{IP: "127.0.0.1", Since: 1}))
	const want = "west 243.0.0.1 since 5, exports true"
	await(want)
	a.apply(part("west", 8), part("east", 4, v1alpha1.Claim{IP: "fd00::1", Since: 7}))
	await("east fd00::1 since 7, exports false; " + want)
	must(t, a.c.Delete(t.Context(), west))
	a.apply(part("east", 5))
	await(want)
	must(t, a.c.Delete(t.Context(), part("east", 1)))
}

// An object that the API server accepts and Go does not decode costs itself: lists and watches go on, and it is
// rejected with its member, once (docs/spec/controller.md 9.1).
func testUndecodable(t *testing.T, a admin) {
	// A broker with another version of the CRD, or a laxer one, accepts anything.
	must(t, a.cp.InstallCRDs(t.Context(), lax(t, crd.ExportedServices)))
	all := a.cp.Dynamic().Resource(v1alpha1.ExportedServices)
	put := func(id, name string, change func(spec map[string]any)) {
		t.Helper()
		r := record(id, types.NamespacedName{Namespace: "odd", Name: name})
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
		must(t, err)
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExportedService"))
		change(content["spec"].(map[string]any))
		until.OK(t, "lax CRD", func(ctx context.Context) error {
			_, err := all.Namespace(r.Namespace).Apply(ctx, r.Name, u, metav1.ApplyOptions{FieldManager: "admin", Force: true})
			return err
		})
	}
	at := func(value any, path ...string) func(map[string]any) {
		return func(spec map[string]any) { must(t, unstructured.SetNestedField(spec, value, path...)) }
	}
	good := types.NamespacedName{Namespace: "odd", Name: "good"}
	put("west", "good", at("2026-01-01T00:00:00Z", "exportCreated"))

	before := connect(t, a.cp.Config()) // follows by watch what after finds in its first list
	before.awaitRecords(good, "west")
	rows := map[string]func(map[string]any){
		"lower-case":  at("2026-01-01t00:00:00z", "exportCreated"),
		"offset":      at("2026-01-01T00:00:00+99:99", "exportCreated"),
		"tail":        at("2026-01-01T00:00:00Zt"+strings.Repeat("x", 10_000), "exportCreated"),
		"day":         at("2026-02-30T00:00:00Z", "exportCreated"),
		"time-number": at(int64(1), "exportCreated"),
		"int32":       at([]any{map[string]any{"port": int64(1) << 40, "protocol": "TCP"}}, "ports"),
		"float":       at([]any{map[string]any{"port": 1.5, "protocol": "TCP"}}, "ports"),
		"huge":        at(1e300, "exportGeneration"),
		"port-text":   at([]any{map[string]any{"port": "80", "protocol": "TCP"}}, "ports"),
		"list-object": at(map[string]any{}, "ports"),
		"object-list": at([]any{}, "vip"),
		"bool":        at("yes", "publishNotReadyAddresses"),
		"spec":        func(spec map[string]any) { clear(spec); spec["namespace"] = []any{} },
		"timeout": at(map[string]any{"clientIP": map[string]any{"timeoutSeconds": int64(1) << 40}},
			"sessionAffinityConfig"),
	}
	for name, change := range rows {
		put("west", name, change)
	}
	after := connect(t, a.cp.Config())
	for _, l := range []*link{before, after} {
		until.True(t, "synced", l.Synced)
		for name := range rows {
			until.True(t, name+" is rejected", func() bool { return l.undecodable(name) == 1 })
		}
		put("east", "good", at("2026-01-02T00:00:00Z", "exportCreated"))
		l.awaitRecords(good, "east", "west")
	}
	// A good version becomes a bad one, which does not count, and a good one again. The other member is not affected.
	put("west", "good", rows["lower-case"])
	for _, l := range []*link{before, after} {
		l.awaitRecords(good, "east")
		until.True(t, "the bad version is rejected", func() bool { return l.undecodable("good") == 1 })
	}
	put("west", "good", at("2026-01-03T00:00:00Z", "exportCreated"))
	for _, l := range []*link{before, after} {
		l.awaitRecords(good, "east", "west")
		for name := range rows {
			if n := l.undecodable(name); n != 1 {
				t.Errorf("%s is rejected %d times, want once", name, n)
			}
		}
		if s := l.State(); !s.Link {
			t.Errorf("state = %+v, want a link", s)
		}
	}
	for _, id := range []string{"east", "west"} {
		must(t, all.Namespace(namespaceOf(id)).DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: api.LabelSourceNamespace + "=odd"}))
	}
	must(t, a.cp.InstallCRDs(t.Context(), crd.ExportedServices))
}

// Trouble of one watch is that of what needs it: without the right to read Leases no member can expire, and exports go
// on (docs/spec/controller.md 8.7).
func testOneWatch(t *testing.T, a admin) {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "no-leases"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", v1alpha1.GroupVersion.Group, "discovery.k8s.io"},
			Verbs:     []string{"get", "list", "watch", "create", "patch", "delete"},
			Resources: []string{"namespaces", "members", "exportedservices", "inventories", "endpointslices"},
		}},
	}
	must(t, a.cp.Apply(t.Context(), role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-leases"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
			Kind: "ClusterRole", Name: "no-leases"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "no-leases"}},
	}))
	path, err := a.cp.UserKubeconfig("no-leases")
	must(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	must(t, err)
	l := connect(t, cfg)
	l.awaitState(broker.Admitted)
	until.True(t, "exports without the watch of Leases", func() bool { return l.MayExport() == nil })
	until.True(t, "the watch of Leases is missed", func() bool { return strings.Contains(l.State().Detail, "leases") })
	if s := l.State(); s.Link || !l.Synced() || !l.Heartbeats.Echo().IsZero() {
		t.Errorf("state = %+v, synced %t, echo %s; want no link, true, none", s, l.Synced(), l.Heartbeats.Echo())
	}
	must(t, l.Own.ApplyRecord(t.Context(), record("east", web)))
	l.awaitRecords(web, "east")
	own, _ := l.Own.Objects(web)
	must(t, l.Own.DeleteRecord(t.Context(), own))
}

// lax returns the definition without its schema.
func lax(t *testing.T, definition []byte) []byte {
	t.Helper()
	objects, err := controlplane.ParseYAML(definition)
	must(t, err)
	u := objects[0].(*unstructured.Unstructured)
	versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	must(t, err)
	for _, v := range versions {
		v.(map[string]any)["schema"] = map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}
	}
	must(t, unstructured.SetNestedSlice(u.Object, versions, "spec", "versions"))
	content, err := u.MarshalJSON()
	must(t, err)
	return content
}

// undecodable counts the rejections of a record in namespace odd, of west, as undecodable.
func (l *link) undecodable(name string) int {
	return l.count(func() (n int) {
		for _, r := range l.rejected {
			if r.Reason == merge.Undecodable && r.Cluster == "west" && r.Object == name+".odd" && r.Detail != "" &&
				len(r.Detail) < 400 {
				n++
			}
		}
		return n
	})
}

func testView(t *testing.T, a admin) {
	l := connect(t, a.cp.Config())
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
		Status: mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "east"}}},
	}
	must(t, l.Aggregates.Apply(t.Context(), imp)) // without the CRD nothing happens
	must(t, a.cp.InstallCRDs(t.Context(), mcscrd.ServiceImportCRD))
	must(t, l.Aggregates.Apply(t.Context(), imp))
	views, err := l.Aggregates.List(t.Context())
	must(t, err)
	if v := views[db]; len(views) != 1 || v == nil || v.Namespace != namespaceOf("east") || v.Name != "db.shop" ||
		len(v.Status.Clusters) != 1 {
		t.Errorf("views = %v, want one of db with its status", views)
	}
	must(t, l.Aggregates.Delete(t.Context(), views[db]))
	must(t, l.Aggregates.Delete(t.Context(), imp))
	if views, err = l.Aggregates.List(t.Context()); err != nil || len(views) != 0 {
		t.Errorf("views = %v, %v, want none", views, err)
	}
}

// docs/spec/controller.md 7: who is expelled knows it from the broker itself.
func testExpelled(t *testing.T, a admin) {
	l := connect(t, a.cp.Config(), func(c *broker.Config) { c.ClusterID, c.Namespace = "north", namespaceOf("north") })
	l.awaitState(broker.Expelled)
	before := l.count(func() int { return l.membersChanged })
	a.join("north")
	l.awaitState(broker.Admitted)
	until.True(t, "a change of members", func() bool { return l.count(func() int { return l.membersChanged }) > before })
	notExpelledByAnother(t, a)
	l.awaitState(broker.Admitted)
	must(t, a.c.Delete(t.Context(), member("north")))
	a.delete(namespace("north"))
	if s := l.awaitState(broker.Expelled); !strings.Contains(s.Detail, namespaceOf("north")) {
		t.Errorf("detail = %q, want the namespace that is gone", s.Detail)
	}
}

// notExpelledByAnother takes the label off the namespace of a member, which is a reason to ask, and has that question
// answered by what may be another API server: it does not have the namespace. All other requests reach the right one.
func notExpelledByAnother(t *testing.T, a admin) {
	t.Helper()
	var asked atomic.Int32
	cfg := a.cp.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/namespaces/"+namespaceOf("north")) {
				asked.Add(1)
				r = r.Clone(r.Context())
				r.URL.Path += "-of-another"
			}
			return next.RoundTrip(r)
		})
	})
	l := connect(t, cfg, func(c *broker.Config) { c.ClusterID, c.Namespace = "north", namespaceOf("north") })
	l.awaitState(broker.Admitted)
	ns := namespace("north")
	must(t, a.c.Get(t.Context(), ns, "", ns.Name))
	delete(ns.Labels, api.LabelClusterID)
	must(t, a.c.Update(t.Context(), ns))
	// The second question follows when the first one did not confirm a removal.
	until.True(t, "an answer", func() bool { return asked.Load() > 1 || l.State().Membership == broker.Expelled })
	if s := l.State(); s.Membership != broker.Unknown {
		t.Errorf("state = %+v after an answer of another API server, want unknown", s)
	}
	a.join("north")
	l.awaitState(broker.Admitted)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func testLost(t *testing.T, a admin) {
	l := connect(t, a.cp.Config())
	l.awaitRecords(db, "east", "west")
	a.cp.KillAPIServer()
	until.True(t, "no link, and why", func() bool { return !l.State().Link && l.State().Detail != "" })
	if s := l.State(); s.Membership != broker.Admitted || len(l.Records(db)) != 2 {
		t.Errorf("state = %+v with %d records, want all that was known", s, len(l.Records(db)))
	}
	if err := l.Heartbeats.Renew(t.Context(), l.Own.Stamp(), 90*time.Second, 7, ""); err == nil {
		t.Error("renewed on a broker that is away")
	}
	absent := connect(t, a.cp.Config()) // down at start
	until.True(t, "a reason", func() bool { return strings.Contains(absent.Waiting(), "refused") })
	if absent.Synced() || absent.State().Link || absent.State().Membership != broker.Unknown {
		t.Errorf("state = %+v of a broker that was never reached", absent.State())
	}
	must(t, a.cp.StartAPIServer(t.Context()))
	for _, l := range []*link{l, absent} {
		until.True(t, "a link", func() bool { return l.State().Link && l.Synced() })
		l.awaitRecords(db, "east", "west")
	}
	cfg := a.cp.Config()
	cfg.BearerToken = "revoked"
	revoked := connect(t, cfg)
	until.True(t, "a rejected credential", func() bool {
		s := revoked.State()
		return s.Credential && !s.Link && strings.HasPrefix(s.Detail, "credential") && revoked.Waiting() != ""
	})
	// It ends though the broker does not answer.
	must(t, a.cp.Freeze())
	until.True(t, "no link", func() bool { return !l.State().Link })
	absent.stop()
	must(t, a.cp.Thaw())
	until.True(t, "a link", func() bool { return l.State().Link })
}

// docs/spec/controller.md 8: what this member wrote since is forgotten with the broker's. A broker that is restored
// from a backup is followed there. If it has counted its versions up since to those that were seen, only the heartbeat
// shows it (docs/spec/controller.md 8.5).
func testRestored(t *testing.T, a admin) {
	saved, err := a.cp.SaveEtcd(t.Context())
	must(t, err)
	cfg := a.cp.Config()
	var away atomic.Bool
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			return nil, syscall.ECONNREFUSED
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	l := connect(t, cfg)
	until.True(t, "synced", l.Synced)
	before := l.Own.Services()
	write := func() {
		t.Helper()
		for i := range 20 {
			must(t, l.Own.ApplyRecord(t.Context(), record("east", types.NamespacedName{Namespace: "late",
				Name: fmt.Sprint("x", i)})))
		}
	}
	beat := func() (protocol.Stamp, error) {
		stamp := l.Own.Stamp()
		return stamp, l.Heartbeats.Renew(t.Context(), stamp, 90*time.Second, 7, "")
	}
	write()
	last, err := beat()
	must(t, err)
	away.Store(true)
	must(t, a.cp.RestoreEtcd(t.Context(), saved))
	for i := range 100 {
		a.apply(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf("east"), Name: fmt.Sprint("filler-", i)}})
	}
	away.Store(false)
	until.True(t, "a conflict of the heartbeat", func() bool {
		_, err := beat()
		return apierrors.IsConflict(err)
	})
	h, err := l.Heartbeats.Last(t.Context())
	if must(t, err); h.Stamp >= last {
		t.Errorf("heartbeat %+v, want one of before %s", h, last)
	}
	l.ListAnew()
	until.True(t, "the restored state, with later versions", func() bool { return slices.Equal(l.Own.Services(), before) })
	write()
	must(t, a.cp.RestoreEtcd(t.Context(), saved))
	until.True(t, "the restored state", func() bool { return slices.Equal(l.Own.Services(), before) })
	must(t, l.Own.ApplyRecord(t.Context(), record("east", web)))
	until.True(t, "the new one", func() bool { return len(l.Own.Services()) == len(before)+1 })
	l.awaitRecords(web, "east")
}

// docs/spec/controller.md 7.4: a cluster that was removed stays so if the broker is restored to before the mark, for
// later processes, too, until it joins anew.
func markIsLost(t *testing.T, a admin) {
	t.Helper()
	a.join("south")
	l := connect(t, a.cp.Config())
	until.True(t, "the member", func() bool { return l.Members.Get("south") != nil })
	annotate := func(key, value string) {
		t.Helper()
		ns := namespace("south")
		must(t, a.c.Get(t.Context(), ns, "", ns.Name))
		ns.Annotations = map[string]string{}
		if key != "" {
			ns.Annotations[key] = value
		}
		must(t, a.c.Update(t.Context(), ns))
	}
	annotate(api.AnnotationRemoved, "2026-01-01T00:00:00Z")
	until.True(t, "the mark", func() bool { return l.Members.Removed("south") && len(l.Members.Noted().Removed) == 1 })
	if _, is := l.Members.Noted().Members["south"]; is {
		t.Error("a removed member is noted, want that a cluster of its id begins anew")
	}
	annotate("", "")
	without := connect(t, a.cp.Config())
	until.True(t, "a member for who did not note the mark", func() bool { return without.Members.Get("south") != nil })
	later := connect(t, a.cp.Config(), func(c *broker.Config) {
		c.ClusterID, c.Namespace, c.Noted = "south", namespaceOf("south"), l.Members.Noted()
		c.Noted.Removed["old"] = wellknown.Mark{At: time.Now().Add(-366 * 24 * time.Hour)}
	})
	later.awaitState(broker.Expelled)
	if !l.Members.Removed("south") || l.Members.Get("south") != nil || len(later.Members.Noted().Removed) != 1 {
		t.Errorf("removed: %t, marks %v; want that it stays, and marks of more than a year ago do not",
			l.Members.Removed("south"), later.Members.Noted().Removed)
	}
	annotate(api.AnnotationJoined, "now")
	until.True(t, "a member by a new join", func() bool { return l.Members.Get("south") != nil })
	later.awaitState(broker.Admitted)
	annotate("", "")
	until.True(t, "a member on a broker restored to before a removal that a join has undone", func() bool {
		ns := namespace("south")
		must(t, a.c.Get(t.Context(), ns, "", ns.Name))
		return len(ns.Annotations) == 0 && l.Members.Get("south") != nil && len(l.Members.Noted().Removed) == 0
	})
	later.awaitState(broker.Admitted)
	must(t, a.c.Delete(t.Context(), member("south")))
	a.delete(namespace("south"))
}

// docs/spec/controller.md 7.4: the newest known Member counts after a restore of the broker, also for later processes.
func memberIsOld(t *testing.T, a admin) {
	t.Helper()
	l := connect(t, a.cp.Config())
	write := func(stamp, cidr string) {
		m := member("south")
		m.Annotations, m.Spec.PodCIDRs = map[string]string{api.AnnotationStamp: stamp}, []string{cidr}
		a.apply(namespace("south"), m)
	}
	await := func(l *link, cidr string, old bool) {
		t.Helper()
		until.True(t, "the networks", func() bool {
			m := l.Members.Get("south")
			return m != nil && m.Spec.PodCIDRs[0] == cidr && l.Members.HasOlder("south") == old
		})
	}
	write("2", "10.2.0.0/16")
	await(l, "10.2.0.0/16", false)
	write("1", "10.1.0.0/16")
	await(l, "10.2.0.0/16", true)
	await(connect(t, a.cp.Config()), "10.1.0.0/16", false)
	await(connect(t, a.cp.Config(), func(c *broker.Config) { c.Noted = l.Members.Noted() }), "10.2.0.0/16", true)
	write("3", "10.3.0.0/16")
	await(l, "10.3.0.0/16", false)
	write("3", "10.4.0.0/16") // by hand
	await(l, "10.4.0.0/16", false)

	unknown, svc := member("south"), types.NamespacedName{Namespace: "shop", Name: "new"}
	unknown.Spec.Protocol = api.Protocol + 1
	a.apply(unknown, record("south", svc))
	until.True(t, "a rejection of another protocol", func() bool {
		return l.Members.Get("south") == nil && len(l.Records(svc)) == 0 && l.count(func() int {
			return strings.Count(fmt.Sprint(l.rejected), "new.shop cluster_id Member south: protocol 2")
		}) > 0
	})
	if l.Members.Removed("south") {
		t.Error("a member of another protocol counts as removed")
	}
	must(t, a.c.Delete(t.Context(), member("south")))
	a.delete(namespace("south"))
}

func testMembership(t *testing.T, a admin) {
	memberIsOld(t, a)
	markIsLost(t, a)
	wrong := connect(t, a.cp.Config(), func(c *broker.Config) { c.UID = "another" })
	if s := wrong.awaitState(broker.Replaced); s.Link || wrong.Synced() {
		t.Errorf("state = %+v of another cluster", s)
	}
	l := connect(t, a.cp.Config())
	l.awaitState(broker.Admitted)
	for _, id := range []string{"west", "east"} {
		must(t, a.c.Delete(t.Context(), member(id)))
	}
	for i := range 50 {
		a.delete(namespace(fmt.Sprint("n", i)))
	}
	a.delete(namespace("east"))
	l.awaitState(broker.Empty)
	must(t, a.cp.DeleteCRDs(t.Context(), crd.ExportedServices))
	fresh := connect(t, a.cp.Config())
	fresh.awaitState(broker.NoCRDs)
	until.True(t, "a wait for ExportedService", func() bool {
		return strings.Contains(fresh.Waiting(), "ExportedService")
	})
	if fresh.Synced() {
		t.Error("synced without ExportedService")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
