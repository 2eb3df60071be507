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

// inventoryPeriod is the time between two writes of one part of the inventory: many exports that begin or end together cost one write.
const inventoryPeriod = time.Second

// An inventory writes to the broker which services this cluster exports (docs/spec/controller.md 2.6): only that ends an export.
//
//	set ──► wanted, by part ── the first at once, then one write a second ──► broker ──► written: the export is reconciled again
//
// Its methods may be called by several goroutines; Run is called once.
type inventory struct {
	broker  *broker.Broker
	wait    func() string              // why nothing may be written now, "" if it may
	written func(types.NamespacedName) // the inventory on the broker says of a service what was set
	log     logging.Logger
	wake    chan struct{} // capacity 1

	mu     sync.Mutex
	wanted map[string]map[types.NamespacedName]string // UIDs of ServiceExports by part, "" of a service that is not exported
	from   map[types.NamespacedName]int64             // of the exports that began in this process: a broker that was rolled back has an older one
}

// says reports whether the inventory on the broker says that a service is exported by the ServiceExport with this UID, "" if it is not exported.
func (v *inventory) says(svc types.NamespacedName, uid string) bool {
	_, old := v.broker.OwnInventory(apibroker.InventoryPart(svc.Namespace, svc.Name))
	return !old && string(v.broker.OwnEntry(svc).UID) == uid
}

// set has the inventory say what says asks for. It reports whether it does already; else written is called when it does.
func (v *inventory) set(svc types.NamespacedName, uid string) bool {
	part, says := apibroker.InventoryPart(svc.Namespace, svc.Name), v.says(svc, uid)
	v.mu.Lock()
	defer v.mu.Unlock()
	if says {
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

// parts returns the parts that are to be written.
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
	var said []types.NamespacedName
	for svc, uid := range wanted {
		if v.note(next, svc) != uid {
			continue // the part is full
		}
		said = append(said, svc)
		if is, waits := v.wanted[part][svc]; waits && is == uid {
			delete(v.wanted[part], svc)
		}
	}
	v.mu.Unlock()
	for _, svc := range said {
		v.written(svc)
	}
	return nil
}

// note notes from which stamp on a service counts, by the part next, and returns the UID there, "" if it is not listed. The caller holds v.mu.
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

// changed returns a part with other entries, as it replaces the one that the broker has, which may be nil. An export that begins counts from the inventory
// that does not have it, and not before from.
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
	room := apibroker.MaxInventory - len(is.Spec.Exports) // what is beyond must not keep others from ending
	for _, svc := range begins[:min(len(begins), max(room, 0))] {
		is.Spec.Exports = append(is.Spec.Exports, v1alpha1.InventoryEntry{
			Name: apibroker.RecordName(svc.Namespace, svc.Name), UID: wanted[svc], From: max(stamp, from[svc]),
		})
	}
	slices.SortFunc(is.Spec.Exports, func(a, b v1alpha1.InventoryEntry) int { return cmp.Compare(a.Name, b.Name) })
	return is
}
