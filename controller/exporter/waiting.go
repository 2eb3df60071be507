package exporter

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// waiting are the exports that the broker lacks, in whole or in part, while it cannot be written. The zero value is
// empty. Several goroutines may call the methods.
type waiting struct{ services sync.Map }

func (w *waiting) add(svc types.NamespacedName) { w.services.Store(svc, nil) }

func (w *waiting) remove(svc types.NamespacedName) { w.services.Delete(svc) }

// take returns all of them, and forgets them.
func (w *waiting) take() (all []types.NamespacedName) {
	for svc := range w.services.Range {
		if _, waits := w.services.LoadAndDelete(svc); waits {
			all = append(all, svc.(types.NamespacedName))
		}
	}
	return all
}
