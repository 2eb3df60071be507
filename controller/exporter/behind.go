package exporter

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// behind holds the exports whose last write failed. The inventory marks some of them: their copies on the broker may be
// out of date (docs/spec/controller.md 8.2). The zero value is empty. Several goroutines may call the methods.
type behind struct {
	mu     sync.Mutex
	failed map[types.NamespacedName]failure
}

// A failure is an export whose last write failed, or whose mark is still in the inventory.
type failure struct {
	since time.Time      // of the first failure
	mark  protocol.Stamp // in the inventory; 0 without a mark
	ended bool           // the mark is to be removed
}

// wrote records a successful write of an export. marked: the inventory still has a mark.
func (b *behind) wrote(svc types.NamespacedName, marked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !marked {
		delete(b.failed, svc)
		return
	}
	b.set(svc, failure{ended: true})
}

// fail records a failed write of an export.
func (b *behind) fail(svc types.NamespacedName, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f, failed := b.failed[svc]; !failed || f.ended {
		b.set(svc, failure{since: at})
	}
}

func (b *behind) set(svc types.NamespacedName, f failure) {
	if b.failed == nil {
		b.failed = make(map[types.NamespacedName]failure)
	}
	b.failed[svc] = f
}

// mark marks the exports that began to fail before a time, and returns them.
func (b *behind) mark(before time.Time, stamp protocol.Stamp) (marked []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for svc, f := range b.failed {
		if f.mark == 0 && !f.ended && f.since.Before(before) {
			f.mark = stamp
			b.failed[svc] = f
			marked = append(marked, svc)
		}
	}
	return marked
}

// marked reports whether every failed export is marked.
func (b *behind) marked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.failed {
		if f.mark == 0 && !f.ended {
			return false
		}
	}
	return true
}

// restart restarts the time of unmarked failures, after an outage of the broker.
func (b *behind) restart(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for svc, f := range b.failed {
		if f.mark == 0 && !f.ended {
			b.failed[svc] = failure{since: at}
		}
	}
}

// annotate sets the marks of a part of the inventory. A mark of an earlier process stays until this one has written the
// service.
func (b *behind) annotate(part *v1alpha1.Inventory) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range part.Spec.Exports {
		e := &part.Spec.Exports[i]
		svc, _ := broker.ServiceOf(e.Name)
		if f := b.failed[svc]; f.ended || f.mark != 0 {
			e.Behind = int64(f.mark)
		}
	}
}
