package apiserver

import (
	"maps"
	"sync"
	"time"
)

const (
	// WithholdFrom is the number of objects from which a deletion is withheld: what a person does to fewer counts at once.
	WithholdFrom = 10
	// withholdFor is how long no other deletion must follow before one takes effect, and withholdMost how long it waits
	// for that: the first ones of a mass withdrawal are withheld, too, also where the API server is slow.
	withholdFor, withholdMost = 3 * time.Second, 10 * time.Second
	// massLoss is the number of deletions within massPeriod that are a mass withdrawal, for any part of all. A slow API
	// server deletes less than ten a second; the first are removed before there are so many withheld.
	massLoss, massPeriod = 100, time.Minute
	// massMost is how long one of a mass withdrawal waits at most: deletions may never end.
	massMost = 10 * time.Minute
	// ConfirmAfter is the default of how long a watch must be healthy after the last deletion of a mass withdrawal.
	ConfirmAfter = 10 * time.Second
)

// Withheld are objects of one kind that are gone from the API server and count still: what removes a CRD deletes all of
// its objects first, one by one, and the kind is gone only then (docs/spec/dns.md 6.9, docs/spec/controller.md 3.2).
//
//	deleted ──► withheld ── withholdFor after the last deletion, unless it is one of a mass withdrawal ──► removed
//	               │  ▲
//	               │  └── while the kind is absent, or the watch fails for another reason
//	               └───── a mass withdrawal: once the watch was healthy for ConfirmAfter since the last deletion, or massMost ──► removed
//
// The owner calls [Withheld.Add] and [Withheld.Drop] as objects go and come, and [Withheld.Release] every second. It
// keeps the objects. The zero value is empty. The methods may be called by several goroutines.
type Withheld struct {
	// For is how long no other deletion must follow before one takes effect, and how long it waits for that at most; 0
	// means 3 and 10 seconds. It is for tests that want many deletions withheld, however slow the API server is.
	For time.Duration
	// Few withholds deletions also where there are fewer than WithholdFrom objects.
	Few bool

	mu       sync.Mutex
	keys     map[string]time.Time // of objects, with the time of the deletion
	released map[string]time.Time // of objects that were removed within massPeriod, with the time of the deletion
	mass     bool
	last     time.Time // when keys got a new one, or Release last found the watch unhealthy
	failed   time.Time // when Release last found the watch unhealthy
}

// Add withholds the deletion of an object, one of total that count, and reports whether it is the first of a mass
// withdrawal that was noticed. It does nothing and reports ok false if there are too few.
func (w *Withheld) Add(key string, total int, now time.Time) (mass, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if total < WithholdFrom && len(w.keys) == 0 && !w.Few {
		return false, false
	}
	if w.keys == nil {
		w.keys, w.released = map[string]time.Time{}, map[string]time.Time{}
	}
	w.keys[key], w.last = now, now
	maps.DeleteFunc(w.released, func(_ string, at time.Time) bool { return now.Sub(at) >= massPeriod })
	before := w.mass
	w.mass = w.mass || len(w.keys)+len(w.released) > massLoss || 2*len(w.keys) > total
	return w.mass && !before, true
}

// Drop forgets an object that is there again.
func (w *Withheld) Drop(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, key)
	delete(w.released, key)
	w.mass = w.mass && len(w.keys) > 0
}

// Release calls remove for each object that is due, and returns the size of a mass withdrawal, which waits for confirm.
// An object that is there again meanwhile is not lost: its drop has to wait until remove has returned, and puts it back
// then.
func (w *Withheld) Release(now time.Time, confirm time.Duration, healthy bool, remove func(key string)) (mass int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !healthy {
		w.last, w.failed = now, now
		return 0
	}
	debounce, most := withholdFor, withholdMost
	if w.For > 0 {
		debounce, most = w.For, w.For
	}
	if w.mass {
		debounce, most = confirm, max(confirm, massMost)
	}
	for key, at := range w.keys {
		if at.Before(w.failed) {
			at = w.failed // Nothing was confirmed before.
		}
		if now.Sub(w.last) >= debounce || now.Sub(at) >= most {
			delete(w.keys, key)
			remove(key)
			if w.mass {
				mass++
			} else {
				w.released[key] = at
			}
		}
	}
	w.mass = w.mass && len(w.keys) > 0
	return mass
}

// Has reports whether an object is withheld.
func (w *Withheld) Has(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.keys[key]
	return ok
}

// Len is the number of objects that are withheld.
func (w *Withheld) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.keys)
}
