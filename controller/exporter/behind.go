package exporter

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// behind has the exports that could not be written. The inventory says so of those that are marked: what the broker has of them may be out of date
// (docs/spec/controller.md 8.2). The zero value is empty. The methods may be called by several goroutines.
type behind struct {
	mu     sync.Mutex
	failed map[types.NamespacedName]failure
}

// A failure is an export whose last write failed, or the end of that.
type failure struct {
	since time.Time      // of the first failure
	mark  protocol.Stamp // in the inventory; 0 for none
	ended bool           // the mark is to be removed
}

// wrote notes that a write of an export succeeded. marked says that the inventory has it as behind.
func (b *behind) wrote(svc types.NamespacedName, marked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !marked {
		delete(b.failed, svc)
		return
	}
	b.set(svc, failure{ended: true})
}

// fail notes that a write of an export failed at the given time.
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

// mark marks those that have failed since before a time, and returns these.
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

// marked reports whether all that failed is marked.
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

// restart has what is not marked yet count as failed since a time: before it the broker was away.
func (b *behind) restart(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for svc, f := range b.failed {
		if f.mark == 0 && !f.ended {
			b.failed[svc] = failure{since: at}
		}
	}
}

// annotate makes a part of the inventory say which of its services are behind. What an earlier process said stays until this one wrote the service.
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
