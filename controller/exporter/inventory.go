package exporter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// inventoryPeriod is the time between two writes of one part: exports that change together share a write. After
// failures it grows to inventoryBackoff.
const (
	inventoryPeriod  = time.Second
	inventoryBackoff = time.Minute
	retryPeriod      = 5 * time.Second // unless the broker rejects it
)

// An inventory writes the list of exports to the broker (docs/spec/controller.md 2.6). An export ends when it is no
// longer listed.
//
//	set ──► wanted, by part ── the first at once, then one write a second ──► broker ──► written: the export is reconciled again
//
// Each change starts from the newest copy of a part. If the broker lacks that copy, the part is written again, even if
// it is empty: importers need it to end exports. The first write of a process lists all exports of this cluster in the
// part, since the broker may have been restored before.
//
// Its methods may be called by several goroutines, and write by one for each part; Run is called once.
type inventory struct {
	own  *broker.OwnObjects
	wait func() string // returns why exports are suspended, or ""
	// exported returns the UIDs of this cluster's exports, and false while one cannot be read.
	exported func(part string) (map[types.NamespacedName]string, bool)
	written  func(types.NamespacedName) // called after the entry of a service was written
	behind   *behind
	claims   *claims
	log      logging.Logger
	wake     map[string]chan struct{} // by part, of capacity 1
	failing  logging.Failure[bool]

	mu       sync.Mutex
	complete map[string]bool                              // parts that this process has written
	wanted   map[string]map[types.NamespacedName]string   // UIDs by part; "" removes the entry
	vips     map[string]map[types.NamespacedName]struct{} // queued by claim, by part
	// parts with changed marks; a counter, to tell new marks from old
	marks map[string]int
	stuck map[string]time.Time // parts that the broker rejects, and since when
}

// lists reports whether the broker's inventory lists a service under the UID of its ServiceExport, or with "" does not
// list it. A missing part lists nothing only while the broker rejects it: otherwise importers may know an earlier one.
func (v *inventory) lists(svc types.NamespacedName, uid string) bool {
	entry, old := v.own.Entry(svc)
	return !old && string(entry.UID) == uid &&
		(entry.Stamp != 0 || v.rejected(apibroker.InventoryPart(svc.Namespace, svc.Name)))
}

// rejected reports whether the broker rejects a part.
func (v *inventory) rejected(part string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.stuck[part].IsZero()
}

// set makes [inventory.lists] true. It returns true if nothing has to be written; otherwise it calls written
// afterwards.
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
	v.wakeUp(part)
	return false
}

// size returns how many exports the inventory lists, with those that are queued.
func (v *inventory) size() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for part := range v.wake {
		for _, uid := range v.wanted[part] {
			if uid != "" {
				n++
			}
		}
		if current, _ := v.own.Inventory(part); current != nil {
			n += len(current.Spec.Exports)
		}
	}
	return n
}

// claim queues services: the next write of their part decides on their clusterset IPs.
func (v *inventory) claim(services ...types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, svc := range services {
		part := apibroker.InventoryPart(svc.Namespace, svc.Name)
		if v.vips[part] == nil {
			v.vips[part] = make(map[types.NamespacedName]struct{})
		}
		v.vips[part][svc] = struct{}{}
	}
}

// takeClaims returns the services of a part that claim queued, and drops them from the queue.
func (v *inventory) takeClaims(part string) map[types.NamespacedName]struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.vips[part]
	delete(v.vips, part)
	return all
}

// mark queues the parts of services with changed marks.
func (v *inventory) mark(services []types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, svc := range services {
		if v.marks == nil {
			v.marks = make(map[string]int)
		}
		part := apibroker.InventoryPart(svc.Namespace, svc.Name)
		v.marks[part]++
		v.wakeUp(part)
	}
}

// marked reports whether all queued marks are written.
func (v *inventory) marked() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.marks) == 0
}

func (v *inventory) wakeUp(part string) {
	select {
	case v.wake[part] <- struct{}{}:
	default:
	}
}

// Run writes parts until ctx ends, each in a goroutine of its own, so that they do not wait for each other.
func (v *inventory) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for part := range v.wake {
		wg.Go(func() { v.runPart(ctx, part) })
	}
	wg.Wait()
}

