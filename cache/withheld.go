package cache

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// orphans are deleted EndpointSlices that are served while the deletion of their ServiceImport is withheld: Kubernetes deletes the slices
// with their owner.
type orphans struct {
	mu sync.Mutex
	of map[string]string // key of the import, by key of the slice
}

func (o *orphans) add(slice, imp string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[string]string{}
	}
	o.of[slice] = imp
}

func (o *orphans) drop(slice string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, slice)
}

// release calls remove for each slice whose import is no longer withheld. A concurrent drop waits, as in [apiserver.Withheld].
func (o *orphans) release(withheld func(imp string) bool, remove func(slice string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.of, func(slice, imp string) bool {
		if withheld(imp) {
			return false
		}
		remove(slice)
		return true
	})
}

// withhold withholds the deletion of an object that is served, and reports whether it did.
func (w *watchStore) withhold(key string) bool {
	s := w.store
	if s.set == nil || !s.State().Ready {
		return false
	}
	switch w.kind {
	case ServiceImport, ClusterProperty:
	case EndpointSlice:
		imp := s.objects.importOf(key)
		if !s.withholds(imp) {
			return false
		}
		s.orphans.add(key, imp)
		return true
	default:
		return false
	}
	total := s.objects.count(w.kind, w.namespace)
	mass, ok := w.withheld.Add(key, total, time.Now())
	if mass && w.kind == ServiceImport {
		s.cfg.Log.Errorf("%s: %s: %d of %d are gone at once; they are served until that is so for %s", s.cfg.Name, w.id(),
			w.withheld.Len(), total, s.cfg.ConfirmAfter)
	}
	return ok
}

// drop ends that the deletion of an object is withheld.
func (w *watchStore) drop(key string) {
	if w.kind == EndpointSlice {
		w.store.orphans.drop(key)
		return
	}
	w.withheld.Drop(key)
}

// withholds reports whether the deletion of an import is withheld.
func (s *Store) withholds(imp string) bool {
	for _, w := range s.watches {
		if w.kind == ServiceImport && w.withheld.Has(imp) {
			return true
		}
	}
	return false
}

// withholdsAny reports whether the deletion of any import is withheld.
func (s *Store) withholdsAny() bool {
	for _, w := range s.watches {
		if w.kind == ServiceImport && w.withheld.Len() > 0 {
			return true
		}
	}
	return false
}

// release removes what was withheld for long enough.
func (w *watchStore) release(now time.Time) {
	s := w.store
	mass := w.withheld.Release(now, s.cfg.ConfirmAfter, s.set.Health(w.id()).Healthy(), func(key string) {
		s.objects.remove(w.kind, key)
	})
	if mass > 0 && w.kind == ServiceImport {
		s.cfg.Log.Warningf("%s: %s: %d that are gone are no longer served", s.cfg.Name, w.id(), mass)
	}
}

// releaseWithheld removes what was withheld for long enough until ctx ends.
func (s *Store) releaseWithheld(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		for _, w := range s.watches {
			w.release(time.Now())
		}
		s.orphans.release(s.withholds, func(slice string) { s.objects.remove(EndpointSlice, slice) })
	}, time.Second)
	return nil
}
