package cache

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// withhold withholds the deletion of an object that is served, and reports whether it did.
func (w *watchStore) withhold(key string) bool {
	s := w.store
	if w.kind != ServiceImport || s.set == nil || !s.State().Ready {
		return false
	}
	total := s.objects.imported(w.namespace)
	mass, ok := w.withheld.Add(key, total, time.Now())
	if mass {
		s.cfg.Log.Errorf("%s: %s: %d of %d are gone at once; they are served until that is so for %s", s.cfg.Name, w.id(),
			w.withheld.Len(), total, s.cfg.ConfirmAfter)
	}
	return ok
}

// release removes what was withheld for long enough.
func (w *watchStore) release(now time.Time) {
	s := w.store
	mass := w.withheld.Release(now, s.cfg.ConfirmAfter, s.set.Health(w.id()).Healthy(), func(key string) {
		s.objects.remove(w.kind, key)
	})
	if mass > 0 {
		s.cfg.Log.Warningf("%s: %s: %d that are gone are no longer served", s.cfg.Name, w.id(), mass)
	}
}

// releaseWithheld removes what was withheld for long enough until ctx ends.
func (s *Store) releaseWithheld(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		for _, w := range s.watches {
			w.release(time.Now())
		}
	}, time.Second)
	return nil
}
