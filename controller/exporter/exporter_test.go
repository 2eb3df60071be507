package exporter

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

const (
	statusWrite = "PATCH shop/serviceexports/db/status"
	recordWrite = "PATCH broker/exportedservices/db.shop"
)

func sliceWrite(method, source string) string {
	return method + " broker/endpointslices/" + apibroker.SliceName("shop", "db", source)
}

// docs/spec/controller.md 3, docs/spec/controller.md 6, docs/spec/controller.md 10: the writes for an export in its
// life.
func TestExportLife(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	exp, service, source := memberenv.NewExport(db), memberenv.NewService(db),
		memberenv.NewSourceSlice(db, "db-1", "10.1.0.1")
	b.Create(exp)
	a.Expect("without a Service", a.do(db, "export seen", func() bool { return a.Member.Export(db) != nil }), statusWrite)
	if got, want := a.ConditionsOf(db), "Ready=False/Pending Valid=False/NoService"; got != want {
		t.Errorf("without a Service: conditions = %s, want %s", got, want)
	}
	again := func() bool { return true }
	a.Expect("without a Service, again", a.do(db, "", again))

	b.Create(service, source)
	got := a.do(db, "service seen", func() bool {
		return a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	})
	a.Expect("export", got, sliceWrite("PATCH", "db-1"), recordWrite, statusWrite)
	if got, want := a.ConditionsOf(db), "Ready=True/Exported Valid=True/Valid"; got != want {
		t.Errorf("exported: conditions = %s, want %s", got, want)
	}
	a.Expect("export, again", a.do(db, "", again))
	b.foreignImport(a)
	b.selectors(a)

	source.Endpoints[0].Conditions.Ready = new(false)
	if err := b.Admin.Update(b.Context(), source); err != nil {
		t.Fatal(err)
	}
	got = a.do(db, "flip seen", func() bool { return !*a.Member.SourceSlices(db)[0].Endpoints[0].Conditions.Ready })
	a.Expect("one endpoint flips", got, sliceWrite("PATCH", "db-1"))

	a.End()
	a = b.start(func(*Config) {})
	a.Expect("a restart", a.do(db, "", again))

	a.Writes.WithReads()
	b.Delete(source)
	b.Create(memberenv.NewSourceSlice(db, "db-2", "10.1.0.2"))
	got = a.do(db, "move seen", func() bool {
		s := a.Member.SourceSlices(db)
		return len(s) == 1 && s[0].Name == "db-2"
	})
	a.Expect("a new slice before the old one goes", got, sliceWrite("PATCH", "db-2"), recordWrite,
		sliceWrite("DELETE", "db-1"))

	a = b.unreadable(a)

	b.Delete(exp)
	got = a.do(db, "end of export seen", func() bool { return a.Member.Export(db) == nil })
	a.Expect("withdrawn", got, "DELETE broker/exportedservices/db.shop", sliceWrite("DELETE", "db-2"))
	a.Expect("withdrawn, again", a.do(db, "", again))
	b.orphan(a)
	b.outside(a)
}

