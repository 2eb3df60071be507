package cache

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// withholdFrom is the number of imports from which a deletion is withheld: what a person does to fewer is seen at once.
	withholdFrom = 10
	// withholdFor is how long a single deletion is withheld, so that the first ones of a mass withdrawal are, too.
	withholdFor = 3 * time.Second
	// massLoss is the number of withheld deletions that are a mass withdrawal, whatever their part is.
	massLoss = 100
	// confirmAfter is the default of Config.ConfirmAfter.
	confirmAfter = 10 * time.Second
)

// withheld are ServiceImports that are gone from the API server and still served: what removes a CRD deletes all of its objects
// first, one by one, and the kind is gone only then (docs/spec/dns.md 6.9).
//
//	deleted ──► withheld ── after withholdFor, unless it is one of a mass withdrawal ──► removed
//	               │  ▲
//	               │  └── while the kind is absent, or the watch fails for another reason
//	               └───── a mass withdrawal: confirmAfter the last deletion, if the watch is healthy then ──► removed
//
// One that comes back is served as it is then.
type withheld struct {
	mu   sync.Mutex
	keys map[string]time.Time // of objects, with the time of the deletion
	mass bool
	last time.Time // when keys got a new one
}

// add withholds the deletion of an object, one of total that are served, and reports whether it is the first of a mass withdrawal
// that was noticed. It does nothing and reports ok false if there are too few.
func (w *withheld) add(key string, total int, now time.Time) (mass, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if total < withholdFrom && len(w.keys) == 0 {
		return false, false
	}
	if w.keys == nil {
		w.keys = map[string]time.Time{}
	}
	w.keys[key], w.last = now, now
	before := w.mass
	w.mass = w.mass || len(w.keys) > massLoss || 2*len(w.keys) > total
	return w.mass && !before, true
}

// drop forgets an object that is there again.
func (w *withheld) drop(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, key)
	w.mass = w.mass && len(w.keys) > 0
}

// due returns the objects that are to be removed now, and whether they were a mass withdrawal.
func (w *withheld) due(now time.Time, confirm time.Duration, healthy bool) (keys []string, mass bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !healthy || w.mass && now.Sub(w.last) < confirm {
		return nil, false
	}
	for key, at := range w.keys {
		if w.mass || now.Sub(at) >= withholdFor {
			keys = append(keys, key)
			delete(w.keys, key)
		}
	}
	mass, w.mass = w.mass, false
	return keys, mass
}

func (w *withheld) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.keys)
}

// withhold withholds the deletion of an object that is served, and reports whether it did.
func (w *watchStore) withhold(key string) bool {
	s := w.store
	if w.kind != ServiceImport || s.set == nil || !s.State().Ready {
		return false
	}
	total := s.objects.imported(w.namespace)
	mass, ok := w.withheld.add(key, total, time.Now())
	if mass {
		s.cfg.Log.Errorf("%s: %s: %d of %d are gone at once; they are served until that is so for %s", s.cfg.Name, w.id(),
			w.withheld.len(), total, s.cfg.ConfirmAfter)
	}
	return ok
}

// release removes what was withheld for long enough.
func (w *watchStore) release(now time.Time) {
	s := w.store
	keys, mass := w.withheld.due(now, s.cfg.ConfirmAfter, s.set.Health(w.id()).Healthy())
	if mass {
		s.cfg.Log.Warningf("%s: %s: %d that are gone are no longer served", s.cfg.Name, w.id(), len(keys))
	}
	for _, key := range keys {
		s.objects.remove(w.kind, key)
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
