package broker

import (
	"cmp"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// Records returns the accepted export records of a service, sorted by cluster, with that of this member.
func (b *Broker) Records(svc types.NamespacedName) []merge.Record {
	var records []merge.Record
	for _, r := range indexed[*v1alpha1.ExportedService](b.records, byService, recordOf(svc)) {
		if record, ok := b.acceptRecord(r); ok {
			records = append(records, record)
		}
	}
	slices.SortFunc(records, func(a, b merge.Record) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return records
}

// Replace returns records with own in place of this member's record, or without that if own is nil: its own API server
// is ahead of the broker. Of the record on the broker only the times count that decide on precedence
// (docs/spec/controller.md 5). It does not change records.
func (b *Broker) Replace(records []merge.Record, own *v1alpha1.ExportedService) []merge.Record {
	ours := merge.Record{Cluster: b.cfg.ClusterID}
	records = slices.DeleteFunc(slices.Clone(records), func(r merge.Record) bool {
		if r.Cluster == ours.Cluster {
			ours.Admitted, ours.Created = r.Admitted, r.Created
		}
		return r.Cluster == ours.Cluster
	})
	if own != nil {
		ours.Spec = own.Spec
		records = append(records, ours)
	}
	return records
}

// Slices returns the slices of a service from one member, sorted by name. Their names and labels agree with their
// namespace; their contents are not validated.
func (b *Broker) Slices(svc types.NamespacedName, cluster string) []*discoveryv1.EndpointSlice {
	m := b.Members.Get(cluster)
	if m == nil {
		return nil
	}
	return b.slicesOf(svc, m)
}

// slicesOf is [Broker.Slices] for a member that is known.
func (b *Broker) slicesOf(svc types.NamespacedName, m *v1alpha1.Member) []*discoveryv1.EndpointSlice {
	var found []*discoveryv1.EndpointSlice
	for _, s := range indexed[*discoveryv1.EndpointSlice](b.slices, byOwner, m.Spec.Namespace+"/"+recordOf(svc)) {
		if id, ok := b.acceptSlice(s); ok && id == m.Name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// Services returns every service that an export record or a slice names, sorted, accepted or not.
func (b *Broker) Services() []types.NamespacedName {
	var services []types.NamespacedName
	for _, informer := range []cache.SharedIndexInformer{b.records, b.slices} {
		for _, record := range informer.GetIndexer().ListIndexFuncValues(byService) {
			// An index keeps values that no object has any more.
			if svc, ok := ServiceOf(record); ok && isIndexed(informer, byService, record) {
				services = append(services, svc)
			}
		}
	}
	return sorted(services)
}

// HasRecord reports whether a member has an export record of a service, accepted or not.
func (b *Broker) HasRecord(svc types.NamespacedName) bool {
	return isIndexed(b.records, byService, recordOf(svc))
}

// Own returns this member's objects of a service on the broker, unchanged, with its latest writes: the record, or nil,
// and the slices sorted by name.
func (b *Broker) Own(svc types.NamespacedName) (*v1alpha1.ExportedService, []*discoveryv1.EndpointSlice) {
	record, _ := b.ownRecords.Get(b.cfg.Namespace + "/" + recordOf(svc))
	all := b.ownSlices.ByIndex(byOwner, b.cfg.Namespace+"/"+recordOf(svc))
	// The next write needs a higher stamp, even if the clock of this machine is behind the previous leader's.
	if record != nil {
		b.stamps.clock.See(protocol.Stamp(record.Spec.Stamp))
	}
	for _, s := range all {
		b.stamps.clock.See(StampOf(s))
	}
	return record, all
}

// OwnServices returns every service for which this member has a record, a slice or an entry of its inventory on the
// broker, sorted.
func (b *Broker) OwnServices() []types.NamespacedName {
	var services []types.NamespacedName
	for _, r := range b.ownRecords.ByIndex(cache.NamespaceIndex, b.cfg.Namespace) {
		if svc, ok := ServiceOf(r.Name); ok {
			services = append(services, svc)
		}
	}
	for _, s := range b.ownSlices.ByIndex(cache.NamespaceIndex, b.cfg.Namespace) {
		if record, _ := sliceService(s); len(record) > 0 {
			svc, _ := ServiceOf(record[0])
			services = append(services, svc)
		}
	}
	for _, i := range b.ownInventories.ByIndex(cache.NamespaceIndex, b.cfg.Namespace) {
		for _, e := range i.Spec.Exports {
			if svc, ok := ServiceOf(e.Name); ok {
				services = append(services, svc)
			}
		}
	}
	return sorted(services)
}

// Selectable returns the ClusterProperties of all members by their ids, which decide which clusters the exports of
// records reach; nil if all of them reach all.
func (b *Broker) Selectable(records []merge.Record) map[string]map[string]string {
	if !merge.Restricted(records) {
		return nil
	}
	return b.Members.properties()
}

// Offered returns the number of exports of this member that reach each member, by id. Only accepted records count.
func (b *Broker) Offered() map[string]int {
	own := b.Members.Get(b.cfg.ClusterID)
	if own == nil {
		return nil
	}
	var records []merge.Record
	for _, r := range indexed[*v1alpha1.ExportedService](b.records, cache.NamespaceIndex, own.Spec.Namespace) {
		if record, ok := b.acceptRecord(r); ok {
			records = append(records, record)
		}
	}
	return merge.Offered(records, b.Members.properties())
}

// RecordsOf returns how many export records a member has, accepted or not.
func (b *Broker) RecordsOf(cluster string) int {
	if m := b.Members.Get(cluster); m != nil {
		return b.RecordsIn(m.Spec.Namespace)
	}
	return 0
}

// RecordsIn is RecordsOf by the namespace of a member.
func (b *Broker) RecordsIn(namespace string) int {
	keys, _ := b.records.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace)
	return len(keys)
}

// RecordCounts returns how many export records each member has, accepted or not, by id.
func (b *Broker) RecordCounts() map[string]int {
	counts := make(map[string]int)
	for _, m := range b.Members.All() {
		counts[m.Name] = b.RecordsOf(m.Name)
	}
	return counts
}

// Delivered reports whether the watches of the broker brought back all records, slices and inventories that this
// process wrote before a time.
func (b *Broker) Delivered(before time.Time) bool {
	return b.ownRecords.Seen(before) && b.ownSlices.Seen(before) && b.ownInventories.Seen(before)
}