// selectors annotates the export: docs/spec/selection.md 1.1. At last it is as before.
func (b *env) selectors(a *exporting) {
	b.Helper()
	exports := b.Server.Dynamic().Resource(mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")).Namespace(
		db.Namespace)
	for _, tt := range []struct {
		name, key, value string // no annotation without a value
		writes           []string
		conditions       string
		selectors        int
	}{
		{"malformed", apibroker.AnnotationSelectors, `[{}]`,
			[]string{statusWrite, "DELETE broker/exportedservices/db.shop", sliceWrite("DELETE", "db-1")},
			"Ready=False/Pending Valid=False/InvalidClusterSelector", 0},
		{"corrected", apibroker.AnnotationSelectors, "",
			[]string{sliceWrite("PATCH", "db-1"), recordWrite, statusWrite}, "Ready=True/Exported Valid=True/Valid", 0},
		{"unknown", apibroker.AnnotationAffinity, "near", []string{statusWrite},
			"Ready=True/Exported Valid=True/AnnotationIgnored", 0},
		{"known", apibroker.AnnotationAffinity, "region", []string{recordWrite, statusWrite},
			"Ready=True/Exported Valid=True/Valid", 2},
		{"removed", apibroker.AnnotationAffinity, "", []string{recordWrite}, "Ready=True/Exported Valid=True/Valid", 0},
	} {
		value := any(tt.value)
		if tt.value == "" {
			value = nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{tt.key: value}}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := exports.Patch(b.Context(), db.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
		a.Expect(tt.name, a.do(db, tt.name, func() bool { return a.Member.Export(db).Annotations[tt.key] == tt.value }),
			tt.writes...)
		if got := a.ConditionsOf(db); got != tt.conditions {
			b.Errorf("%s: conditions = %s, want %s", tt.name, got, tt.conditions)
		}
		record, _ := a.Broker.Own.Objects(db)
		if got := record != nil; got != (tt.name != "malformed") {
			b.Errorf("%s: a record = %t", tt.name, got)
		}
		if record != nil && len(record.Spec.ClusterSelectors) != tt.selectors {
			b.Errorf("%s: selectors = %v, want %d", tt.name, record.Spec.ClusterSelectors, tt.selectors)
		}
	}
	for _, want := range []string{"Warning InvalidClusterSelector", "Warning AnnotationIgnored"} {
		b.Await(want, func() bool { return slices.Contains(b.events(), want) })
	}
}

// unreadable: a ServiceExport that does not decode costs itself, and nothing follows from it, be it in a list or a
// change (docs/spec/controller.md 9.1).
func (b *env) unreadable(a *exporting) *exporting {
	b.Helper()
	exports := b.Server.Dynamic().Resource(mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")).Namespace(
		db.Namespace)
	setTime := func(text string) {
		b.Helper()
		patch := `{"status": {"conditions": [{"type": "Odd", "status": "True", "reason": "Odd", "message": "", "lastTransitionTime": "` + text + `"}]}}`
		if _, err := exports.Patch(b.Context(), db.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
			"status"); err != nil {
			b.Fatal(err)
		}
	}
	unread := func(a *exporting) {
		b.Helper()
		b.Await("an export that does not decode", func() bool { return a.Member.Unreadable(db) })
		b.Await("the informer lacks it", func() bool { return a.Member.Export(db) == nil })
		a.Writes.Take()
		if err := a.Reconcile(b.Context(), db); err != nil {
			b.Error(err)
		}
		a.Expect("an export that does not decode", a.Writes.Take())
		if _, _, readable := a.own.Export(db, a.Membership.Status()); readable {
			b.Error("an export that the caches lack, as it does not decode, counts as gone: want it unknown")
		}
		b.Await("it is rejected", func() bool { return slices.Contains(a.Rejected(), "ServiceExport shop/db") })
	}
	setTime("2026-01-01t00:00:00z")
	unread(a)
	a.End()
	a = b.start(func(*Config) {}) // which needs all lists
	unread(a)
	setTime("2026-01-01T00:00:00Z")
	b.Await("it decodes again", func() bool { return !a.Member.Unreadable(db) && a.Member.Export(db) != nil })
	a.Writes.WithReads()
	got := a.do(db, "", func() bool { return true })
	// The patch removed the other conditions.
	a.Expect("an export that decodes again", got, statusWrite)
	return a
}

// docs/spec/controller.md 7: a cluster that leaves withdraws its exports, and does not report them as exported.
func TestExportWhileLeaving(t *testing.T) {
	b := newEnv(t)
	var requeued []types.NamespacedName
	a := b.start(func(c *Config) {
		c.Requeue = func(svc types.NamespacedName) { requeued = append(requeued, svc) }
	})
	service := memberenv.NewService(db)
	b.Create(memberenv.NewExport(db), service)
	a.do(db, "export seen", func() bool { return a.Member.Export(db) != nil && a.Member.Service(db) != nil })

	// docs/spec/controller.md 6.2
	a.Freezes.Set(safety.Credential, "it is rejected")
	a.outage("during an outage, unchanged", "True Exported false")
	slice := memberenv.NewSourceSlice(db, "db-1", "10.1.0.2")
	b.Create(slice)
	a.Await("slice seen", func() bool { return len(a.Member.SourceSlices(db)) == 1 })
	a.outage("during an outage, with another endpoint", "Unknown Pending true", statusWrite)
	a.outage("during an outage, again", "Unknown Pending true")
	b.Delete(slice)
	a.Await("slice gone", func() bool { return len(a.Member.SourceSlices(db)) == 0 })
	a.outage("during an outage, as before", "True Exported false", statusWrite)
	a.waiting.take()
	requeued = nil // after the first write of the inventory

	// docs/spec/controller.md 3.6: what changed during an outage is written when the broker can be.
	service.Spec.Ports[0].Name = "postgres"
	b.Update(service)
	a.Await("port seen", func() bool { return a.Member.Service(db).Spec.Ports[0].Name == "postgres" })
	a.Writes.Take()
	if err := a.Reconcile(t.Context(), db); err != nil {
		t.Error(err)
	}
	a.Expect("during an outage", slices.DeleteFunc(a.Writes.Take(), func(w string) bool { return w == statusWrite }))
	if a.Review(); len(requeued) > 0 {
		t.Errorf("during an outage %v is reconciled again, want nothing", requeued)
	}
	a.Freezes.Set(safety.Credential, "")
	a.Review()
	if a.Review(); !slices.Equal(requeued, []types.NamespacedName{db}) {
		t.Errorf("after an outage %v is reconciled again, want %s, once", requeued, db)
	}
	a.Expect("after an outage", a.do(db, "", func() bool { return true }), recordWrite, statusWrite)

	// docs/spec/controller.md 7: one reconcile uses one reading of the membership, here of the moment before it got
	// unknown.
	before := a.Membership.Status()
	id := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterIDName}}
	b.Delete(id)
	a.review("no cluster id", "", false)
	if err := a.reconcile(t.Context(), db, before); err != nil {
		t.Error(err)
	}
	a.Expect("while the membership gets unknown", a.Writes.Take())
	id.Spec.Value = memberenv.ID
	b.Create(id)
	a.review("the cluster id is back", memberenv.ID, true)

	b.Leave()
	a.review("leaving", "", true)
	a.Expect("leaving", a.do(db, "", func() bool { return true }), statusWrite, "DELETE broker/exportedservices/db.shop")
	if got, want := a.ConditionsOf(db), "Valid=False/NotMember"; got != want {
		t.Errorf("leaving: conditions = %s, want %s", got, want)
	}
}

