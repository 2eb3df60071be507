package broker

import (
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
func (x *Exports) Entry(m *v1alpha1.Member, svc types.NamespacedName) protocol.Entry {
	return entryOf(x.part(m, svc), svc)
}

// part returns the newest known copy of the part of a member's inventory that a service belongs to, or nil.
func (x *Exports) part(m *v1alpha1.Member, svc types.NamespacedName) *v1alpha1.Inventory {
	key := m.Spec.Namespace + "/" + broker.InventoryPart(svc.Namespace, svc.Name)
	seen := x.newest.get(key)
	// The store may be ahead of its handler.
	if item, ok, _ := x.inventories.GetStore().GetByKey(key); ok {
		seen = newer(seen, item.(*v1alpha1.Inventory))
	}
	return seen
}

// vips returns the pools, and the claims of all members for a service. records are those of the service.
func (x *Exports) vips(svc types.NamespacedName, networks merge.VIPNetworks, records []merge.Record) merge.VIPs {
	members := x.members.All()
	v := merge.VIPs{Pools: merge.Pools(members, networks), Stamps: make(map[string]int64)}
	for i := range members {
		m := &members[i]
		part := x.part(m, svc)
		if part == nil {
			continue
		}
		v.Stamps[m.Name] = part.Spec.Stamp
		if listed, _ := listedIn(part, svc); len(listed.Claims) > 0 {
			claim := merge.Claim{Address: merge.Address{Cluster: m.Name, Stamp: part.Spec.Stamp}}
			if _, since, err := x.members.memberOf(m.Spec.Namespace); err == nil {
				claim.Admitted = since
			}
			if at := slices.IndexFunc(records, func(r merge.Record) bool { return r.Cluster == m.Name }); at >= 0 {
				claim.Created = records[at].Created
			}
			v.Claims = append(v.Claims, claimsOf(listed, claim)...)
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

// inventoryChanged reports the part, and the services with another entry than in the newest known inventory. An end is
// urgent if the member has a record.
func (x *Exports) inventoryChanged(i *v1alpha1.Inventory, initial bool) {
	ms := x.members
	if item, ok, _ := ms.namespaces.GetStore().GetByKey(i.Namespace); ok && ms.memory.removed(item.(*corev1.Namespace)) {
		return
	}
	before, current := x.newest.see(i.Namespace+"/"+i.Name, i)
	if current != i {
		return // an older one
	}
	if cluster, _, err := ms.memberOf(i.Namespace); err == nil {
		x.handlers.InventoryChanged(i.Namespace, cluster, i.Name)
	}
	type entry struct{ before, after v1alpha1.InventoryEntry }
	entries := make(map[string]entry)
	if before != nil {
		for _, e := range before.Spec.Exports {
			entries[e.Name] = entry{before: e}
		}
	}
	for _, e := range i.Spec.Exports {
		entries[e.Name] = entry{before: entries[e.Name].before, after: e}
	}
	for name, e := range entries {
		if svc, ok := ServiceOf(name); ok && !reflect.DeepEqual(e.before, e.after) {
			ends := e.before.UID != "" && e.after.UID == ""
			x.handlers.Changed(Change{
				Service: svc, Member: i.Namespace, Initial: initial, Listed: true,
				Altered: i.Namespace != x.own && !initial && !ends, Urgent: ends && x.counts(i.Namespace, name),
			})
		}
	}
}

// counts reports whether a slice affects its service. Without a record of that member it does not: the event of the
// record covers both, and the first event of a service should find both.
func (x *Exports) counts(namespace, record string) bool {
	_, exists, _ := x.records.GetStore().GetByKey(namespace + "/" + record)
	return exists || namespace == x.own
}
