package exporter

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// Own computes what this cluster exports, from the caches of its API server, and from its Member on the broker, which has the networks
// that it declared. It only reads. The methods may be called by
// several goroutines.
type Own struct {
	member    *member.Cluster
	broker    *broker.Broker
	namespace string // of this member on the broker
	policy    member.Policy
	endpoints export.Endpoints
	vips      *vips
}

// Export returns what this cluster, whose membership is as is says, exports under the name of the service, and its ServiceExport, nil if
// there is none. It reports false if there is one that does not decode, or if it is not known yet whether one went with its CRD: nothing may follow then. That
// is asked after the export was read, as it may be lost to the caches at any moment before.
func (o *Own) Export(svc types.NamespacedName, is identity.Status) (r export.Result, exp *mcsv1beta1.ServiceExport, readable bool) {
	if exp = o.member.Export(svc); exp != nil {
		return o.of(exp, is), exp, true
	}
	record, _ := o.broker.Own(svc)
	since := o.member.ExportsSince()
	switch {
	case o.member.Unreadable(svc), record != nil && since.IsZero():
		return r, nil, false
	case record != nil && record.Spec.ExportCreated.Time.Before(since):
		r = o.lost(record, is)
	}
	return r, nil, true
}

// lost returns what goes on of an export that went with its CRD while no controller ran (docs/spec/controller.md 3.2): all that its record says, and the
// endpoints of now.
func (o *Own) lost(record *v1alpha1.ExportedService, is identity.Status) export.Result {
	spec := &record.Spec
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: spec.Namespace, Name: spec.Name, UID: types.UID(spec.ExportUID), CreationTimestamp: spec.ExportCreated, Generation: spec.ExportGeneration,
	}}
	r := o.of(exp, is)
	if r.Record != nil {
		to := &r.Record.Spec
		to.Labels, to.Annotations, to.ClusterSelectors, to.ToClusters = spec.Labels, spec.Annotations, spec.ClusterSelectors, spec.ToClusters
	}
	return r
}

// byZone reports whether the endpoints of the export are divided by zone now: on the broker or, while that is not known, in the own import.
func (o *Own) byZone(svc types.NamespacedName, clusterID string) bool {
	_, existing := o.broker.Own(svc)
	if !o.broker.Synced() {
		existing = o.member.ImportedSlices(svc)
	}
	return slices.ContainsFunc(existing, func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[mcsv1beta1.LabelSourceCluster] == clusterID && s.Labels[apibroker.LabelForZone] != ""
	})
}

// of returns what an export comes to.
func (o *Own) of(exp *mcsv1beta1.ServiceExport, is identity.Status) export.Result {
	svc := member.KeyOf(exp)
	options := export.Options{Namespace: o.policy.Of(o.member.Namespace(svc.Namespace)), Endpoints: o.endpoints}
	if is.ClusterID != "" && !is.Leaving {
		options.ClusterID, options.BrokerNamespace, options.VIP = is.ClusterID, o.namespace, o.vips.of(svc)
		if m := o.broker.Member(is.ClusterID); m != nil {
			options.Networks = m.Networks()
		}
		options.ByZone = o.byZone(svc, is.ClusterID)
	}
	return export.From(exp, o.member.Service(svc), o.member.SourceSlices(svc), options)
}
