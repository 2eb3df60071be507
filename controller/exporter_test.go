package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/lease"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// Section 6: what Ready says.
func TestReadiness(t *testing.T) {
	valid := export.Result{Reason: mcsv1beta1.ServiceExportReasonValid}
	denied := fmt.Errorf("broker: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "exportedservices"}, "db.shop", fmt.Errorf("exceeded quota")))
	starting := fmt.Errorf("broker: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "exportedservices"}, "db.shop",
		fmt.Errorf("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found")))
	lost := fmt.Errorf("broker: %w", context.DeadlineExceeded)
	busy := fmt.Errorf("broker: %w", apierrors.NewTooManyRequests("busy", 1))
	const waiting = "Waiting for the broker: the last attempt failed and is repeated."
	for _, tt := range []struct {
		name string
		r    export.Result
		o    outcome
		has  bool
		want string
	}{
		{name: "exported", r: valid, has: true, want: "True Exported The broker has this export."},
		{name: "exported in part", r: export.Result{Reason: valid.Reason, Dropped: []string{"A is not.", "B is not."}}, has: true,
			want: "True Exported The broker has this export. A is not. B is not."},
		{name: "not valid", r: export.Result{Reason: "NoService"}, want: "False Pending Nothing is exported until the export is valid."},
		{name: "no record can say it", r: export.Result{Reason: valid.Reason, Failed: "Too much."}, want: "False Failed Too much."},
		{name: "link lost before", r: valid, o: outcome{awaited: "Waiting."}, want: "Unknown Pending Waiting."},
		{name: "link lost afterwards", r: valid, o: outcome{awaited: "Waiting."}, has: true, want: "True Exported The broker has this export."},
		{name: "refused", r: valid, o: outcome{err: denied},
			want: `False Failed The broker refuses the export: exportedservices "db.shop" is forbidden: exceeded quota`},
		{name: "a slice refused", r: valid, o: outcome{err: denied}, has: true,
			want: `False Failed The broker refuses the export: exportedservices "db.shop" is forbidden: exceeded quota`},
		{name: "no answer", r: valid, o: outcome{err: lost}, want: "Unknown Pending " + waiting},
		{name: "a broker that has just started", r: valid, o: outcome{err: starting}, want: "Unknown Pending " + waiting},
		{name: "too many requests", r: valid, o: outcome{err: busy}, want: "Unknown Pending " + waiting},
		{name: "no answer to a slice", r: valid, o: outcome{err: lost}, has: true, want: "True Exported The broker has this export."},
		{name: "no clusterset IP", r: valid, o: outcome{failed: "None."}, has: true, want: "False Failed None."},
		{name: "no view", r: valid, o: outcome{view: denied}, has: true, want: "True Exported The broker has this export."},
	} {
		c := readiness(tt.r, tt.o, tt.has)
		if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := exportedMessage(slices.Repeat([]string{"X is not."}, 12)); !strings.HasSuffix(got, "X is not. 2 more are not exported.") {
		t.Errorf("message = %q, want the first ten and the number of the others", got)
	}
}

// Section 10: a restart without change is no write, even before the broker has answered.
func TestOutlivesRestart(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for _, tt := range []struct {
		name   string
		was    metav1.Condition
		is     metav1.ConditionStatus
		stands bool
	}{
		{name: "exported", was: condition("Ready", yes, "Exported", earlier), is: unknown, stands: true},
		{name: "failed", was: condition("Ready", no, "Failed", earlier), is: unknown, stands: true},
		{name: "waiting already", was: condition("Ready", unknown, "Pending", earlier), is: unknown},
		{name: "not valid before", was: condition("Ready", no, "Pending", earlier), is: unknown},
		{name: "not valid now", was: condition("Ready", yes, "Exported", earlier), is: no},
		{name: "another generation", was: metav1.Condition{Status: yes, Reason: "Exported", ObservedGeneration: 2}, is: unknown},
	} {
		is := condition("Ready", tt.is, "Pending", later)
		if got := outlivesRestart(&tt.was, &is); got != tt.stands {
			t.Errorf("%s: stands = %t, want %t", tt.name, got, tt.stands)
		}
	}
	is := condition("Ready", unknown, "Pending", later)
	if outlivesRestart(nil, &is) {
		t.Error("a condition that is not there stands")
	}
}

// Section 10: what the broker has is not written again.
func TestSameExportedSlice(t *testing.T) {
	slice := func(f func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"ours": "1"}, Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: "now"},
			},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
			Ports:     []discoveryv1.EndpointPort{{Name: new("pg"), Port: new(int32(5432))}},
		}
		f(s)
		return s
	}
	for _, tt := range []struct {
		name   string
		change func(*discoveryv1.EndpointSlice)
		same   bool
	}{
		{name: "nothing", change: func(*discoveryv1.EndpointSlice) {}, same: true},
		{name: "a label of others", change: func(s *discoveryv1.EndpointSlice) { s.Labels["theirs"] = "2" }, same: true},
		{name: "the time alone", change: func(s *discoveryv1.EndpointSlice) { s.Annotations = nil }, same: true},
		{name: "a label of ours", change: func(s *discoveryv1.EndpointSlice) { s.Labels["ours"] = "2" }},
		{name: "an address", change: func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.1.0.2" }},
		{name: "readiness", change: func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }},
		{name: "a port", change: func(s *discoveryv1.EndpointSlice) { s.Ports = nil }},
	} {
		want := slice(func(*discoveryv1.EndpointSlice) {})
		if got := sameExportedSlice(want, slice(tt.change)); got != tt.same {
			t.Errorf("%s: same = %t, want %t", tt.name, got, tt.same)
		}
	}
}

