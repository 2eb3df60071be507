package broker

import (
	"context"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// OwnObjects are the objects of this member on the broker, with its own writes before the watch delivers them. Each
// write has a new stamp. Reads tell which objects the broker has in an older copy than this process knows, or lost.
type OwnObjects struct {
	client      *apiserver.Client
	namespace   string // of this member
	records     *apiserver.Overlay[*v1alpha1.ExportedService]
	slices      *apiserver.Overlay[*discoveryv1.EndpointSlice]
	inventories *apiserver.Overlay[*v1alpha1.Inventory]
	stamps      *stamps
	newest      *inventories
	changed     func(*v1alpha1.Inventory) // an inventory was written; its event may come later, and is no change then
}

// Objects returns the objects of a service, unchanged, with the latest writes: the record, or nil, and the slices,
// sorted by name.
func (o *OwnObjects) Objects(svc types.NamespacedName) (*v1alpha1.ExportedService, []*discoveryv1.EndpointSlice) {
	record := o.records.Get(o.namespace + "/" + recordOf(svc))
	all := o.slices.ByIndex(byOwner, o.namespace+"/"+recordOf(svc))
	// The next write needs a higher stamp, even if the clock of this machine is behind the previous leader's.
	if record != nil {
		o.stamps.clock.See(protocol.Stamp(record.Spec.Stamp))
	}
	for _, s := range all {
		o.stamps.clock.See(StampOf(s))
	}
	return record, all
}

// Services returns every service for which this member has a record, a slice or an entry of its inventory on the
// broker, sorted.
func (o *OwnObjects) Services() []types.NamespacedName {
	var services []types.NamespacedName
	for _, r := range o.records.ByIndex(cache.NamespaceIndex, o.namespace) {
		if svc, ok := ServiceOf(r.Name); ok {
			services = append(services, svc)
		}
	}
	for _, s := range o.slices.ByIndex(cache.NamespaceIndex, o.namespace) {
		if record, _ := sliceService(s); len(record) > 0 {
			svc, _ := ServiceOf(record[0])
			services = append(services, svc)
		}
	}
	for _, i := range o.inventories.ByIndex(cache.NamespaceIndex, o.namespace) {
		for _, e := range i.Spec.Exports {
			if svc, ok := ServiceOf(e.Name); ok {
				services = append(services, svc)
			}
		}
	}
	return sortServices(services)
}

// Delivered reports whether the watches of the broker brought back all records, slices and inventories that this
// process wrote before a time.
func (o *OwnObjects) Delivered(before time.Time) bool {
	return o.records.Seen(before) && o.slices.Seen(before) && o.inventories.Seen(before)
}

// Service returns the knowledge of [OwnObjects.Objects] that [protocol.Next] needs. record may be nil.
func (o *OwnObjects) Service(svc types.NamespacedName, record *v1alpha1.ExportedService,
	all []*discoveryv1.EndpointSlice) (s protocol.Service) {
	var old bool
	if s.Entry, old = o.Entry(svc); old {
		s.Entry.Stamp = 0
	}
	if record != nil {
		stamp := max(1, protocol.Stamp(record.Spec.Stamp)) // 0 is no record
		s.Record = protocol.Record{Stamp: stamp, UID: types.UID(record.Spec.ExportUID)}
		s.Record.Gone = o.stamps.see(objectID{kindRecord, record.Name}, stamp)
		for _, hash := range record.Spec.Slices {
			s.Record.Slices = append(s.Record.Slices, record.Name+"."+hash)
		}
	}
	for _, e := range all {
		current := protocol.Slice{Name: e.Name, Stamp: StampOf(e), UID: types.UID(e.Annotations[broker.AnnotationExportUID])}
		current.Gone = o.stamps.see(objectID{kindSlice, e.Name}, current.Stamp)
		s.Slices = append(s.Slices, current)
	}
	return s
}

// HadSlice reports whether this process wrote or saw an own slice, which it has not deleted.
func (o *OwnObjects) HadSlice(name string) bool { return o.stamps.knows(objectID{kindSlice, name}) }

// Inventory returns the newest known copy of a part of this member's inventory, or nil, with the resource version on
// the broker. It reports old if the broker lacks it or has an older copy.
func (o *OwnObjects) Inventory(part string) (i *v1alpha1.Inventory, old bool) {
	key := o.namespace + "/" + part
	stored := o.inventories.Get(key)
	if i = newer(o.newest.get(key), stored); i == nil {
		return nil, false
	}
	id := objectID{kindInventory, part}
	o.stamps.see(id, protocol.Stamp(i.Spec.Stamp))
	if i != stored {
		i = i.DeepCopy()
		i.ResourceVersion = ""
		if stored != nil {
			i.ResourceVersion = stored.ResourceVersion
		}
	}
	return i, stored == nil || o.stamps.see(id, protocol.Stamp(stored.Spec.Stamp))
}

// ListedUID returns the UID of this member's export of a service in the inventory, or "". Without an inventory it is
// the UID in the record.
func (o *OwnObjects) ListedUID(svc types.NamespacedName) types.UID {
	if entry, _ := o.Entry(svc); entry.Stamp != 0 {
		return entry.UID
	}
	if record, _ := o.Objects(svc); record != nil {
		return types.UID(record.Spec.ExportUID)
	}
	return ""
}

// Entry returns the entry of a service in [OwnObjects.Inventory].
func (o *OwnObjects) Entry(svc types.NamespacedName) (e protocol.Entry, old bool) {
	i, old := o.Inventory(broker.InventoryPart(svc.Namespace, svc.Name))
	return entryOf(i, svc), old
}

// Claims returns the claims for a service in the newest known inventory of this member.
func (o *OwnObjects) Claims(svc types.NamespacedName) []v1alpha1.Claim {
	i, _ := o.Inventory(broker.InventoryPart(svc.Namespace, svc.Name))
	if i == nil {
		return nil
	}
	e, _ := listedIn(i, svc)
	return e.Claims
}

// ApplyRecord makes r the export record of its service in the namespace of this member, with a new stamp, for any name
// and namespace in r. A UID or a resource version in r is a precondition.
func (o *OwnObjects) ApplyRecord(ctx context.Context, r *v1alpha1.ExportedService) error {
	r = r.DeepCopy()
	r.Namespace, r.Name = o.namespace, broker.RecordName(r.Spec.Namespace, r.Spec.Name)
	r.Spec.Stamp = int64(o.stamps.next())
	if err := o.client.Apply(ctx, r, wellknown.ManagerExporter); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	o.stamps.see(objectID{kindRecord, r.Name}, protocol.Stamp(r.Spec.Stamp))
	o.records.Wrote(r)
	return nil
}

// DeleteRecord removes the export record with the name of r from the namespace of this member, if it has the UID of r.
func (o *OwnObjects) DeleteRecord(ctx context.Context, r *v1alpha1.ExportedService) error {
	r = r.DeepCopy()
	r.Namespace = o.namespace
	if err := o.client.Delete(ctx, r); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	o.stamps.forget(objectID{kindRecord, r.Name})
	o.records.Deleted(r)
	return nil
}

// ApplySlice makes s a slice in the namespace of this member, with a new stamp. A UID or a resource version in s is a
// precondition. It returns what the broker made of s, which its admission may have changed, and which nothing may
// change.
func (o *OwnObjects) ApplySlice(ctx context.Context, s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s = s.DeepCopy()
	s.Namespace = o.namespace
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, broker.AnnotationStamp, o.stamps.next().String())
	if err := o.client.Apply(ctx, s, wellknown.ManagerExporter); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	o.stamps.see(objectID{kindSlice, s.Name}, StampOf(s))
	o.slices.Wrote(s)
	return s, nil
}

