package exporter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 2.6: entries of the inventory, and writes after a rollback of the broker.
func TestInventory(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	again := func() bool { return true }
	exp, source := memberenv.NewExport(db), memberenv.NewSourceSlice(db, "db-1", "10.1.0.1")
	b.Create(exp, memberenv.NewService(db), source)
	exported := func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	}
	a.do(db, "export seen", exported)
	for part := range a.inventory.wake {
		if due, own := a.inventory.due(part), part == apibroker.InventoryPart(db.Namespace, db.Name); due == own {
			t.Errorf("part %s is due: %t, want all but one, though they are empty: they say what ended", part, due)
		}
	}
	beside := besideDB()
	b.Create(memberenv.NewExport(beside), memberenv.NewService(beside),
		memberenv.NewSourceSlice(beside, "beside-1", "10.1.0.2"))
	a.do(beside, "another export of the same part seen",
		func() bool { return a.Member.Export(beside) != nil && a.Member.Service(beside) != nil })
	first := entryOf(a)
	record, _ := a.Broker.Own.Objects(db)
	if want := a.Member.Export(db).UID; first.UID != want || first.From != 0 || string(want) != record.Spec.ExportUID {
		t.Errorf("entry = %+v and record of %s, want both of the export %s", first, record.Spec.ExportUID, want)
	}
	if got, want := record.Spec.Slices, apibroker.Hash(16, "db-1"); len(got) != 1 || got[0] != want {
		t.Errorf("the record lists %v, want %s", got, want)
	}

	// If nobody saw the deletion, the export goes on: another UID would end it.
	b.Delete(exp)
	exp = memberenv.NewExport(db)
	b.Create(exp)
	a.do(db, "another ServiceExport seen", func() bool {
		is := a.Member.Export(db)
		return is != nil && is.UID == exp.UID
	})
	record, _ = a.Broker.Own.Objects(db)
	if is := entryOf(a); is.UID != first.UID || record.Spec.ExportUID != string(first.UID) || first.UID == exp.UID {
		t.Errorf("entry = %+v and record of %s, want both of the export %s that goes on", is, record.Spec.ExportUID,
			first.UID)
	}

	b.Delete(exp)
	a.do(db, "end of export seen", func() bool { return a.Member.Export(db) == nil })
	gone := entryOf(a)
	b.Create(memberenv.NewExport(db))
	a.do(db, "export seen again", exported)
	if is := entryOf(a); gone.UID != "" || is.From != gone.Stamp || is.Stamp <= gone.Stamp || is.UID == first.UID {
		t.Errorf("entries = %+v, %+v, %+v; want one with another UID, from the stamp of the one without", first, gone, is)
	}

	// The inventory lost the export, and has it again before anything is deleted: record and slice are older than the new
	// entry.
	a.inventory.set(db, "")
	if err := a.inventory.write(t.Context(), apibroker.InventoryPart(db.Namespace, db.Name)); err != nil {
		t.Fatal(err)
	}
	a.Expect("listed again", a.do(db, "", again), sliceWrite("PATCH", "db-1"), recordWrite)
	a.Expect("listed again, again", a.do(db, "", again))

	// A rolled back broker lacks objects, and has older copies, also of what an earlier process wrote.
	part := apibroker.InventoryPart(db.Namespace, db.Name)
	before := entryOf(a)
	lose := func() {
		t.Helper()
		lost, _ := a.Broker.Own.Inventory(part)
		b.Delete(lost.DeepCopy())
		a.Await("lost inventory", func() bool { _, old := a.Broker.Own.Inventory(part); return old })
	}
	lose()
	a.do(db, "", again)
	inTheirPlace := func(what string) {
		t.Helper()
		other, _ := a.Broker.Own.Entry(beside)
		if is, _ := a.Broker.Own.Inventory(part); len(is.Spec.Exports) != 2 || other.UID != a.Member.Export(beside).UID {
			t.Errorf("%s: the first inventory lists %+v, want both exports", what, is.Spec.Exports)
		}
		if is := entryOf(a); is.UID != before.UID || is.Stamp <= before.Stamp {
			t.Errorf("%s: entry = %+v, want %+v with a higher stamp", what, is, before)
		}
	}
	inTheirPlace("after the loss")
	lose()
	a.End()
	a = b.start(func(*Config) {})
	a.do(db, "", exported)
	inTheirPlace("after the loss and a restart")
	record, _ = a.Broker.Own.Objects(db)
	old := record.DeepCopy()
	old.Spec.Stamp--
	b.Update(old)
	a.Await("older record", func() bool {
		is, _ := a.Broker.Own.Objects(db)
		return is.Spec.Stamp == old.Spec.Stamp
	})
	a.Expect("an older record", a.do(db, "", again), recordWrite)
	a.Expect("an older record, again", a.do(db, "", again))
}

