package exporter

import (
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

var moving = memberenv.Service("moving")

// retained exports moving with 10.1.0.7 in moving-1, and moves that to moving-2, which the broker rejects. So the
// endpoint stays in the old slice.
func (b *env) retained(a *exporting) {
	b.Helper()
	b.Deny(denying...)
	b.Create(memberenv.NewExport(moving), memberenv.NewService(moving),
		memberenv.NewSourceSlice(moving, "moving-1", "10.1.0.7"))
	a.do(moving, "export seen", func() bool {
		return a.Member.Export(moving) != nil && a.Member.Service(moving) != nil && len(a.Member.SourceSlices(moving)) == 1
	})
	b.Delete(memberenv.NewSourceSlice(moving, "moving-1", "10.1.0.7"))
	two := memberenv.NewSourceSlice(moving, "moving-2", "10.1.0.7")
	two.Endpoints = append(two.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.66.1"}})
	b.Create(two)
	a.Await("moved", func() bool { s := a.Member.SourceSlices(moving); return len(s) == 1 && s[0].Name == "moving-2" })
	if err := a.Reconcile(b.Context(), moving); member.Rejection(err) == "" {
		b.Fatalf("want a rejection: %v", err)
	}
}

// docs/spec/controller.md 8.2: a slice that keeps a moved endpoint is written again like others, when its export is
// behind and after a restore.
func TestRetainedSliceIsBehind(t *testing.T) {
	tier.All(t)
	b := newEnv(t)
	a := b.start(func(*Config) {})
	b.retained(a)
	a.inventory.mark(a.behind.mark(time.Now().Add(time.Minute), a.Broker.Own.Stamp())) // a TTL is over
	if err := a.inventory.write(t.Context(), apibroker.InventoryPart(moving.Namespace, moving.Name)); err != nil {
		t.Fatal(err)
	}
	entry, _ := a.Broker.Own.Entry(moving)
	a.Writes.Take()
	for range 3 {
		_ = a.Reconcile(t.Context(), moving)
	}
	_, has := a.Broker.Own.Objects(moving)
	if got := broker.StampOf(has[0]); entry.Behind == 0 || got < entry.Behind {
		t.Errorf("the slice has stamp %d, the mark of its export %d", got, entry.Behind)
	}
	before := broker.StampOf(has[0])
	a.Broker.Own.Distrust()
	_ = a.Reconcile(t.Context(), moving)
	_, has = a.Broker.Own.Objects(moving)
	if broker.StampOf(has[0]) == before {
		t.Error("after a restore the slice is not written again")
	}
}

// The export ends and begins again while the endpoint moves: the slice that keeps it becomes one of the new export.
func TestRetainedSliceOfNewExport(t *testing.T) {
	tier.All(t)
	b := newEnv(t)
	a := b.start(func(*Config) {})
	b.Deny(denying...)
	exp := memberenv.NewExport(moving)
	b.Create(exp, memberenv.NewService(moving), memberenv.NewSourceSlice(moving, "moving-1", "10.1.0.7"))
	a.do(moving, "export seen", func() bool {
		return a.Member.Export(moving) != nil && a.Member.Service(moving) != nil && len(a.Member.SourceSlices(moving)) == 1
	})
	b.Delete(exp)
	a.Await("end seen", func() bool { return a.Member.Export(moving) == nil })
	_ = a.Reconcile(t.Context(), moving)
	if err := a.inventory.write(t.Context(), apibroker.InventoryPart(moving.Namespace, moving.Name)); err != nil {
		t.Fatal(err)
	}
	again := memberenv.NewExport(moving)
	b.Create(again)
	b.Delete(memberenv.NewSourceSlice(moving, "moving-1", "10.1.0.7"))
	two := memberenv.NewSourceSlice(moving, "moving-2", "10.1.0.7")
	two.Endpoints = append(two.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.66.1"}})
	b.Create(two)
	a.Await("moved", func() bool {
		s := a.Member.SourceSlices(moving)
		is := a.Member.Export(moving)
		return len(s) == 1 && s[0].Name == "moving-2" && is != nil && is.UID == again.UID
	})
	for range 3 {
		_ = a.settle(moving)
	}
	record, has := a.Broker.Own.Objects(moving)
	s := a.Broker.Own.Service(moving, record, has)
	var importer protocol.Service
	importer.See(s.Entry, s.Record, s.Slices)
	if got := importer.Count(protocol.Noted{}); len(got.Slices) != 1 {
		t.Errorf("importers have %v of %+v", got.Slices, s)
	}
}

// The record is lost, too: the first one after that lists the slice that keeps the endpoint.
func TestLostRecordListsRetainedSlice(t *testing.T) {
	tier.All(t)
	b := newEnv(t)
	a := b.start(func(*Config) {})
	b.retained(a)
	a.Await("condition seen", func() bool { return a.publisher.rejectedBefore(moving) })
	record, has := a.Broker.Own.Objects(moving)
	b.Delete(record.DeepCopy())
	a.Await("lost", func() bool { r, _ := a.Broker.Own.Objects(moving); return r == nil })
	a.Writes.Take()
	if err := a.Reconcile(t.Context(), moving); member.Rejection(err) == "" {
		t.Errorf("want a rejection: %v", err)
	}
	record, _ = a.Broker.Own.Objects(moving)
	if !slices.Contains(record.Spec.Slices, apibroker.SliceHash(has[0].Name)) {
		t.Errorf("the record lists %v, not %s", record.Spec.Slices, has[0].Name)
	}
	writes := a.taken()
	if n := strings.Count(strings.Join(writes, " "), "/exportedservices/"); n != 1 {
		t.Errorf("writes %q, want one of the record", writes)
	}
}

// docs/spec/controller.md 8.5: an export ends while the controller is down and the broker is restored to before it. The
// inventory is right, but importers know a newer one.
func TestInventoryIsWrittenAgain(t *testing.T) {
	tier.All(t)
	b := newEnv(t)
	a := b.start(func(*Config) {})
	part := apibroker.InventoryPart(db.Namespace, db.Name)
	if err := a.inventory.write(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := a.Broker.Own.Inventory(part)
	snapshot = snapshot.DeepCopy()
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.0.1"))
	a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	})
	// What an importer sees.
	var importer protocol.Service
	record, has := a.Broker.Own.Objects(db)
	seen := a.Broker.Own.Service(db, record, has)
	importer.See(seen.Entry, seen.Record, seen.Slices)
	noted := importer.Count(protocol.Noted{}).Noted
	a.End()
	// While the controller is down the export is deleted, and the broker restored.
	b.Delete(memberenv.NewExport(db))
	b.Delete(record.DeepCopy(), has[0].DeepCopy())
	is := &v1alpha1.Inventory{}
	if err := b.Admin.Get(t.Context(), is, memberenv.Namespace, part); err != nil {
		t.Fatal(err)
	}
	is.Spec = snapshot.Spec
	b.Update(is)

	a = b.start(func(*Config) {})
	a.Await("no export", func() bool { return a.Member.Export(db) == nil })
	a.Broker.Own.Distrust()                                   // as the heartbeat does
	for _, svc := range append(a.Broker.Own.Services(), db) { // more than a pass
		if err := a.settle(svc); err != nil {
			t.Error(err)
		}
	}
	i, _ := a.Broker.Own.Inventory(part)
	r, has := a.Broker.Own.Objects(db)
	now := a.Broker.Own.Service(db, r, has)
	now.Entry, _ = a.Broker.Own.Entry(db)
	importer.See(now.Entry, now.Record, now.Slices)
	count := importer.Count(noted)
	if i.Spec.Stamp <= int64(seen.Entry.Stamp) || len(count.Slices) > 0 {
		t.Errorf("stamp %d after %d; the importer keeps %v", i.Spec.Stamp, seen.Entry.Stamp, count.Slices)
	}
}

// A record without stamp and UID, of no export, is deleted.
func TestRecordWithoutStamp(t *testing.T) {
	tier.All(t)
	b := newEnv(t)
	a := b.start(func(*Config) {})
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.0.1"))
	a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	})
	record, _ := a.Broker.Own.Objects(db)
	old := record.DeepCopy()
	old.ObjectMeta = metav1.ObjectMeta{Namespace: record.Namespace, Name: "old.shop", Labels: record.Labels}
	old.Spec.Name, old.Spec.Stamp, old.Spec.ExportUID, old.Spec.Slices = "old", 0, "", nil
	b.Create(old)
	svc := memberenv.Service("old")
	a.Await("seen", func() bool { r, _ := a.Broker.Own.Objects(svc); return r != nil })
	if err := a.settle(svc); err != nil {
		t.Error(err)
	}
	if r, _ := a.Broker.Own.Objects(svc); r != nil {
		t.Error("the record stays")
	}
}

