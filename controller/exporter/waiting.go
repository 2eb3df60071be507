package exporter

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// waiting are the exports that the broker lacks, in whole or in part, while it cannot be written. The zero value is
// empty. Several goroutines may call the methods.
type waiting struct {
	mu       sync.Mutex
	services map[types.NamespacedName]struct{}
}

func (w *waiting) add(svc types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.services == nil {
		w.services = make(map[types.NamespacedName]struct{})
	}
	w.services[svc] = struct{}{}
}

func (w *waiting) remove(svc types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.services, svc)
}

// take returns all of them, and forgets them.
func (w *waiting) take() []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []types.NamespacedName
	for svc := range w.services {
		all = append(all, svc)
	}
	w.services = nil
	return all
}
