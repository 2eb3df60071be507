package broker

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// A View is what the broker has of one service, read once. The caches go on meanwhile: whether something is lost, and what follows
// from that, must rest on the same state.
type View struct {
	Records []merge.Record // as Broker.Records returns them
	members map[string]*v1alpha1.Member
	slices  map[string][]*discoveryv1.EndpointSlice
}

// View returns what the broker has of a service now.
func (b *Broker) View(svc types.NamespacedName) View {
	v := View{
		Records: b.Records(svc),
		members: make(map[string]*v1alpha1.Member), slices: make(map[string][]*discoveryv1.EndpointSlice),
	}
	for _, r := range v.Records {
		if m := b.Member(r.Cluster); m != nil {
			v.members[r.Cluster], v.slices[r.Cluster] = m, b.slicesOf(svc, m)
		}
	}
	return v
}

// Has reports whether the broker has a record of a cluster, and its Member.
func (v View) Has(cluster string) bool {
	return v.members[cluster] != nil &&
		slices.ContainsFunc(v.Records, func(r merge.Record) bool { return r.Cluster == cluster })
}

// Member returns the member with this id, nil if it has no record.
func (v View) Member(id string) *v1alpha1.Member { return v.members[id] }

// Slices returns the slices of a cluster as [Broker.Slices] does, none if it has no record.
func (v View) Slices(cluster string) []*discoveryv1.EndpointSlice { return v.slices[cluster] }