// A stage is a member and its broker on one API server. Its services are reconciled by hand.
type stage struct {
	*testing.T
	server *controlplane.ControlPlane
	admin  *apiserver.Client
}

const stageID = "east"

var (
	stageNamespace = apibroker.NamespaceName("member", stageID)
	db             = types.NamespacedName{Namespace: "shop", Name: "db"}
)

func newStage(t *testing.T) *stage {
	server := controlplane.StartT(t, controlplane.Options{CRDs: append(controlplane.DefaultCRDs(), crd.ExportedServices, crd.Members)})
	admin, err := apiserver.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	b := &stage{T: t, server: server, admin: admin}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	b.join(stageID, "243.0.0.4/31")
	return b
}

func (b *stage) create(objects ...apiserver.Object) {
	b.Helper()
	for _, o := range objects {
		if err := b.admin.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *stage) delete(objects ...apiserver.Object) {
	b.Helper()
	for _, o := range objects {
		if err := b.admin.Delete(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

// join makes a member.
func (b *stage) join(id, vips string) {
	b.Helper()
	namespace := apibroker.NamespaceName("member", id)
	b.create(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{apibroker.LabelClusterID: id}}},
		&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.MemberSpec{
			KubeSystemUID: "01234567-89ab-cdef-0123-456789abcdef", Namespace: namespace, VIPCIDR: vips,
		}},
	)
}

// await waits until ok returns true.
func (b *stage) await(what string, ok func() bool) {
	b.Helper()
	until.True(b, what, ok)
}

// An actor is one instance of the controller of the stage, with what it wrote.
type actor struct {
	*stage
	*session
	writes *writes
	end    func()
}

// act returns an instance whose caches are complete. It ends with the test, or by end.
func (b *stage) act(set func(*Config)) *actor {
	b.Helper()
	a := &actor{stage: b, writes: &writes{}}
	cfg := Defaults()
	cfg.Local, cfg.Log, cfg.Metrics = b.server.Config(), logging.Discard, NewMetrics(nil)
	cfg.Local.Wrap(func(next http.RoundTripper) http.RoundTripper { return a.writes.over(next) })
	set(&cfg)
	f := lease.NewFence(time.Hour)
	f.Renew(time.Now())
	s, err := newSession(cfg, "test", f, kinds{})
	if err != nil {
		b.Fatal(err)
	}
	s.member = &membership{identity: identity{id: stageID, digest: "1"}, namespace: stageNamespace}
	s.member.set(standing{id: stageID, settled: true})
	s.vips, s.views = newVIPs(s), newViews(s)
	rest := guarded(cfg.Local, sideBroker, f, cfg.Metrics)
	rest.QPS, rest.Burst = cfg.QPS, cfg.Burst
	s.broker, err = broker.New(broker.Config{REST: rest, Namespace: stageNamespace, ClusterID: stageID, Log: s.log, Changed: s.brokerChanged})
	if err != nil {
		b.Fatal(err)
	}
	a.session = s
	ctx, cancel := context.WithCancel(b.Context())
	var g errgroup.Group
	for _, run := range []func(context.Context) error{s.local.run, s.broker.Run, s.events.Run} {
		g.Go(func() error { return run(ctx) })
	}
	a.end = sync.OnceFunc(func() {
		cancel()
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
		s.broker.Close()
		s.local.client.Close()
	})
	b.Cleanup(a.end)
	b.await("caches", func() bool { return s.local.synced() && s.broker.Synced() && s.awaited() == "" })
	return a
}

// do reconciles a service, once ready says that the caches are where they should be, and returns what was written.
func (a *actor) do(svc types.NamespacedName, what string, ready func() bool) []string {
	a.Helper()
	a.await(what, ready)
	a.writes.take()
	if err := a.reconcileExport(a.Context(), svc); err != nil {
		a.Fatalf("%s: %v", what, err)
	}
	if r, _ := a.exported(svc); !a.published(svc, r) && a.member.ClusterID() != "" {
		a.Errorf("%s: something is still to be written", what)
	}
	return a.writes.take()
}

// expect fails unless just that was written.
func (a *actor) expect(what string, got []string, want ...string) {
	a.Helper()
	if !slices.Equal(got, want) {
		a.Errorf("%s: writes = %q, want %q", what, got, want)
	}
}

// conditions returns those of the export as the API server has them, but for the messages.
func (a *actor) conditions(svc types.NamespacedName) string {
	a.Helper()
	exp := &mcsv1beta1.ServiceExport{}
	if err := a.admin.Get(a.Context(), exp, svc.Namespace, svc.Name); err != nil {
		a.Fatal(err)
	}
	var text []string
	for _, c := range exp.Status.Conditions {
		if c.ObservedGeneration != exp.Generation || c.LastTransitionTime.IsZero() {
			a.Errorf("condition %+v of generation %d, want that and a time", c, exp.Generation)
		}
		text = append(text, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// writes are the requests that changed something, but for Events.
type writes struct {
	mu    sync.Mutex
	all   []string
	reads bool // of single objects are among them: what is known from a watch is not asked for
}

func (w *writes) withReads() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = true
}

func (w *writes) over(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		w.mu.Lock()
		read := r.Method == http.MethodGet && (!w.reads || r.URL.RawQuery != "")
		if !read && !strings.HasSuffix(r.URL.Path, "/events") {
			w.all = append(w.all, r.Method+" "+strings.ReplaceAll(r.URL.Path[strings.LastIndex(r.URL.Path, "/namespaces/")+len("/namespaces/"):],
				stageNamespace, "broker"))
		}
		w.mu.Unlock()
		return next.RoundTrip(r)
	})
}

func (w *writes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newExport(svc types.NamespacedName) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
}

func newService(svc types.NamespacedName) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "pg", Port: 5432}}},
	}
}

