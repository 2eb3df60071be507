package exporter

import (
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// Own computes what this cluster exports, from the caches of its API server, and from its Member on the broker, which has the networks
// that it declared. It only reads. The methods may be called by
// several goroutines.
type Own struct {
	member     *member.Cluster
	broker     *broker.Broker
	membership *identity.Membership
	policy     member.Policy
	endpoints  export.Endpoints
	vips       *vips
	fields     *fields
}

// Export returns what this cluster exports under the name of the service, and its ServiceExport, nil if there is none.
func (o *Own) Export(svc types.NamespacedName) (export.Result, *mcsv1beta1.ServiceExport) {
	exp := o.member.Export(svc)
	if exp == nil {
		return export.Result{}, nil
	}
	options := export.Options{Namespace: o.policy.Of(o.member.Namespace(svc.Namespace)), Endpoints: o.endpoints}
	if id := o.membership.ClusterID(); id != "" && !identity.Leaving(o.member) {
		options.ClusterID, options.BrokerNamespace, options.VIP = id, o.membership.Namespace, o.vips.of(svc)
		if m := o.broker.Member(id); m != nil {
			options.Networks = m.Networks()
		}
	}
	return o.fields.without(export.From(exp, o.member.Service(svc), o.member.SourceSlices(svc), options)), exp
}
