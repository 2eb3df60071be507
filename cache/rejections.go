package cache

import (
	"strings"
	"sync"
	"time"
)

// rejections counts rejections, and remembers which objects were logged and when, so that each is logged once, and an
// object that changes between valid and invalid, or comes and goes, once an hour.
type rejections struct {
	mu     sync.Mutex
	counts [kinds][reasons]uint64
	known  [kinds]map[string]rejectedObject // by item key
	n      int                              // of all known
	over   int                              // of them, those without rejections now
}

// A rejectedObject holds the rejections of one object. Sets of reasons are bits.
type rejectedObject struct {
	current uint16    // the reasons for which it is rejected, or parts of it are
	logged  uint16    // those that were logged since begin
	begin   time.Time // of the time in which a reason is logged once
}

// maxKnown bounds the memory for bad objects. Objects beyond it are counted each time they come and never logged.
const maxKnown = 10_000

// logAgain is the time after which a rejection that is over may be logged again.
const logAgain = time.Hour

// note takes all rejections of one object, and returns those to be logged.
func (r *rejections) note(kind Kind, key string, list []Rejection) (added []Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.known[kind][key]
	if !known && (len(list) == 0 || !r.room()) {
		for _, rejection := range list {
			r.counts[kind][rejection.Reason]++
		}
		return nil
	}
	after := before
	after.current = 0
	if time.Since(before.begin) >= logAgain {
		after.logged, after.begin = before.current, time.Now()
	}
	for _, rejection := range list {
		bit := uint16(1) << rejection.Reason
		after.current |= bit
		if before.current&bit == 0 {
			r.counts[kind][rejection.Reason]++
		}
		if after.logged&bit == 0 {
			added = append(added, rejection)
		}
	}
	after.logged |= after.current
	r.set(kind, key, after)
	return added
}

// set remembers an object. The caller holds r.mu.
func (r *rejections) set(kind Kind, key string, after rejectedObject) {
	if r.known[kind] == nil {
		r.known[kind] = map[string]rejectedObject{}
	}
	before, known := r.known[kind][key]
	if !known {
		r.n++
	}
	if known && before.current == 0 {
		r.over--
	}
	if after.current == 0 {
		r.over++
	}
	r.known[kind][key] = after
}

// room reports whether one more object can be remembered. It forgets those without rejections now, if that makes room.
// The caller holds r.mu.
func (r *rejections) room() bool {
	if r.n >= maxKnown && r.over > 0 {
		for kind := range r.known {
			for key, known := range r.known[kind] {
				if known.current == 0 {
					delete(r.known[kind], key)
				}
			}
		}
		r.n, r.over = r.n-r.over, 0
	}
	return r.n < maxKnown
}

// forget takes an object that is gone.
func (r *rejections) forget(kind Kind, key string) { r.note(kind, key, nil) }

// retain takes all objects in scope that are not in items as gone.
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
	for key, known := range r.known[kind] {
		if _, ok := there[key]; !ok && (scope == "" || strings.HasPrefix(key, scope+"/")) {
			known.current = 0
			r.set(kind, key, known)
		}
	}
}