func newSourceSlice(svc types.NamespacedName, name, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("pg"), Port: new(int32(5432))}},
	}
}

const (
	statusWrite = "PATCH shop/serviceexports/db/status"
	recordWrite = "PATCH broker/exportedservices/db.shop"
)

func sliceWrite(method, source string) string {
	return method + " broker/endpointslices/" + apibroker.SliceName("shop", "db", source)
}

// Sections 3, 6 and 10: what is written for an export in its life, and what is not.
func TestExportLife(t *testing.T) {
	b := newStage(t)
	a := b.act(func(*Config) {})
	exp, service, source := newExport(db), newService(db), newSourceSlice(db, "db-1", "10.1.0.1")
	b.create(exp)
	a.expect("without a Service", a.do(db, "export seen", func() bool { return a.local.Export(db) != nil }), statusWrite)
	if got, want := a.conditions(db), "Ready=False/Pending Valid=False/NoService"; got != want {
		t.Errorf("without a Service: conditions = %s, want %s", got, want)
	}
	again := func() bool { return true }
	a.expect("without a Service, again", a.do(db, "", again))

	b.create(service, source)
	got := a.do(db, "service seen", func() bool { return a.local.Service(db) != nil && len(a.local.SourceSlices(db)) == 1 })
	a.expect("export", got, sliceWrite("PATCH", "db-1"), recordWrite, statusWrite)
	if got, want := a.conditions(db), "Ready=True/Exported Valid=True/Valid"; got != want {
		t.Errorf("exported: conditions = %s, want %s", got, want)
	}
	a.expect("export, again", a.do(db, "", again))

	source.Endpoints[0].Conditions.Ready = new(false)
	if err := b.admin.Update(b.Context(), source); err != nil {
		t.Fatal(err)
	}
	got = a.do(db, "flip seen", func() bool { return !*a.local.SourceSlices(db)[0].Endpoints[0].Conditions.Ready })
	a.expect("one endpoint flips", got, sliceWrite("PATCH", "db-1"))

	a.end()
	a = b.act(func(*Config) {})
	a.expect("a restart", a.do(db, "", again))

	a.writes.withReads()
	b.delete(source)
	b.create(newSourceSlice(db, "db-2", "10.1.0.2"))
	got = a.do(db, "move seen", func() bool {
		s := a.local.SourceSlices(db)
		return len(s) == 1 && s[0].Name == "db-2"
	})
	a.expect("a new slice before the old one goes", got, sliceWrite("PATCH", "db-2"), sliceWrite("DELETE", "db-1"))

	b.delete(exp)
	got = a.do(db, "end of export seen", func() bool { return a.local.Export(db) == nil })
	a.expect("withdrawn", got, "DELETE broker/exportedservices/db.shop", sliceWrite("DELETE", "db-2"))
	a.expect("withdrawn, again", a.do(db, "", again))
	b.orphan(a)
	b.outside(a)
}

