package cache

import (
	"strings"
	"sync"
)

// rejections counts what was rejected, and remembers which objects were logged, so that each is logged once.
type rejections struct {
	mu     sync.Mutex
	counts [kinds][reasons]uint64
	known  [kinds]map[string]uint16 // set of reasons by item key
	n      int                      // of all known
}

// maxKnown bounds the memory for bad objects. Objects beyond it are counted each time they come and never logged.
const maxKnown = 10_000

// note takes all that was rejected of one object, and returns what is new.
func (r *rejections) note(kind Kind, key string, rejected []Rejection) (changed []Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.known[kind][key]
	if len(rejected) == 0 {
		if known {
			delete(r.known[kind], key)
			r.n--
		}
		return nil
	}
	full := !known && r.n >= maxKnown
	var now uint16
	for _, rejection := range rejected {
		now |= 1 << rejection.Reason
		if before&(1<<rejection.Reason) == 0 {
			r.counts[kind][rejection.Reason]++
			changed = append(changed, rejection)
		}
	}
	if full {
		return nil
	}
	if !known {
		r.n++
	}
	if r.known[kind] == nil {
		r.known[kind] = map[string]uint16{}
	}
	r.known[kind][key] = now
	return changed
}

// forget drops an object that is gone.
func (r *rejections) forget(kind Kind, key string) { r.note(kind, key, nil) }

// retain forgets all objects in scope that are not in items.
func (r *rejections) retain(kind Kind, scope string, items []item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known[kind]) == 0 {
		return
	}
	there := make(map[string]struct{}, len(items))
	for i := range items {
		there[items[i].key] = struct{}{}
	}
	for key := range r.known[kind] {
		if _, ok := there[key]; !ok && (scope == "" || strings.HasPrefix(key, scope+"/")) {
			delete(r.known[kind], key)
			r.n--
		}
	}
}