// runPart writes one part until ctx ends.
func (v *inventory) runPart(ctx context.Context, part string) {
	pause := inventoryPeriod
	for ctx.Err() == nil {
		if !v.due(part) {
			select {
			case <-ctx.Done():
			case <-v.wake[part]:
			case <-time.After(inventoryPeriod): // the broker may have lost it
			}
			continue
		}
		err := v.write(ctx, part)
		v.noteWrite(part, err)
		switch pause *= 2; {
		case err == nil:
			pause = inventoryPeriod
		case member.Rejection(err) == "": // a pass, and the end of a silence, may wait for the part
			pause = min(pause, retryPeriod)
		}
		pause = min(pause, inventoryBackoff)
		if v.failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
			v.log.Warningf("inventory: %v; trying again", err)
		}
		_ = apiserver.Sleep(ctx, pause) // the loop looks at ctx
	}
}

// due reports whether a part is to be written: it changes, or the broker lost it.
func (v *inventory) due(part string) bool {
	current, old := v.own.Inventory(part)
	return (current == nil || old || v.changes(part)) && v.wait() == ""
}

func (v *inventory) changes(part string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.wanted[part]) > 0 || len(v.vips[part]) > 0 || v.marks[part] > 0
}

// write writes one part.
func (v *inventory) write(ctx context.Context, part string) error {
	v.mu.Lock()
	wishes, marks, complete := maps.Clone(v.wanted[part]), v.marks[part], v.complete[part]
	v.mu.Unlock()
	present, old := v.own.Inventory(part)
	wanted := wishes
	if !complete {
		all, readable := v.exported(part)
		if !readable && present == nil {
			v.unmark(part, marks) // nothing is listed
			return nil            // it would end what cannot be read
		}
		maps.Copy(all, wishes)
		wanted = all
	}
	next := changed(part, present, wanted)
	v.behind.annotate(next)
	if !complete {
		v.claim(v.claims.noted(part)...)
	}
	claiming := v.takeClaims(part)
	for svc, all := range v.claims.choose(part, claiming) {
		if !setClaims(next, svc, all) {
			v.claims.note(svc, "There is no clusterset IP, as part "+part+" of the inventory is full: export less.", time.Now())
		}
	}
	if same := present != nil && !old && equality.Semantic.DeepEqual(present.Spec.Exports, next.Spec.Exports); !same {
		if err := v.own.ApplyInventory(ctx, next); err != nil {
			v.claims.failed(part)
			v.claim(slices.Collect(maps.Keys(claiming))...)
			return err
		}
	}
	v.claims.wrote(part)
	v.unmark(part, marks)
	v.mu.Lock()
	v.complete[part] = true
	v.mu.Unlock()
	for svc := range claiming {
		v.written(svc)
	}
	for _, svc := range behindIn(present, next) { // it may have been written meanwhile
		v.written(svc)
	}
	for _, svc := range v.settle(part, wishes, wanted, present, next) {
		v.written(svc)
	}
	return nil
}

// noteWrite records the result of a write of a part.
func (v *inventory) noteWrite(part string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stuck == nil {
		v.stuck = make(map[string]time.Time)
	}
	// also if the broker is away: then it takes no heartbeat, either
	if _, before := v.stuck[part]; member.Rejection(err) == "" {
		delete(v.stuck, part)
	} else if !before {
		v.stuck[part] = time.Now()
	}
}

// stuckSince names a part that the broker has rejected since a time, or "".
func (v *inventory) stuckSince(since time.Time) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for part, begin := range v.stuck {
		if begin.Before(since) {
			return part
		}
	}
	return ""
}

// unmark drops the marks that a write of a part included.
func (v *inventory) unmark(part string, marks int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.marks[part] == marks {
		delete(v.marks, part)
	}
}

// settle drops the wishes that a write fulfilled, and returns the services to reconcile again: those that it changed,
// and those that were decided by the state before it. A wish stays while the part is full.
func (v *inventory) settle(part string, wishes, wanted map[types.NamespacedName]string, present,
	next *v1alpha1.Inventory) (again []types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for svc, uid := range wanted {
		current, waits := v.wanted[part][svc]
		_, wished := wishes[svc]
		switch unchanged := present != nil && uidIn(present, svc) == uidIn(next, svc); {
		case waits && current == uid && uidIn(next, svc) != uid, !waits && !wished && unchanged:
			continue
		case waits && current == uid:
			delete(v.wanted[part], svc)
		}
		again = append(again, svc)
	}
	return again
}

