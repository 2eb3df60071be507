package apiserver

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// overlayAge is how long a write may stay unseen by its watch. Then objects that came and went during a list are
// forgotten.
const overlayAge = time.Minute

// An Overlay shows what an informer has, as it will be once the informer has seen this process's own writes. Objects
// that it returns must not be written to. T is the type of the informer's objects.
type Overlay[T Object] struct {
	informer cache.SharedIndexInformer

	mu     sync.Mutex
	writes cache.ThreadSafeStore // of write[T], by key, with the indexes of the informer; guarded by mu
	swept  time.Time             // when old writes were last looked for; guarded by mu
	ended  deletions             // guarded by mu
}

// deletions are the UIDs of objects whose deletion the informer has delivered, for overlayAge or up to twice that if
// more follow: an answer to an older write may come after it, and must not bring the object back.
type deletions struct {
	recent, older map[types.UID]bool
	since         time.Time // of recent
}

func (d *deletions) add(uid types.UID, now time.Time) {
	if d.recent == nil || now.Sub(d.since) > overlayAge {
		d.recent, d.older, d.since = make(map[types.UID]bool), d.recent, now
	}
	d.recent[uid] = true
}

func (d *deletions) contains(uid types.UID, now time.Time) bool {
	return now.Sub(d.since) <= 2*overlayAge && (d.recent[uid] || d.older[uid])
}

// forget is for an object that is there after all: a list from an API server that lags behind may have lacked it.
func (d *deletions) forget(uid types.UID) {
	delete(d.recent, uid)
	delete(d.older, uid)
}

// A write is one that the informer has not seen yet.
type write[T Object] struct {
	obj  T
	gone bool // it was deleted, with the UID of obj
	at   time.Time
}

// NewOverlay makes an overlay over an informer of a set, before the set runs or while it runs. The informer has all its
// indexes.
func NewOverlay[T Object](informer cache.SharedIndexInformer) *Overlay[T] {
	o := &Overlay[T]{informer: informer, swept: time.Now()}
	o.writes = cache.NewThreadSafeStore(indexersOfWrites[T](informer.GetIndexer().GetIndexers()), cache.Indices{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { o.added(obj) },
		UpdateFunc: func(_, obj any) { o.added(obj) },
		DeleteFunc: func(obj any) { o.deleted(obj) },
	})
	if err != nil {
		panic("apiserver: an informer rejected a handler: " + err.Error())
	}
	return o
}

// indexersOfWrites returns the indexers of an informer for writes: a read by index must not depend on how many writes
// the informer has not seen yet. A write that deleted its object has no values.
func indexersOfWrites[T Object](all cache.Indexers) cache.Indexers {
	indexers := maps.Clone(all)
	for name, values := range all {
		indexers[name] = func(item any) ([]string, error) {
			if w := item.(write[T]); !w.gone {
				return values(w.obj)
			}
			return nil, nil
		}
	}
	return indexers
}

// Wrote notes the object in an answer to a write. obj belongs to the overlay from now on. If two answers come in the
// wrong order the later version stays, and a deletion stays against older writes.
func (o *Overlay[T]) Wrote(obj T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended.contains(obj.GetUID(), time.Now()) {
		return
	}
	if w, written := o.write(keyOf(obj)); !written || !w.outdates(obj) {
		o.add(write[T]{obj: obj, at: time.Now()})
	}
}

// write returns the write that the informer has not seen yet, of the object with a key.
func (o *Overlay[T]) write(key string) (w write[T], written bool) {
	if item, ok := o.writes.Get(key); ok {
		return item.(write[T]), true
	}
	return w, false
}

// add also forgets, from time to time, what comes and goes unseen and is never read.
func (o *Overlay[T]) add(w write[T]) {
	o.writes.Add(keyOf(w.obj), w)
	if w.at.Sub(o.swept) > overlayAge {
		o.swept = w.at
		for _, key := range o.writes.ListKeys() {
			o.get(key)
		}
	}
}

// outdates reports whether the server answered w after obj.
func (w write[T]) outdates(obj T) bool {
	switch {
	case time.Since(w.at) > overlayAge:
		return false
	case w.gone:
		return obj.GetUID() != "" && obj.GetUID() == w.obj.GetUID()
	}
	return VersionNumber(w.obj.GetResourceVersion()) > VersionNumber(obj.GetResourceVersion())
}