// DeleteSlice removes the slice with the name of s from the namespace of this member, if it has the UID of s.
func (o *OwnObjects) DeleteSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	s = s.DeepCopy()
	s.Namespace = o.namespace
	if err := o.client.Delete(ctx, s); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	o.stamps.forget(objectID{kindSlice, s.Name})
	o.slices.Deleted(s)
	return nil
}

// ApplyInventory makes i a part of the inventory of this member, with a new stamp. A UID or a resource version in i is
// a precondition.
func (o *OwnObjects) ApplyInventory(ctx context.Context, i *v1alpha1.Inventory) error {
	i = i.DeepCopy()
	i.Namespace, i.Spec.Stamp = o.namespace, int64(o.stamps.next())
	if err := o.client.Apply(ctx, i, wellknown.ManagerExporter); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	o.inventories.Wrote(i)
	o.changed(i) // its event may come later, and is no change then
	return nil
}

// SeeStamp raises later stamps above a stamp of an earlier process.
func (o *OwnObjects) SeeStamp(s protocol.Stamp) { o.stamps.clock.See(s) }

// Stamp returns a stamp that is higher than all before.
func (o *OwnObjects) Stamp() protocol.Stamp { return o.stamps.next() }

// Distrust makes each own object that the broker has now older than what this cluster wrote, so that it is written
// again. It is for a process that does not know what the broker has lost, as an earlier process wrote it.
func (o *OwnObjects) Distrust() { o.stamps.raise() }

// reset forgets own writes after the broker was restored: its state may not have them.
func (o *OwnObjects) reset() {
	o.records.Reset()
	o.slices.Reset()
	o.inventories.Reset()
}