// behindIn returns the services with a mark in next that has lacks. has may be nil.
func behindIn(present, next *v1alpha1.Inventory) (services []types.NamespacedName) {
	for _, e := range next.Spec.Exports {
		known := present != nil && slices.ContainsFunc(present.Spec.Exports,
			func(h v1alpha1.InventoryEntry) bool { return h.Name == e.Name && h.Behind == e.Behind })
		if svc, ok := broker.ServiceOf(e.Name); ok && e.Behind != 0 && !known {
			services = append(services, svc)
		}
	}
	return services
}

// uidIn returns the UID under which a part lists a service, or "".
func uidIn(part *v1alpha1.Inventory, svc types.NamespacedName) string {
	if at := indexOf(part, svc); at >= 0 {
		return part.Spec.Exports[at].UID
	}
	return ""
}

// indexOf returns where a part lists a service, -1 if it does not.
func indexOf(part *v1alpha1.Inventory, svc types.NamespacedName) int {
	name := apibroker.RecordName(svc.Namespace, svc.Name)
	return slices.IndexFunc(part.Spec.Exports, func(e v1alpha1.InventoryEntry) bool { return e.Name == name })
}

// changed returns the part that replaces has, which may be nil. A new entry gets the stamp of has as its from.
func changed(part string, present *v1alpha1.Inventory, wanted map[types.NamespacedName]string) *v1alpha1.Inventory {
	current := &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Name: part}}
	var stamp int64
	if present != nil {
		current.ResourceVersion, stamp = present.ResourceVersion, present.Spec.Stamp
		current.Spec.Exports = slices.Clone(present.Spec.Exports)
	}
	var begins []types.NamespacedName
	for svc, uid := range wanted {
		switch at := indexOf(current, svc); {
		case at >= 0 && uid == "" && len(current.Spec.Exports[at].Claims) == 0:
			current.Spec.Exports = slices.Delete(current.Spec.Exports, at, at+1)
		case at >= 0 && uid == "":
			entry := &current.Spec.Exports[at]
			*entry = v1alpha1.InventoryEntry{Name: entry.Name, Claims: entry.Claims}
		case at >= 0 && current.Spec.Exports[at].UID == "":
			current.Spec.Exports[at].UID, current.Spec.Exports[at].From = uid, stamp
		case at >= 0:
			current.Spec.Exports[at].UID = uid
		case uid != "":
			begins = append(begins, svc)
		}
	}
	makeRoom(current, len(begins))
	// a part that is too long would be rejected, and with it the ends of exports
	room := apibroker.MaxInventory - len(current.Spec.Exports)
	for _, svc := range begins[:min(len(begins), max(room, 0))] {
		current.Spec.Exports = append(current.Spec.Exports, v1alpha1.InventoryEntry{Name: apibroker.RecordName(svc.Namespace,
			svc.Name), UID: wanted[svc], From: stamp})
	}
	slices.SortFunc(current.Spec.Exports, byName)
	return current
}

// makeRoom deletes entries that have only claims, until new exports fit: first those with released claims.
func makeRoom(part *v1alpha1.Inventory, exports int) {
	excess := len(part.Spec.Exports) + exports - apibroker.MaxInventory
	for _, released := range []bool{true, false} {
		part.Spec.Exports = slices.DeleteFunc(part.Spec.Exports, func(e v1alpha1.InventoryEntry) bool {
			stands := slices.ContainsFunc(e.Claims, func(x v1alpha1.Claim) bool { return x.Released == 0 })
			drop := excess > 0 && e.UID == "" && (!released || !stands)
			if drop {
				excess--
			}
			return drop
		})
	}
}

func byName(a, b v1alpha1.InventoryEntry) int { return cmp.Compare(a.Name, b.Name) }

// setClaims sets the claims of a service. It returns false if the part has no room. An entry without an export lasts as
// long as its claims.
func setClaims(part *v1alpha1.Inventory, svc types.NamespacedName, all []v1alpha1.Claim) bool {
	at := indexOf(part, svc)
	switch {
	case at >= 0 && len(all) == 0 && part.Spec.Exports[at].UID == "":
		part.Spec.Exports = slices.Delete(part.Spec.Exports, at, at+1)
	case at >= 0:
		part.Spec.Exports[at].Claims = all
	case len(all) > 0 && len(part.Spec.Exports) < apibroker.MaxInventory:
		entry := v1alpha1.InventoryEntry{Name: apibroker.RecordName(svc.Namespace, svc.Name), Claims: all}
		at, _ := slices.BinarySearchFunc(part.Spec.Exports, entry, byName)
		part.Spec.Exports = slices.Insert(part.Spec.Exports, at, entry)
	case len(all) > 0:
		return false
	}
	return true
}