// Deleted notes that an object was deleted. Without a UID any object with its name is meant.
func (o *Overlay[T]) Deleted(obj T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(write[T]{obj: obj, gone: true, at: time.Now()})
}

// Seen reports whether the informer has seen all writes that were noted before a time. A write that was followed by
// another write of its object does not count.
func (o *Overlay[T]) Seen(before time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range o.writes.ListKeys() {
		o.get(key) // what the informer has passed without an event is forgotten
		if w, written := o.write(key); written && w.at.Before(before) {
			return false
		}
	}
	return true
}

// Reset forgets all writes, as the server has: after a rollback ([SetConfig].RolledBack).
func (o *Overlay[T]) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes.Replace(map[string]any{}, "")
	o.ended = deletions{} // deleted objects may be there again
}

// Get returns the object with a key, "<namespace>/<name>" or "<name>"; nil if it does not exist.
func (o *Overlay[T]) Get(key string) T {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, _ := o.get(key)
	return obj
}

// List returns all objects, sorted by key.
func (o *Overlay[T]) List() []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.collect(o.informer.GetStore().List(), o.writes.List(), func(T) bool { return true })
}

// ByIndex returns the objects that an index of the informer has under value, sorted by key.
func (o *Overlay[T]) ByIndex(index, value string) []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	indexer := o.informer.GetIndexer()
	stored, err := indexer.ByIndex(index, value)
	if err != nil {
		panic("apiserver: " + err.Error())
	}
	written, err := o.writes.ByIndex(index, value)
	if err != nil {
		panic("apiserver: " + err.Error())
	}
	values := indexer.GetIndexers()[index]
	return o.collect(stored, written, func(obj T) bool {
		present, err := values(obj)
		return err == nil && slices.Contains(present, value)
	})
}

// collect returns the stored and the written objects as they will be, as far as they match. The caller holds o.mu since
// before it read the store: no write may be forgotten in between.
func (o *Overlay[T]) collect(stored, written []any, match func(T) bool) []T {
	objects := make([]T, 0, len(stored)+len(written))
	keys := make(map[string]bool, len(written)) // of objects that have a write
	for _, item := range stored {
		obj := item.(T)
		if _, found := o.write(keyOf(obj)); found {
			keys[keyOf(obj)] = true
		} else {
			objects = append(objects, obj)
		}
	}
	for _, item := range written {
		keys[keyOf(item.(write[T]).obj)] = true
	}
	for key := range keys {
		if obj, ok := o.get(key); ok && match(obj) {
			objects = append(objects, obj)
		}
	}
	slices.SortFunc(objects, func(a, b T) int { return cmp.Compare(keyOf(a), keyOf(b)) })
	return objects
}

// get forgets a write that the informer has caught up with.
func (o *Overlay[T]) get(key string) (obj T, ok bool) {
	item, found, _ := o.informer.GetStore().GetByKey(key)
	var stored T
	if found {
		stored = item.(T)
	}
	w, written := o.write(key)
	switch {
	case !written:
		return stored, found
	case time.Since(w.at) > overlayAge, w.gone && (!found || w.obj.GetUID() != "" && stored.GetUID() != w.obj.GetUID()),
		!w.gone && found && VersionNumber(stored.GetResourceVersion()) >= VersionNumber(w.obj.GetResourceVersion()):
		o.writes.Delete(key)
		return stored, found
	case w.gone:
		return obj, false
	}
	return w.obj, true
}

// added takes an object that was added or updated. It forgets that the object was deleted, and a write that the
// informer has caught up with.
func (o *Overlay[T]) added(item any) {
	if obj, ok := item.(T); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended.forget(obj.GetUID())
		o.get(keyOf(obj))
	}
}

// deleted forgets a write that somebody else has undone since.
func (o *Overlay[T]) deleted(item any) {
	unknown, partial := item.(cache.DeletedFinalStateUnknown)
	if partial {
		item = unknown.Obj
	}
	obj, ok := item.(T)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if uid := obj.GetUID(); uid != "" {
		o.ended.add(uid, time.Now())
	}
	key := keyOf(obj)
	w, written := o.write(key)
	if written && (w.gone || partial || VersionNumber(obj.GetResourceVersion()) > VersionNumber(
		w.obj.GetResourceVersion())) {
		o.writes.Delete(key)
	}
}

func keyOf(obj Object) string {
	return cache.MetaObjectToName(obj).String()
}