// besideDB is another service in the part of the inventory that db belongs to.
func besideDB() types.NamespacedName {
	for n := 0; ; n++ {
		if name := fmt.Sprintf("beside-%d", n); apibroker.InventoryPart(db.Namespace,
			name) == apibroker.InventoryPart(db.Namespace, db.Name) {
			return memberenv.Service(name)
		}
	}
}

// entryOf returns the entry of db on the broker.
func entryOf(a *exporting) protocol.Entry {
	entry, _ := a.Broker.Own.Entry(db)
	return entry
}

// Exports that begin and end together share a write, which keeps the other entries.
func TestChangedInventory(t *testing.T) {
	is := changed("00", &v1alpha1.Inventory{Spec: v1alpha1.InventorySpec{Stamp: 7, Exports: []v1alpha1.InventoryEntry{
		{Name: "a.shop", UID: "1"}, {Name: "b.shop", UID: "2", From: 3}, {Name: "c.shop", UID: "3", From: 4},
	}}}, map[types.NamespacedName]string{
		{Namespace: "shop", Name: "a"}: "", {Namespace: "shop", Name: "b"}: "4", {Namespace: "shop", Name: "d"}: "5",
		{Namespace: "bank", Name: "d"}: "6",
	})
	var got []string
	for _, e := range is.Spec.Exports {
		got = append(got, fmt.Sprint(e.Name, " ", e.UID, " ", protocol.Stamp(e.From)))
	}
	const want = "b.shop 4 3, c.shop 3 4, d.bank 6 7, d.shop 5 7"
	if strings.Join(got, ", ") != want || is.Name != "00" {
		t.Errorf("part %s has %v, want part 00 with %s", is.Name, got, want)
	}
}

// A full part takes no further export, but exports still end.
func TestFullInventory(t *testing.T) {
	full := &v1alpha1.Inventory{Spec: v1alpha1.InventorySpec{Stamp: 7}}
	for i := range apibroker.MaxInventory {
		full.Spec.Exports = append(full.Spec.Exports, v1alpha1.InventoryEntry{Name: fmt.Sprintf("s%d.shop", i), UID: "1"})
	}
	service := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: name} }
	is := changed("00", full, map[types.NamespacedName]string{service("s1"): "", service("x"): "2", service("y"): "3"})
	if n := len(is.Spec.Exports); n != apibroker.MaxInventory || indexOf(is, service("s1")) >= 0 {
		t.Errorf("%d exports, s1 among them: %t; want %d without it", n, indexOf(is, service("s1")) >= 0,
			apibroker.MaxInventory)
	}
}

