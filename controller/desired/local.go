package desired

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// LacksLocal reports whether the addresses of an import lead to no endpoint in a cluster: its internal traffic policy
// is Local, so that proxies use the endpoints of their own node alone, and of the imported slices those that proxies
// use have no endpoint on a node of the cluster. Proxies ignore that policy for clusterset IPs, which are addresses of
// a load balancer (docs/spec/controller.md 5.6).
func LacksLocal(imp *mcsv1beta1.ServiceImport, imported []*discoveryv1.EndpointSlice, cluster string) bool {
	policy := imp.Spec.InternalTrafficPolicy
	if policy == nil || *policy != corev1.ServiceInternalTrafficPolicyLocal || len(imp.Spec.IPs) == 0 ||
		imp.Annotations[broker.AnnotationAllocatedBy] != "" {
		return false
	}
	return !slices.ContainsFunc(imported, func(e *discoveryv1.EndpointSlice) bool {
		return cluster != "" && e.Labels[mcsv1beta1.LabelSourceCluster] == cluster && !IsHidden(e) &&
			slices.ContainsFunc(e.Endpoints, func(p discoveryv1.Endpoint) bool { return p.NodeName != nil })
	})
}
