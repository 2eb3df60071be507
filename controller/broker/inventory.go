package broker

import (
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// entryOf returns the entry of a service in an inventory, which may be nil.
func entryOf(i *v1alpha1.Inventory, svc types.NamespacedName) (e protocol.Entry) {
	if i == nil {
		return e
	}
	e.Stamp = protocol.Stamp(i.Spec.Stamp)
	if listed, ok := listedIn(i, svc); ok {
		e.UID, e.From, e.Behind = types.UID(listed.UID), protocol.Stamp(listed.From), protocol.Stamp(listed.Behind)
	}
	return e
}

// listedIn returns the entry of a service in an inventory, which is sorted by name.
func listedIn(i *v1alpha1.Inventory, svc types.NamespacedName) (e v1alpha1.InventoryEntry, ok bool) {
	at, ok := slices.BinarySearchFunc(i.Spec.Exports, recordOf(svc),
		func(e v1alpha1.InventoryEntry, name string) int { return strings.Compare(e.Name, name) })
	if ok {
		e = i.Spec.Exports[at]
	}
	return e, ok
}

// Entry returns the entry of a service in the newest known inventory of a member.
func (b *Broker) Entry(m *v1alpha1.Member, svc types.NamespacedName) protocol.Entry {
	return entryOf(b.part(m, svc), svc)
}

// part returns the newest known copy of the part of a member's inventory that a service belongs to, or nil.
func (b *Broker) part(m *v1alpha1.Member, svc types.NamespacedName) *v1alpha1.Inventory {
	key := m.Spec.Namespace + "/" + broker.InventoryPart(svc.Namespace, svc.Name)
	seen := b.newest.get(key)
	// The store may be ahead of its handler.
	if item, ok, _ := b.inventories.GetStore().GetByKey(key); ok {
		seen = newer(seen, item.(*v1alpha1.Inventory))
	}
	return seen
}

// vips returns the pools, and the claims of all members for a service. records are those of the service.
func (b *Broker) vips(svc types.NamespacedName, networks merge.VIPNetworks, records []merge.Record) merge.VIPs {
	members := b.Members.All()
	v := merge.VIPs{Pools: merge.Pools(members, networks), Stamps: make(map[string]int64)}
	for i := range members {
		m := &members[i]
		part := b.part(m, svc)
		if part == nil {
			continue
		}
		v.Stamps[m.Name] = part.Spec.Stamp
		if listed, _ := listedIn(part, svc); len(listed.Claims) > 0 {
			all := merge.Claim{Address: merge.Address{Cluster: m.Name, Stamp: part.Spec.Stamp}}
			if _, since, err := b.Members.memberOf(m.Spec.Namespace); err == nil {
				all.Admitted = since
			}
			if at := slices.IndexFunc(records, func(r merge.Record) bool { return r.Cluster == m.Name }); at >= 0 {
				all.Created = records[at].Created
			}
			v.Claims = append(v.Claims, claimsOf(listed, all)...)
		}
	}
	return v
}

// claimsOf returns the valid claims of an entry that are not released, as copies of template.
func claimsOf(e v1alpha1.InventoryEntry, template merge.Claim) (all []merge.Claim) {
	for _, c := range e.Claims {
		if ip, err := broker.ParseAddress(c.IP); err == nil && c.Released == 0 {
			template.IP, template.Since = ip, metav1.NewTime(time.UnixMicro(c.Since))
			all = append(all, template)
		}
	}
	return all
}

// OwnClaims returns the claims for a service in the newest known inventory of this member.
func (b *Broker) OwnClaims(svc types.NamespacedName) []v1alpha1.Claim {
	i, _ := b.OwnInventory(broker.InventoryPart(svc.Namespace, svc.Name))
	if i == nil {
		return nil
	}
	e, _ := listedIn(i, svc)
	return e.Claims
}

// OwnService returns the knowledge of [Broker.Own] that [protocol.Next] needs. record may be nil.
func (b *Broker) OwnService(svc types.NamespacedName, record *v1alpha1.ExportedService,
	all []*discoveryv1.EndpointSlice) (s protocol.Service) {
	var old bool
	if s.Entry, old = b.OwnEntry(svc); old {
		s.Entry.Stamp = 0
	}
	if record != nil {
		stamp := max(1, protocol.Stamp(record.Spec.Stamp)) // 0 is no record
		s.Record = protocol.Record{Stamp: stamp, UID: types.UID(record.Spec.ExportUID)}
		s.Record.Gone = b.stamps.see(objectID{kindRecord, record.Name}, stamp)
		for _, hash := range record.Spec.Slices {
			s.Record.Slices = append(s.Record.Slices, record.Name+"."+hash)
		}
	}
	for _, e := range all {
		current := protocol.Slice{Name: e.Name, Stamp: StampOf(e), UID: types.UID(e.Annotations[broker.AnnotationExportUID])}
		current.Gone = b.stamps.see(objectID{kindSlice, e.Name}, current.Stamp)
		s.Slices = append(s.Slices, current)
	}
	return s
}

// HadSlice reports whether this process wrote or saw an own slice, which it has not deleted.
func (b *Broker) HadSlice(name string) bool { return b.stamps.knows(objectID{kindSlice, name}) }

// OwnInventory returns the newest known copy of a part of this member's inventory, or nil, with the resource version on
// the broker. It reports old if the broker lacks it or has an older copy.
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
	old = stored == nil || stored.Spec.Stamp < i.Spec.Stamp
	return i, old || b.stamps.raised(protocol.Stamp(stored.Spec.Stamp))
}

// ListedUID returns the UID of this member's export of a service in the inventory, or "". Without an inventory it is
// the UID in the record.
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