// docs/spec/controller.md 3.2: an export that went with its CRD while no controller ran goes on with the endpoints of
// its annotation, also while the CRD is missing, until its Service is deleted.
func TestExportWentWithItsKind(t *testing.T) {
	b := newEnv(t)
	serviceIP := func(cfg *Config) { cfg.Endpoints = apibroker.ServiceIP } // of other exports
	a := b.start(func(*Config) {})
	exp, service, source := memberenv.NewExport(db), memberenv.NewService(db),
		memberenv.NewSourceSlice(db, "db-1", "10.1.0.1")
	exp.Spec.ExportedLabels = map[string]string{"team": "a"}
	exp.Annotations = map[string]string{apibroker.AnnotationEndpoints: apibroker.PodIP}
	b.Create(exp, service, source)
	a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	})
	record, _ := a.Broker.Own.Objects(db)
	a.End()
	b.Await("the next second", func() bool { return time.Since(record.Spec.ExportCreated.Time) > 2*time.Second })
	if err := b.Server.DeleteCRDs(t.Context(), mcscrd.ServiceExportCRD); err != nil {
		t.Fatal(err)
	}
	a = b.start(serviceIP)
	a.Expect("without the kind", a.do(db, "the kind is absent", func() bool { return a.Member.ExportsAbsent() != "" }))
	source.Endpoints[0].Addresses = []string{"10.1.0.3"}
	b.Update(source)
	a.Expect("an endpoint without the kind", a.do(db, "endpoint seen", func() bool {
		return a.Member.SourceSlices(db)[0].Endpoints[0].Addresses[0] == "10.1.0.3"
	}), sliceWrite("PATCH", "db-1"))
	if _, complete := a.Exporter.exported("00"); complete {
		t.Error("the exports of this cluster are known while the kind is absent: a lost part of the inventory would be written without them")
	}
	if err := b.Server.InstallCRDs(t.Context(), mcscrd.ServiceExportCRD); err != nil {
		t.Fatal(err)
	}
	a.Expect("without the export", a.do(db, "its CRD", a.Member.ExportsKnown))
	a.End()

	a = b.start(serviceIP)
	a.Expect("without the export after another start", a.do(db, "its CRD", a.Member.ExportsKnown))
	source.Endpoints[0].Addresses = []string{"10.1.0.2"}
	b.Update(source)
	moved := func() bool { return a.Member.SourceSlices(db)[0].Endpoints[0].Addresses[0] == "10.1.0.2" }
	a.Expect("another endpoint", a.do(db, "endpoint seen", moved), sliceWrite("PATCH", "db-1"))
	b.Delete(service)
	got := a.do(db, "end of the Service seen", func() bool { return a.Member.Service(db) == nil })
	a.Expect("without the Service", got, "DELETE broker/exportedservices/db.shop", sliceWrite("DELETE", "db-1"))
}

// docs/spec/controller.md 2.6: a cluster with too many exports exports no further service, until others end. The API
// server takes full parts of the longest entries that the CRD admits.
func TestTooManyExports(t *testing.T) {
	b := newEnv(t)
	const most = 1<<53 - 1
	claim := v1alpha1.Claim{IP: "0000:0000:0000:0000:0000:ffff:255.255.255.255", Since: most, Released: most}
	longest := v1alpha1.InventoryEntry{UID: "00000000-0000-4000-8000-000000000001", From: most, Behind: most,
		Claims: []v1alpha1.Claim{claim, claim}}
	var last *v1alpha1.Inventory
	for n := range apibroker.MaxExports / apibroker.MaxInventory {
		last = &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace,
			Name: apibroker.InventoryPartName(n)}, Spec: v1alpha1.InventorySpec{Stamp: 1}}
		for i := range apibroker.MaxInventory {
			longest.Name = apibroker.RecordName(strings.Repeat("n", 63), fmt.Sprintf("s%062d", i))
			last.Spec.Exports = append(last.Spec.Exports, longest)
		}
		b.Create(last)
	}
	var retried time.Duration
	a := b.start(func(cfg *Config) { cfg.Retry = func(_ types.NamespacedName, after time.Duration) { retried = after } })
	b.Create(memberenv.NewExport(db), memberenv.NewService(db))
	b.Await("export seen", func() bool { return a.Member.Export(db) != nil && a.Member.Service(db) != nil })
	if o := a.export(t.Context(), db, a.exported(db)); !o.full || retried != retryFull || len(a.inventory.wanted) > 0 {
		t.Errorf("full %t, again after %s; want true, and another attempt", o.full, retried)
	}
	last.Spec.Exports = last.Spec.Exports[1:]
	b.Update(last)
	b.Await("end of an export seen", func() bool { return a.inventory.size() < apibroker.MaxExports })
	if o := a.export(t.Context(), db, a.exported(db)); o.full || o.err != nil {
		t.Errorf("after the end of another: full %t, %v; want it exported", o.full, o.err)
	}
}

