package exporter

import (
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 8.2: an export that failed for long enough is behind until a write of it succeeds. Marks of
// an earlier process stay until then.
func TestBehind(t *testing.T) {
	var b behind
	svc, begin := memberenv.DB, time.Now()
	says := func(what string, has, want int64) {
		t.Helper()
		part := &v1alpha1.Inventory{Spec: v1alpha1.InventorySpec{Exports: []v1alpha1.InventoryEntry{{Name: "db.shop",
			Behind: has}}}}
		if b.annotate(part); part.Spec.Exports[0].Behind != want {
			t.Errorf("%s: behind %d, want %d", what, part.Spec.Exports[0].Behind, want)
		}
	}
	mark := func(what string, before time.Time, stamp protocol.Stamp, want int) {
		t.Helper()
		if got := len(b.mark(before, stamp)); got != want || b.marked() != (want > 0 || b.failed[svc].mark != 0) {
			t.Errorf("%s: %d marked, want %d; all marked %t", what, got, want, b.marked())
		}
	}
	says("not tried yet", 3, 3)
	b.fail(svc, begin)
	b.fail(svc, begin.Add(time.Minute))
	mark("not for long enough", begin, 5, 0)
	says("not for long enough", 0, 0)
	b.restart(begin.Add(2 * time.Minute))
	mark("the broker was away", begin.Add(time.Minute), 6, 0)
	mark("for long enough", begin.Add(3*time.Minute), 7, 1)
	mark("again", begin.Add(4*time.Minute), 8, 0)
	b.restart(begin.Add(5 * time.Minute))
	says("behind", 0, 7)
	b.wrote(svc, true)
	says("written", 7, 0)
	b.wrote(svc, false)
	if len(b.failed) > 0 || !b.marked() {
		t.Errorf("%v is left", b.failed)
	}
}
