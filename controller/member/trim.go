package member

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// trim drops the fields that the controller does not read. It keeps our own entries of managedFields, which
// [desired.Diff] reads, and the writers of a ServiceExport.
func trim(object any) (any, error) {
	o, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	if _, export := object.(*mcsv1beta1.ServiceExport); export {
		trimManagers(o.GetManagedFields())
	} else {
		o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), isForeign))
	}
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	switch o := o.(type) {
	case *corev1.Service:
		if o.Labels[broker.LabelManagedBy] != broker.ManagedBy {
			o.Status.Conditions = nil
		}
	case *corev1.Namespace:
		o.Spec = corev1.NamespaceSpec{}
		o.Status.Conditions = nil
	case *discoveryv1.EndpointSlice:
		if isOurSlice(o) {
			break // all of it is compared
		}
		for i := range o.Endpoints {
			o.Endpoints[i].TargetRef, o.Endpoints[i].Hints, o.Endpoints[i].DeprecatedTopology = nil, nil, nil
		}
	}
	return o, nil
}

// isForeign reports whether an entry is not of this project.
func isForeign(e metav1.ManagedFieldsEntry) bool {
	return !strings.HasPrefix(e.Manager, wellknown.ManagerPrefix)
}

// trimManagers keeps of the other writers of a ServiceExport that they exist, and the fields of its status.
func trimManagers(entries []metav1.ManagedFieldsEntry) {
	for i := range entries {
		if e := &entries[i]; isForeign(*e) && e.Subresource != "status" {
			e.FieldsV1 = nil
		}
	}
}
