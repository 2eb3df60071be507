package broker

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// A View holds the broker's objects of one service, read once.
type View struct {
	Records []merge.Record                          // as Broker.Records returns them
	Members map[string]*v1alpha1.Member             // those with a record, by id
	Slices  map[string][]*discoveryv1.EndpointSlice // of these, as Broker.Slices returns them
}

// View returns what the broker has of a service now.
func (x *Exports) View(svc types.NamespacedName) View {
	v := View{
		Records: x.Records(svc),
		Members: make(map[string]*v1alpha1.Member), Slices: make(map[string][]*discoveryv1.EndpointSlice),
	}
	for _, r := range v.Records {
		if m := x.members.Get(r.Cluster); m != nil {
			v.Members[r.Cluster], v.Slices[r.Cluster] = m, x.slicesOf(svc, m)
		}
	}
	return v
}

// MergeView is [Exports.View] with the options to merge the service by: o, and with "vip cidr" the claims to clusterset
// IPs.
func (x *Exports) MergeView(svc types.NamespacedName, o merge.Options) (View, merge.Options) {
	v := x.View(svc)
	if o.VIP == merge.CIDR {
		o.VIPs = x.vips(svc, o.VIPNetworks, v.Records)
	}
	return v, o
}