// outage reconciles db without the broker. ready is status and reason of the condition Ready, and whether its message
// names an older state on the broker: only for a changed export.
func (x *exporting) outage(name, ready string, writes ...string) {
	x.Helper()
	x.Writes.Take()
	if err := x.Reconcile(x.Context(), db); err != nil {
		x.Error(err)
	}
	x.Expect(name, x.Writes.Take(), writes...)
	c := meta.FindStatusCondition(x.Member.Export(db).Status.Conditions, "Ready")
	if got := fmt.Sprint(c.Status, " ", c.Reason, " ", strings.Contains(c.Message,
		"an older state of this export")); got != ready {
		x.Errorf("%s: Ready = %s, want %s", name, got, ready)
	}
}

// docs/spec/controller.md 6.2: while the broker is away, a restart leaves Ready as it is, and a change after it does
// not.
func TestExportAfterRestartWithoutBroker(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	slice := memberenv.NewSourceSlice(db, "db-1", "10.1.0.1")
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), slice)
	a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	})
	a.End()
	a = b.startWithoutBroker(func(*Config) {})
	a.Await("a cluster id", func() bool {
		a.Membership.Review()
		return a.Membership.Status().ClusterID != ""
	})
	a.outage("a restart", "True Exported false")
	a.outage("again", "True Exported false")
	slice.Endpoints[0].Addresses[0] = "10.1.0.2"
	b.Update(slice)
	a.Await("change seen", func() bool { return a.Member.SourceSlices(db)[0].Endpoints[0].Addresses[0] == "10.1.0.2" })
	a.outage("another endpoint", "Unknown Pending true", statusWrite)
	if got, want := a.ConditionsOf(db), "Ready=Unknown/Pending Valid=True/Valid"; got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
}