// docs/spec/controller.md 2.6: a part does not wait for the write of another one.
func TestPartsDoNotWait(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	b.Create(memberenv.NewExport(db), memberenv.NewService(db))
	b.Await("export seen", func() bool { return a.Member.Export(db) != nil && a.Member.Service(db) != nil })
	reached, release := make(chan struct{}), make(chan struct{})
	exported, slow := a.inventory.exported, apibroker.InventoryPartName(0)
	if slow == apibroker.InventoryPart(db.Namespace, db.Name) {
		t.Fatal("the export is in the part that waits")
	}
	a.inventory.exported = func(part string) (map[types.NamespacedName]string, bool) {
		if part == slow {
			close(reached)
			<-release
		}
		return exported(part)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	<-reached
	b.Await("the export is listed", func() bool { return a.inventory.lists(db, string(a.Member.Export(db).UID)) })
	a.inventory.set(db, "")
	b.Await("the export has ended", func() bool { return a.inventory.lists(db, "") })
	close(release)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An export that ends while the write that lists it is under way seems to be ended already: it is reconciled again
// after the write.
func TestEndDuringWrite(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	const uid = "00000000-0000-4000-8000-000000000001"
	part := apibroker.InventoryPart(db.Namespace, db.Name)
	b.Create(&v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace, Name: part},
		Spec: v1alpha1.InventorySpec{Stamp: 1}})
	b.Await("the inventory", func() bool { return entryOf(a).Stamp != 0 })
	if a.inventory.set(db, uid) {
		t.Fatal("the broker lists an export that is new")
	}
	var again []types.NamespacedName
	a.inventory.written = func(svc types.NamespacedName) { again = append(again, svc) }
	a.inventory.exported = func(string) (map[types.NamespacedName]string, bool) {
		if !a.inventory.set(db, "") {
			t.Error("the broker lists the export before the write")
		}
		return map[types.NamespacedName]string{}, true
	}
	if err := a.inventory.write(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	if len(again) != 1 || again[0] != db || a.inventory.set(db, "") {
		t.Errorf("reconciled again: %v, want %s, which the broker lists now", again, db)
	}
}

// docs/spec/controller.md 5.7: a full part drops as many entries without an export as new exports need, those with a
// released claim first.
func TestRoomForExports(t *testing.T) {
	has := &v1alpha1.Inventory{Spec: v1alpha1.InventorySpec{Stamp: 7, Exports: []v1alpha1.InventoryEntry{
		{Name: "a.shop", Claims: []v1alpha1.Claim{{IP: "243.0.0.1", Since: 1}}},
		{Name: "b.shop", Claims: []v1alpha1.Claim{{IP: "243.0.0.2", Since: 1, Released: 2}}},
	}}}
	for n := range apibroker.MaxInventory - 2 {
		has.Spec.Exports = append(has.Spec.Exports, v1alpha1.InventoryEntry{Name: fmt.Sprintf("c-%03d.shop", n), UID: "1"})
	}
	for _, tt := range []struct{ begins, gone []string }{{[]string{"x"}, []string{"b"}},
		{[]string{"x", "y"}, []string{"a", "b"}}} {
		wanted := make(map[types.NamespacedName]string)
		for _, name := range tt.begins {
			wanted[memberenv.Service(name)] = "1"
		}
		next := changed("00", has, wanted)
		var gone []string
		for _, name := range []string{"a", "b"} {
			if indexOf(next, memberenv.Service(name)) < 0 {
				gone = append(gone, name)
			}
		}
		if !slices.Equal(gone, tt.gone) || len(next.Spec.Exports) != apibroker.MaxInventory ||
			uidIn(next, memberenv.Service("x")) != "1" {
			t.Errorf("%d new exports: %d entries without %q, want %d without %q", len(tt.begins), len(next.Spec.Exports), gone,
				apibroker.MaxInventory, tt.gone)
		}
	}
}
