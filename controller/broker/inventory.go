package broker

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// OldRecord reports whether an own record must be written again: this process wrote a newer copy, or the entry counts from a later stamp.
func (b *Broker) OldRecord(r *v1alpha1.ExportedService, from protocol.Stamp) bool {
	stamp := protocol.Stamp(r.Spec.Stamp)
	return stamp < from || b.stamps.isOld(objectID{kindRecord, r.Name}, stamp)
}

// OldSlice is [Broker.OldRecord] for a slice.
func (b *Broker) OldSlice(s *discoveryv1.EndpointSlice, from protocol.Stamp) bool {
	return stampOf(s) < from || b.stamps.isOld(objectID{kindSlice, s.Name}, stampOf(s))
}

// OwnInventory returns a part of this member's inventory on the broker, or nil. It reports old if this process wrote a newer one.
func (b *Broker) OwnInventory(part string) (i *v1alpha1.Inventory, old bool) {
	var stamp protocol.Stamp
	if i, _ = b.ownInventories.Get(b.cfg.Namespace + "/" + part); i != nil {
		stamp = protocol.Stamp(i.Spec.Stamp)
	}
	return i, b.stamps.isOld(objectID{kindInventory, part}, stamp)
}

// OwnEntry returns the entry of a service in this member's inventory on the broker, and old as [Broker.OwnInventory] does.
func (b *Broker) OwnEntry(svc types.NamespacedName) (e protocol.Entry, old bool) {
	i, old := b.OwnInventory(broker.InventoryPart(svc.Namespace, svc.Name))
	if i == nil {
		return e, old
	}
	e.Stamp = protocol.Stamp(i.Spec.Stamp)
	name := recordOf(svc)
	for _, listed := range i.Spec.Exports {
		if listed.Name == name {
			e.UID, e.From = types.UID(listed.UID), protocol.Stamp(listed.From)
		}
	}
	return e, old
}