// orphan leaves a slice behind without an export.
func (b *env) orphan(a *exporting) {
	b.Helper()
	labels := map[string]string{
		mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: memberenv.ID,
		apibroker.LabelSourceNamespace: "shop",
	}
	slice := memberenv.NewSourceSlice(db, apibroker.SliceName("shop", "db", "old"), "10.1.0.9")
	slice.Namespace, slice.Labels = memberenv.Namespace, labels
	b.Create(slice)
	got := a.do(db, "orphan seen", func() bool { return slices.Contains(a.Broker.Own.Services(), db) })
	a.Expect("an orphan", got, sliceWrite("DELETE", "old"))
}

// outside makes the cluster no member, and then unknown.
func (b *env) outside(a *exporting) {
	b.Helper()
	b.Create(memberenv.NewExport(db))
	set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterSetName}}
	b.TakeOff()
	b.Delete(set)
	a.review("not a member", "", true)
	got := a.do(db, "export seen again", func() bool { return a.Member.Export(db) != nil })
	a.Expect("not a member", got, statusWrite)
	if got, want := a.ConditionsOf(db), "Valid=False/NotMember"; got != want {
		b.Errorf("not a member: conditions = %s, want %s", got, want)
	}
	theirs := memberenv.NewExport(db)
	theirs.Status.Conditions = []metav1.Condition{{
		Type: "Valid", Status: metav1.ConditionTrue, Reason: "Theirs", LastTransitionTime: metav1.Now().Rfc3339Copy(),
		ObservedGeneration: 1,
	}}
	if err := b.Admin.Apply(b.Context(), theirs, "theirs", "status"); err != nil {
		b.Fatal(err)
	}
	seen := func() bool { return len(member.OtherWriters(a.Member.Export(db))) == 1 }
	a.do(db, "conditions of another implementation", seen)
	a.Expect("beside another implementation", a.do(db, "", seen))
	if got, want := a.ConditionsOf(db), "Valid=True/Theirs"; got != want {
		b.Errorf("beside another implementation: conditions = %s, want %s", got, want)
	}

	b.JoinSet()
	b.Delete(&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterIDName}})
	a.review("no cluster id", "", false)
	a.Expect("not known", a.do(db, "", func() bool { return true }))
}

// docs/spec/controller.md 6: each author has conditions of its own; an Event for each transition.
func TestConditionsOfTwoAuthors(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) { c.LegacyConditions = true })
	b.Create(memberenv.NewService(db), memberenv.NewExport(db))
	seen := func() bool { return a.Member.Export(db) != nil && a.Member.Service(db) != nil }
	a.do(db, "export seen", seen)
	const legacy = "Exported=True/Exported Initialized=True/Valid "
	const valid = "Ready=True/Exported Valid=True/Valid"
	if got := a.ConditionsOf(db); got != legacy+valid {
		t.Errorf("conditions = %s, want %s", got, legacy+valid)
	}
	set := func(want ...metav1.Condition) []string {
		t.Helper()
		a.Writes.Take()
		_, err := a.cfg.Conditions.Set(t.Context(), a.Member.Export(db), wellknown.ManagerImporter, want, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Writes.Take()
	}
	conflict := merge.Condition([]merge.Conflict{{Reason: mcsv1beta1.ServiceExportReasonPortConflict,
		Message: "Conflicting ports."}}, 1)
	a.Expect("conflict", set(conflict), statusWrite)
	a.Expect("conflict, again", set(conflict))
	if got, want := a.ConditionsOf(db), "Conflict=True/PortConflict "+legacy+valid; got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	a.Expect("the other author", a.do(db, "", seen))
	a.Expect("no conflict", set(merge.Condition(nil, 1)), statusWrite)

	b.Await("events", func() bool { return len(b.events()) >= 4 })
	want := []string{"Normal Exported", "Normal NoConflicts", "Normal Valid", "Warning PortConflict"}
	if got := b.events(); !slices.Equal(got, want) {
		t.Errorf("events = %q, want %q", got, want)
	}

	a.End()
	a = b.start(func(*Config) {})
	a.Expect("legacy conditions off", a.do(db, "export seen", seen), statusWrite)
	if got, want := a.ConditionsOf(db), "Conflict=False/NoConflicts "+valid; got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	a.Expect("conflict removed", set(), statusWrite)
	if got := a.ConditionsOf(db); got != valid {
		t.Errorf("conditions = %s, want %s", got, valid)
	}
	a.Expect("conflict removed, again", set())
	b.overwrite(a)

	gone := a.Member.Export(db)
	b.Delete(memberenv.NewExport(db))
	if _, err := a.cfg.Conditions.Set(t.Context(), gone, wellknown.ManagerImporter,
		[]metav1.Condition{conflict}, nil); err != nil {
		t.Errorf("condition of an export that is gone: %v", err)
	}
}