// Section 7: what a cluster takes out of the clusterset it does not call exported.
func TestExportWhileLeaving(t *testing.T) {
	b := newStage(t)
	a := b.act(func(*Config) {})
	b.create(newExport(db), newService(db))
	a.do(db, "export seen", func() bool { return a.local.Export(db) != nil && a.local.Service(db) != nil })
	b.create(&aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: about.ClusterSetName, Annotations: map[string]string{apibroker.AnnotationLeaving: "now"}},
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: "demo"},
	})
	a.await("leaving", a.leaving)
	a.member.set(standing{settled: true})
	a.expect("leaving", a.do(db, "", func() bool { return true }), "DELETE broker/exportedservices/db.shop", statusWrite)
	if got, want := a.conditions(db), "Ready=False/Pending Valid=False/NotMember"; got != want {
		t.Errorf("leaving: conditions = %s, want %s", got, want)
	}
}

// orphan leaves a record and a slice behind that no export stands for.
func (b *stage) orphan(a *actor) {
	b.Helper()
	labels := map[string]string{
		mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: stageID, apibroker.LabelSourceNamespace: "shop",
	}
	slice := newSourceSlice(db, apibroker.SliceName("shop", "db", "old"), "10.1.0.9")
	slice.Namespace, slice.Labels = stageNamespace, labels
	b.create(slice)
	got := a.do(db, "orphan seen", func() bool { return slices.Contains(a.broker.OwnServices(), db) })
	a.expect("an orphan", got, sliceWrite("DELETE", "old"))
}

