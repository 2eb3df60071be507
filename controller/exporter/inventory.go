package exporter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/broker"
)

// inventoryPeriod is the time between two writes of one part. Exports that change together share a write.
const inventoryPeriod = time.Second

// An inventory writes the list of exports to the broker (docs/spec/controller.md 2.6). An export ends when it is no longer listed.
//
//	set ──► wanted, by part ── the first at once, then one write a second ──► broker ──► written: the export is reconciled again
//
// Its methods may be called by several goroutines; Run is called once.
type inventory struct {
	broker  *broker.Broker
	wait    func() string              // returns why exports are suspended, or ""
	written func(types.NamespacedName) // called after the entry of a service was written
	log     logging.Logger
	wake    chan struct{} // capacity 1

	mu     sync.Mutex
	wanted map[string]map[types.NamespacedName]string // UIDs by part; "" removes the entry
	from   map[types.NamespacedName]int64             // as last written: a rollback must not lower it
}

// lists reports whether the broker's inventory lists a service under the UID of its ServiceExport, or with "" does not list it.
func (v *inventory) lists(svc types.NamespacedName, uid string) bool {
	entry, old := v.broker.OwnEntry(svc)
	return !old && string(entry.UID) == uid
}

// set makes [inventory.lists] true. It returns true if nothing has to be written; otherwise it calls written afterwards.
func (v *inventory) set(svc types.NamespacedName, uid string) bool {
	part, done := apibroker.InventoryPart(svc.Namespace, svc.Name), v.lists(svc, uid)
	v.mu.Lock()
	defer v.mu.Unlock()
	if done {
		delete(v.wanted[part], svc)
		return true
	}
	if v.wanted[part] == nil {
		v.wanted[part] = make(map[types.NamespacedName]string)
	}
	v.wanted[part][svc] = uid
	select {
	case v.wake <- struct{}{}:
	default:
	}
	return false
}

// Run writes parts until ctx ends.
func (v *inventory) Run(ctx context.Context) {
	var failing logging.Failure[bool]
	next := make(map[string]time.Time) // when a part may be written again
	for {
		pause := time.Hour
		for _, part := range v.parts() {
			wait := time.Until(next[part])
			if wait <= 0 {
				next[part], wait = time.Now().Add(inventoryPeriod), inventoryPeriod
				err := v.write(ctx, part)
				if failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
					v.log.Warningf("inventory: %v; trying again", err)
				}
			}
			pause = min(pause, wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-v.wake:
		case <-time.After(pause):
		}
	}
}

// parts returns the names of the parts to write, sorted.
func (v *inventory) parts() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.wanted, func(_ string, all map[types.NamespacedName]string) bool { return len(all) == 0 })
	return slices.Sorted(maps.Keys(v.wanted))
}

// write writes one part, unless nothing may be written now.
func (v *inventory) write(ctx context.Context, part string) error {
	if v.wait() != "" {
		return nil
	}
	v.mu.Lock()
	wanted := maps.Clone(v.wanted[part])
	has, old := v.broker.OwnInventory(part)
	next := changed(part, has, wanted, v.from)
	v.mu.Unlock()
	if same := has != nil && !old && slices.Equal(has.Spec.Exports, next.Spec.Exports); !same {
		if err := v.broker.ApplyInventory(ctx, next); err != nil {
			return err
		}
	}
	v.mu.Lock()
	var done []types.NamespacedName
	for svc, uid := range wanted {
		if v.note(next, svc) != uid {
			continue // the part is full
		}
		done = append(done, svc)
		if is, waits := v.wanted[part][svc]; waits && is == uid {
			delete(v.wanted[part], svc)
		}
	}
	v.mu.Unlock()
	for _, svc := range done {
		v.written(svc)
	}
	return nil
}

// note records the from of a service in the written part, and returns its UID there, or "". The caller holds v.mu.
func (v *inventory) note(next *v1alpha1.Inventory, svc types.NamespacedName) string {
	delete(v.from, svc)
	at := indexOf(next, svc)
	if at < 0 {
		return ""
	}
	v.from[svc] = next.Spec.Exports[at].From
	return next.Spec.Exports[at].UID
}

// indexOf returns where a part lists a service, -1 if it does not.
func indexOf(part *v1alpha1.Inventory, svc types.NamespacedName) int {
	name := apibroker.RecordName(svc.Namespace, svc.Name)
	return slices.IndexFunc(part.Spec.Exports, func(e v1alpha1.InventoryEntry) bool { return e.Name == name })
}

// changed returns the part that replaces has, which may be nil. A new entry gets the stamp of has as its from, or the higher one of the argument.
func changed(part string, has *v1alpha1.Inventory, wanted map[types.NamespacedName]string, from map[types.NamespacedName]int64) *v1alpha1.Inventory {
	is := &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Name: part}}
	var stamp int64
	if has != nil {
		is.ResourceVersion, stamp = has.ResourceVersion, has.Spec.Stamp
		is.Spec.Exports = slices.Clone(has.Spec.Exports)
	}
	var begins []types.NamespacedName
	for svc, uid := range wanted {
		switch at := indexOf(is, svc); {
		case at >= 0 && uid == "":
			is.Spec.Exports = slices.Delete(is.Spec.Exports, at, at+1)
		case at >= 0:
			is.Spec.Exports[at].UID, is.Spec.Exports[at].From = uid, max(is.Spec.Exports[at].From, from[svc])
		case uid != "":
			begins = append(begins, svc)
		}
	}
	room := apibroker.MaxInventory - len(is.Spec.Exports) // a part that is too long would be rejected, and with it the ends of exports
	for _, svc := range begins[:min(len(begins), max(room, 0))] {
		is.Spec.Exports = append(is.Spec.Exports, v1alpha1.InventoryEntry{
			Name: apibroker.RecordName(svc.Namespace, svc.Name), UID: wanted[svc], From: max(stamp, from[svc]),
		})
	}
	slices.SortFunc(is.Spec.Exports, func(a, b v1alpha1.InventoryEntry) int { return cmp.Compare(a.Name, b.Name) })
	return is
}