// events returns type and reason of all of ours, sorted.
func (b *env) events() []string {
	b.Helper()
	list := &eventsv1.EventList{}
	if err := b.Admin.List(b.Context(), &eventsv1.Event{}, list, "shop", ""); err != nil {
		b.Fatal(err)
	}
	var text []string
	for i := range list.Items {
		e := &list.Items[i]
		if e.ReportingController == "ipallocator-repair-controller" {
			continue // of an API server that is slow to note its cluster IPs
		}
		if e.ReportingController != apibroker.ManagedBy || e.Regarding.Name != "db" || e.Note == "" {
			b.Errorf("event = %+v, want one of ours on the export", e)
		}
		text = append(text, e.Type+" "+e.Reason)
	}
	slices.Sort(text)
	return text
}

// foreignImport is in the way of the import of an export, which reports it.
func (b *env) foreignImport(a *exporting) {
	b.Helper()
	theirs := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}},
	}
	b.Create(theirs)
	a.Expect("a foreign import", a.do(db, "foreign import seen", func() bool { return a.Member.Import(db) != nil }),
		statusWrite)
	ready := meta.FindStatusCondition(a.Member.Export(db).Status.Conditions, "Ready")
	if want := "The broker has this export. A ServiceImport of this name that is not ours exists: this cluster does not import the service."; ready.Message != want {
		b.Errorf("a foreign import: %s, want %s", ready.Message, want)
	}
	b.Delete(theirs)
	a.Expect("without it", a.do(db, "foreign import gone", func() bool { return a.Member.Import(db) == nil }), statusWrite)
}

// overwrite is another implementation that writes its own conditions over ours each time: the times between our writes
// double, however fast it is (docs/spec/controller.md 6.4).
func (b *env) overwrite(a *exporting) {
	b.Helper()
	const times = 12
	began, writes := time.Now(), 0
	for n := range times {
		theirs := memberenv.NewExport(db)
		reason := fmt.Sprintf("Theirs%d", n)
		theirs.Status.Conditions = []metav1.Condition{{
			Type: "Valid", Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now().Rfc3339Copy(),
			ObservedGeneration: 1,
		}}
		if err := b.Admin.Apply(b.Context(), theirs, "theirs", "status"); err != nil {
			b.Fatal(err)
		}
		writes += len(a.do(db, "overwritten", func() bool {
			return meta.FindStatusCondition(a.Member.Export(db).Status.Conditions, "Valid").Reason == reason
		}))
	}
	// A write as soon as a second has passed since our last one, and another each time the wait doubles.
	b.Await("ours again", func() bool {
		writes += len(a.do(db, "", func() bool { return true }))
		return writes > 0
	})
	if most := 2 + bits.Len(uint(time.Since(began).Seconds())); writes > most {
		b.Errorf("overwritten %d times in %s: %d writes, want at most %d", times, time.Since(began), writes, most)
	}
}
