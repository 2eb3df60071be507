package broker

import (
	"cmp"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// Records returns the accepted export records of a service, sorted by cluster, with that of this member.
func (x *Exports) Records(svc types.NamespacedName) []merge.Record {
	var records []merge.Record
	for _, r := range indexed[*v1alpha1.ExportedService](x.records, byService, recordOf(svc)) {
		if record, ok := x.acceptRecord(r); ok {
			records = append(records, record)
		}
	}
	slices.SortFunc(records, func(a, b merge.Record) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return records
}

// Replace returns records with own in place of this member's record, or without that if own is nil: its own API server
// is ahead of the broker. Of the record on the broker only the times count that decide on precedence
// (docs/spec/controller.md 5). It does not change records.
func (x *Exports) Replace(records []merge.Record, own *v1alpha1.ExportedService) []merge.Record {
	ours := merge.Record{Cluster: x.clusterID}
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
func (x *Exports) Slices(svc types.NamespacedName, cluster string) []*discoveryv1.EndpointSlice {
	m := x.members.Get(cluster)
	if m == nil {
		return nil
	}
	var found []*discoveryv1.EndpointSlice
	for _, s := range indexed[*discoveryv1.EndpointSlice](x.slices, byOwner, m.Spec.Namespace+"/"+recordOf(svc)) {
		if id, ok := x.acceptSlice(s); ok && id == m.Name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// Services returns every service that an export record or a slice names, sorted, accepted or not.
func (x *Exports) Services() []types.NamespacedName {
	var services []types.NamespacedName
	for _, informer := range []cache.SharedIndexInformer{x.records, x.slices} {
		for _, record := range informer.GetIndexer().ListIndexFuncValues(byService) {
			// An index keeps values that no object has any more.
			if svc, ok := ServiceOf(record); ok && isIndexed(informer, byService, record) {
				services = append(services, svc)
			}
		}
	}
	return sortServices(services)
}

// HasRecord reports whether a member has an export record of a service, accepted or not.
func (x *Exports) HasRecord(svc types.NamespacedName) bool {
	return isIndexed(x.records, byService, recordOf(svc))
}

// Selectable returns the ClusterProperties of all members by their ids, which decide which clusters the exports of
// records reach; nil if all of them reach all.
func (x *Exports) Selectable(records []merge.Record) map[string]map[string]string {
	if !merge.AnyRestricted(records) {
		return nil
	}
	return x.members.properties()
}

// Reached returns the ids of the members that an export of this cluster reaches, sorted.
func (x *Exports) Reached(own merge.Record) []string {
	return merge.ReachedBy(own, x.members.properties())
}

// Offered returns the number of exports of this member that reach each member, by id. Only accepted records count.
func (x *Exports) Offered() map[string]int {
	own := x.members.Get(x.clusterID)
	if own == nil {
		return nil
	}
	var records []merge.Record
	for _, r := range indexed[*v1alpha1.ExportedService](x.records, cache.NamespaceIndex, own.Spec.Namespace) {
		if record, ok := x.acceptRecord(r); ok {
			records = append(records, record)
		}
	}
	return merge.OfferCounts(records, x.members.properties())
}

// RecordsOf returns how many export records a member has, accepted or not.
func (x *Exports) RecordsOf(cluster string) int {
	if m := x.members.Get(cluster); m != nil {
		return x.RecordsIn(m.Spec.Namespace)
	}
	return 0
}

// RecordsIn is RecordsOf by the namespace of a member.
func (x *Exports) RecordsIn(namespace string) int {
	keys, _ := x.records.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace)
	return len(keys)
}

// RecordCounts returns how many export records each member has, accepted or not, by id.
func (x *Exports) RecordCounts() map[string]int {
	counts := make(map[string]int)
	for _, m := range x.members.All() {
		counts[m.Name] = x.RecordsOf(m.Name)
	}
	return counts
}

// A View holds the broker's objects of one service, read once.
type View struct {
	Records []merge.Record                          // as Broker.Records returns them
	Members map[string]*v1alpha1.Member             // those with a record, by id
	Slices  map[string][]*discoveryv1.EndpointSlice // of these, as Broker.Slices returns them
}

// View returns what the broker has of a service now, and the options to merge it by: o, and with "vip cidr" the claims
// to clusterset IPs.
func (x *Exports) View(svc types.NamespacedName, o merge.Options) (View, merge.Options) {
	v := View{
		Records: x.Records(svc),
		Members: make(map[string]*v1alpha1.Member), Slices: make(map[string][]*discoveryv1.EndpointSlice),
	}
	for _, r := range v.Records {
		if m := x.members.Get(r.Cluster); m != nil {
			v.Members[r.Cluster], v.Slices[r.Cluster] = m, x.Slices(svc, r.Cluster)
		}
	}
	if o.VIP == merge.CIDR {
		o.VIPs = x.vips(svc, o.VIPNetworks, v.Records)
	}
	return v, o
}