// outside has the cluster be no member.
func (b *stage) outside(a *actor) {
	b.Helper()
	b.create(newExport(db))
	a.member.set(standing{settled: true})
	got := a.do(db, "export seen again", func() bool { return a.local.Export(db) != nil })
	a.expect("not a member", got, statusWrite)
	if got, want := a.conditions(db), "Ready=False/Pending Valid=False/NotMember"; got != want {
		b.Errorf("not a member: conditions = %s, want %s", got, want)
	}
	a.member.set(standing{})
	a.expect("not settled", a.do(db, "", func() bool { return true }))
}

// Section 6: each author has conditions of its own; an Event on each transition.
func TestConditionsOfTwoAuthors(t *testing.T) {
	b := newStage(t)
	a := b.act(func(c *Config) { c.LegacyConditions = true })
	b.create(newService(db), newExport(db))
	seen := func() bool { return a.local.Export(db) != nil && a.local.Service(db) != nil }
	a.do(db, "export seen", seen)
	const legacy = "Exported=True/Exported Initialized=True/Valid "
	const valid = "Ready=True/Exported Valid=True/Valid"
	if got := a.conditions(db); got != legacy+valid {
		t.Errorf("conditions = %s, want %s", got, legacy+valid)
	}
	set := func(want ...metav1.Condition) []string {
		t.Helper()
		a.writes.take()
		if err := a.setConditions(t.Context(), a.local.Export(db), merge.FieldManager, want); err != nil {
			t.Fatal(err)
		}
		return a.writes.take()
	}
	conflict := merge.Condition([]merge.Conflict{{Reason: mcsv1beta1.ServiceExportReasonPortConflict, Message: "Conflicting ports."}}, 1)
	a.expect("conflict", set(conflict), statusWrite)
	a.expect("conflict, again", set(conflict))
	if got, want := a.conditions(db), "Conflict=True/PortConflict "+legacy+valid; got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	a.expect("the other author", a.do(db, "", seen))
	a.expect("no conflict", set(merge.Condition(nil, 1)), statusWrite)

	b.await("events", func() bool { return len(b.events()) >= 4 })
	want := []string{"Normal Exported", "Normal NoConflicts", "Normal Valid", "Warning PortConflict"}
	if got := b.events(); !slices.Equal(got, want) {
		t.Errorf("events = %q, want %q", got, want)
	}

	a.end()
	a = b.act(func(*Config) {})
	a.expect("legacy conditions off", a.do(db, "export seen", seen), statusWrite)
	if got, want := a.conditions(db), "Conflict=False/NoConflicts "+valid; got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	a.expect("conflict taken away", set(), statusWrite)
	if got := a.conditions(db); got != valid {
		t.Errorf("conditions = %s, want %s", got, valid)
	}
	a.expect("conflict taken away, again", set())

	gone := a.local.Export(db)
	b.delete(newExport(db))
	if err := a.setConditions(t.Context(), gone, merge.FieldManager, []metav1.Condition{conflict}); err != nil {
		t.Errorf("condition of an export that is gone: %v", err)
	}
}

// events returns type and reason of all of ours, sorted.
func (b *stage) events() []string {
	b.Helper()
	list := &eventsv1.EventList{}
	if err := b.admin.List(b.Context(), &eventsv1.Event{}, list, "shop", ""); err != nil {
		b.Fatal(err)
	}
	var text []string
	for i := range list.Items {
		e := &list.Items[i]
		if e.ReportingController != apibroker.ManagedBy || e.Regarding.Name != "db" || e.Note == "" {
			b.Errorf("event = %+v, want one of ours on the export", e)
		}
		text = append(text, e.Type+" "+e.Reason)
	}
	slices.Sort(text)
	return text
}
