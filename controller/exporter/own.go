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

// Own computes what this cluster exports, from the caches of its API server, and from its Member on the broker, which
// has the networks that it declared. It only reads. The methods may be called by several goroutines.
type Own struct {
	member    *member.Cluster
	broker    *broker.Broker
	namespace string // of this member on the broker
	policy    member.Policy
	endpoints string
	wantsVIP  func() *bool // the default of exports
}

// Export returns the export of a service under a given membership, and its ServiceExport, or nil. readable is false if
// the ServiceExport does not decode, or is not known, and the broker has no record: then nothing may follow. The export
// is read first, as the caches may lose it at any moment.
//
// A listed service keeps the listed UID, even if its ServiceExport was deleted and created again: a new UID would end
// the export.
func (o *Own) Export(svc types.NamespacedName, status identity.Status) (r export.Result, exp *mcsv1beta1.ServiceExport,
	readable bool) {
	if exp = o.member.Export(svc); exp != nil {
		listed := exp
		if uid := o.broker.Own.ListedUID(svc); uid != "" && uid != exp.UID {
			listed = exp.DeepCopy()
			listed.UID = uid
		}
		return o.resultOf(listed, status), exp, true
	}
	record, _ := o.broker.Own.Objects(svc)
	uid := o.broker.Own.ListedUID(svc)
	switch {
	case o.member.Unreadable(svc):
		return r, nil, false
	case uid == "":
	case record == nil:
		return r, nil, o.member.ExportsKnown()
	case o.member.ExportGoesOn(svc, record.Spec.ExportCreated.Time):
		r = o.lostExport(record, uid, status)
	}
	return r, nil, true
}

// GoesOn reports whether an export goes on although its ServiceExport is neither there nor remembered, or that is not
// known.
func (o *Own) GoesOn(svc types.NamespacedName) bool {
	record, _ := o.broker.Own.Objects(svc)
	return !o.broker.Synced() || o.broker.Own.ListedUID(svc) != "" && record != nil &&
		o.member.ExportGoesOn(svc, record.Spec.ExportCreated.Time)
}

// lostExport returns the listed export of a record. Its ServiceExport went with its CRD while no controller ran, or
// cannot be read yet (docs/spec/controller.md 3.2). Its endpoints follow the Service; its slice strategy is not known.
func (o *Own) lostExport(record *v1alpha1.ExportedService, uid types.UID, status identity.Status) export.Result {
	spec := &record.Spec
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: spec.Namespace, Name: spec.Name, UID: uid, CreationTimestamp: spec.ExportCreated,
		Generation: spec.ExportGeneration,
	}}
	if spec.Endpoints != "" {
		exp.Annotations = map[string]string{apibroker.AnnotationEndpoints: spec.Endpoints}
	}
	r := o.resultOf(exp, status)
	if r.Record != nil {
		to := &r.Record.Spec
		to.Labels, to.Annotations, to.ClusterSelectors, to.ToClusters = spec.Labels, spec.Annotations, spec.ClusterSelectors,
			spec.ToClusters
		if to.VIP != nil && spec.VIP != nil {
			to.VIP.Wanted = spec.VIP.Wanted
		}
	}
	return r
}

// byZone reports whether the endpoints of the export are divided by zone now: on the broker or, while that is not
// known, in the own import.
func (o *Own) byZone(svc types.NamespacedName, clusterID string) bool {
	_, existing := o.broker.Own.Objects(svc)
	if !o.broker.Synced() {
		existing = o.member.ImportedSlices(svc)
	}
	return slices.ContainsFunc(existing, func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[mcsv1beta1.LabelSourceCluster] == clusterID && s.Labels[apibroker.LabelForZone] != ""
	})
}

// resultOf returns what an export comes to.
func (o *Own) resultOf(exp *mcsv1beta1.ServiceExport, status identity.Status) export.Result {
	svc := member.KeyOf(exp)
	options := export.Options{Namespace: o.policy.Of(o.member.Namespace(svc.Namespace)), Endpoints: o.endpoints}
	if status.ClusterID != "" && !status.Leaving {
		options.ClusterID, options.BrokerNamespace, options.WantsVIP = status.ClusterID, o.namespace, o.wantsVIP()
		m := o.broker.Members.Get(status.ClusterID)
		options.Networks = m.Networks()
		_, options.LeftOut = identity.Published(o.member, m)
		options.ByZone = o.byZone(svc, status.ClusterID)
	}
	return export.From(exp, o.member.Service(svc), o.member.SourceSlices(svc), options)
}
