package broker

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// OldRecord reports whether this process wrote a newer copy of an own record.
func (b *Broker) OldRecord(r *v1alpha1.ExportedService) bool {
	return b.given.outdates(r, protocol.Stamp(r.Spec.Stamp))
}

// OldSlice is [Broker.OldRecord] for a slice.
func (b *Broker) OldSlice(s *discoveryv1.EndpointSlice) bool { return b.given.outdates(s, stampOf(s)) }

// OwnInventory returns a part of this member's inventory on the broker, or nil. It reports old if this process wrote a newer one.
func (b *Broker) OwnInventory(part string) (i *v1alpha1.Inventory, old bool) {
	i, _ = b.ownInventories.Get(b.cfg.Namespace + "/" + part)
	if i == nil {
		return nil, b.given.outdates(&v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Name: part}}, 0)
	}
	return i, b.given.outdates(i, protocol.Stamp(i.Spec.Stamp))
}

// OwnEntry returns the entry of a service in this member's inventory.
func (b *Broker) OwnEntry(svc types.NamespacedName) protocol.Entry {
	i, _ := b.OwnInventory(broker.InventoryPart(svc.Namespace, svc.Name))
	if i == nil {
		return protocol.Entry{}
	}
	e := protocol.Entry{Stamp: protocol.Stamp(i.Spec.Stamp)}
	for _, listed := range i.Spec.Exports {
		if listed.Name == recordOf(svc) {
			e.UID, e.From = types.UID(listed.UID), protocol.Stamp(listed.From)
		}
	}
	return e
}