// docs/spec/controller.md 2.6: a slice is gone, and the broker rejects the record without it. Its endpoints go at once.
func TestSliceOfRejectedRecord(t *testing.T) {
	tier.All(t)
	b := newEnv(t)
	a := b.start(func(*Config) {})
	gone := memberenv.NewSourceSlice(db, "db-2", "10.1.0.2")
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.0.1"), gone)
	a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 2
	})
	b.Deny(memberenv.Policy{Name: "no-records", Resources: []string{"broker.clusterset-dns.io/v1alpha1/exportedservices"},
		Where: onBroker, Want: []string{"false"}})
	b.Delete(gone)
	a.Await("the end of the slice", func() bool { return len(a.Member.SourceSlices(db)) == 1 })
	a.Await("the endpoint gone", func() bool {
		if err := a.Reconcile(t.Context(), db); member.Rejection(err) == "" {
			return false // the policy is not in force yet
		}
		_, has := a.Broker.Own.Objects(db)
		return len(has) == 2 && len(has[0].Endpoints)+len(has[1].Endpoints) == 1
	})
}

// docs/spec/controller.md 2.6: the broker rejects the inventory from the start. What ends is deleted all the same.
func TestEndOfUnlisted(t *testing.T) {
	tier.All(t)
	b := newEnv(t)
	a := b.start(func(*Config) {})
	b.Deny(memberenv.Policy{Name: "no-inventory", Resources: []string{"broker.clusterset-dns.io/v1alpha1/inventories"},
		Where: onBroker, Want: []string{"false"}})
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.0.1"))
	a.Await("export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	})
	err := a.settle(db)
	if record, has := a.Broker.Own.Objects(db); member.Rejection(err) == "" || record == nil || len(has) != 1 {
		t.Fatalf("record %v, %d slices, want both and a rejection: %v", record, len(has), err)
	}
	a.inventory.noteWrite(apibroker.InventoryPart(db.Namespace, db.Name), err)
	b.Delete(memberenv.NewExport(db))
	a.Await("the end", func() bool { return a.Member.Export(db) == nil && a.exported(db).Record == nil })
	if err := a.settle(db); member.Rejection(err) == "" {
		t.Errorf("want a rejection of the inventory: %v", err)
	}
	if record, has := a.Broker.Own.Objects(db); record != nil || len(has) > 0 {
		t.Errorf("the broker has record %v and %d slices", record, len(has))
	}
}
