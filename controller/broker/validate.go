package broker

import (
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// Exports are the valid objects that members publish. A rejected object is reported once for each of its versions.
type Exports struct {
	members   *Members
	own       string    // namespace of this member
	clusterID string    // of this member
	handlers  *Handlers // each is a function

	records, slices, inventories cache.SharedIndexInformer

	newest     inventories
	rejections logging.OnChangeOf[string, string] // version and reason, by kind and key of the rejected objects
}

// validateRecord returns a record as [merge.Merge] takes it, or why it is rejected.
func (x *Exports) validateRecord(r *v1alpha1.ExportedService) (merge.Record, *merge.Rejection) {
	reject := func(cluster string, reason merge.Reason, err error) (merge.Record, *merge.Rejection) {
		return merge.Record{}, &merge.Rejection{Cluster: cluster, Object: r.Name, Reason: reason, Detail: err.Error()}
	}
	id, since, err := x.members.memberOf(r.Namespace)
	if err != nil {
		return reject("", merge.BadCluster, err)
	}
	if err := r.Validate(); err != nil {
		return reject(id, merge.BadRecord, err)
	}
	if err := r.ValidateNames(id); err != nil {
		return reject(id, merge.BadName, err)
	}
	return merge.Record{Cluster: id, Admitted: since, Created: r.CreationTimestamp, Spec: r.Spec}, nil
}

// validateSlice returns the cluster that a slice belongs to, or why it is rejected. Package desired validates the
// contents.
func (x *Exports) validateSlice(s *discoveryv1.EndpointSlice) (string, *merge.Rejection) {
	reject := func(cluster string, reason merge.Reason, err error) (string, *merge.Rejection) {
		return "", &merge.Rejection{Cluster: cluster, Object: s.Name, Reason: reason, Detail: err.Error()}
	}
	id, _, err := x.members.memberOf(s.Namespace)
	if err != nil {
		return reject("", merge.BadCluster, err)
	}
	svc := types.NamespacedName{Namespace: s.Labels[broker.LabelSourceNamespace],
		Name: s.Labels[mcsv1beta1.LabelServiceName]}
	if !broker.IsLabel(svc.Namespace) || !broker.IsLabel(svc.Name) {
		return reject(id, merge.BadName, fmt.Errorf(
			"labels of service %.80q: want one RFC 1123 label each of namespace and name", svc.String()))
	}
	hash, ok := strings.CutPrefix(s.Name, recordOf(svc)+".")
	if !ok || !broker.IsSliceHash(hash) {
		return reject(id, merge.BadName, fmt.Errorf("slice %.80q: want %s and 16 hex digits", s.Name, recordOf(svc)+"."))
	}
	if err := v1alpha1.ValidateLabels(s.Labels, svc.Namespace, svc.Name, id); err != nil {
		return reject(id, merge.BadName, err)
	}
	if StampOf(s) <= 0 || s.Annotations[broker.AnnotationExportUID] == "" {
		return reject(id, merge.BadSlice, fmt.Errorf(
			"annotations %s %.80q, %s %.80q: want a positive number and the UID of the export",
			broker.AnnotationStamp, s.Annotations[broker.AnnotationStamp], broker.AnnotationExportUID,
			s.Annotations[broker.AnnotationExportUID]))
	}
	return id, nil
}

// report reports the rejection of an object once for each version and reason, or with nil forgets an earlier one.
func (x *Exports) report(obj metav1.Object, kind string, r *merge.Rejection) {
	key := kind + "/" + obj.GetNamespace() + "/" + obj.GetName()
	if r == nil || r.Detail == errRemoved.Error() {
		x.rejections.Clear(key)
		return
	}
	if x.rejections.Changed(key, string(obj.GetUID())+" "+obj.GetResourceVersion()+" "+string(r.Reason)) {
		x.handlers.Rejected(*r)
	}
}

// reportUndecodable reports an object that does not decode, once for each of its versions.
func (x *Exports) reportUndecodable(bad *apiserver.Undecodable) {
	id, _, err := x.members.memberOf(bad.Namespace)
	if err != nil {
		id = "" // of no member
	}
	x.report(bad, "undecodable "+bad.Kind, &merge.Rejection{
		Cluster: id, Object: bad.Name, Reason: merge.Undecodable, Detail: bad.Err.Error(),
	})
}

// acceptRecord returns a validated record and whether it is accepted; a rejection is reported.
func (x *Exports) acceptRecord(r *v1alpha1.ExportedService) (merge.Record, bool) {
	record, rejected := x.validateRecord(r)
	x.report(r, kindRecord, rejected)
	return record, rejected == nil
}

// acceptSlice returns the cluster that a slice belongs to and whether it is accepted; a rejection is reported.
func (x *Exports) acceptSlice(s *discoveryv1.EndpointSlice) (string, bool) {
	id, rejected := x.validateSlice(s)
	x.report(s, kindSlice, rejected)
	return id, rejected == nil
}
