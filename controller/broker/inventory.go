package broker

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// entryOf returns the entry of a service in an inventory, which may be nil.
func entryOf(i *v1alpha1.Inventory, svc types.NamespacedName) (e protocol.Entry) {
	if i == nil {
		return e
	}
	e.Stamp = protocol.Stamp(i.Spec.Stamp)
	name := recordOf(svc)
	for _, listed := range i.Spec.Exports {
		if listed.Name == name {
			e.UID, e.From, e.Behind = types.UID(listed.UID), protocol.Stamp(listed.From), protocol.Stamp(listed.Behind)
		}
	}
	return e
}

// Entry returns the entry of a service in the newest known inventory of a member.
func (b *Broker) Entry(m *v1alpha1.Member, svc types.NamespacedName) protocol.Entry {
	key := m.Spec.Namespace + "/" + broker.InventoryPart(svc.Namespace, svc.Name)
	seen := b.newest.get(key)
	// The store may be ahead of its handler.
	if item, ok, _ := b.inventories.GetStore().GetByKey(key); ok {
		seen = newer(seen, item.(*v1alpha1.Inventory))
	}
	return entryOf(seen, svc)
}

// OldRecord reports whether an own record must be written again: this process wrote a newer copy, or the entry counts from a later stamp.
func (b *Broker) OldRecord(r *v1alpha1.ExportedService, from protocol.Stamp) bool {
	stamp := protocol.Stamp(r.Spec.Stamp)
	return stamp < from || b.stamps.isOld(objectID{kindRecord, r.Name}, stamp)
}

// OldSlice is [Broker.OldRecord] for a slice.
func (b *Broker) OldSlice(s *discoveryv1.EndpointSlice, from protocol.Stamp) bool {
	return StampOf(s) < from || b.stamps.isOld(objectID{kindSlice, s.Name}, StampOf(s))
}

// OwnInventory returns the newest known copy of a part of this member's inventory, or nil, with the resource version that the broker has. It reports old if
// the broker has an older copy, or none.
func (b *Broker) OwnInventory(part string) (i *v1alpha1.Inventory, old bool) {
	key := b.cfg.Namespace + "/" + part
	stored, _ := b.ownInventories.Get(key)
	if i = newer(b.newest.get(key), stored); i == nil {
		return nil, false
	}
	b.stamps.clock.See(protocol.Stamp(i.Spec.Stamp)) // the next write needs a higher one
	if i != stored {
		i = i.DeepCopy()
		i.ResourceVersion = ""
		if stored != nil {
			i.ResourceVersion = stored.ResourceVersion
		}
	}
	return i, stored == nil || stored.Spec.Stamp < i.Spec.Stamp
}

// ListedUID returns the UID of this member's export of a service in the inventory, or "". Without an inventory it is the UID in the record.
func (b *Broker) ListedUID(svc types.NamespacedName) types.UID {
	if entry, _ := b.OwnEntry(svc); entry.Stamp != 0 {
		return entry.UID
	}
	if record, _ := b.Own(svc); record != nil {
		return types.UID(record.Spec.ExportUID)
	}
	return ""
}

// OwnEntry returns the entry of a service in [Broker.OwnInventory].
func (b *Broker) OwnEntry(svc types.NamespacedName) (e protocol.Entry, old bool) {
	i, old := b.OwnInventory(broker.InventoryPart(svc.Namespace, svc.Name))
	return entryOf(i, svc), old
}
