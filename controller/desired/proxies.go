package desired

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// The functions in this file follow what proxies do with imported slices.

// labelProxyName is the label with which a Service names the proxy that serves it. k8s.io/api has no constant for it.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Hide gives an imported slice the two labels by which proxies leave it out, as its cluster is not selected
// (docs/spec/selection.md 4). Proxies drop its endpoints when the labels come, and have them again when the labels go.
//
// One label is not enough: kube-proxy looks at the headless label in all versions, and at the proxy's name up to
// Kubernetes 1.35. Cilium looks at the proxy's name, and not at the headless label where it serves Gateways or
// Ingresses.
func Hide(e *discoveryv1.EndpointSlice) {
	e.Labels[corev1.IsHeadlessService] = ""
	e.Labels[labelProxyName] = "none"
}

// Show takes the labels of [Hide] away.
func Show(e *discoveryv1.EndpointSlice) {
	delete(e.Labels, corev1.IsHeadlessService)
	delete(e.Labels, labelProxyName)
}

// ShownCopy returns a shown copy of an imported slice.
func ShownCopy(e *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	e = e.DeepCopy()
	e.UID, e.ResourceVersion, e.ManagedFields = "", "", nil
	if _, hidden := e.Labels[labelProxyName]; hidden { // a Headless service has the other label, too
		Show(e)
	}
	return e
}

// IsHidden reports whether proxies leave out an imported slice. The headless label decides alone: a Headless import has
// no other one.
func IsHidden(e *discoveryv1.EndpointSlice) bool {
	_, hidden := e.Labels[corev1.IsHeadlessService]
	return hidden
}

// SetHints gives the endpoints of imported slices the hints that a traffic distribution asks for: that of their own
// zone, and with PreferSameNode that of their own node, which only endpoints of this cluster have
// (docs/spec/controller.md 5.6). kube-proxy knows the distribution by hints alone, and ignores those for zones, or for
// nodes, while a ready endpoint that it sees has none.
//
// So each endpoint's hints follow from the endpoint alone: exports, hides and withdrawals of other clusters do not
// change its slice, and kube-proxy uses the hints for nodes as soon as it sees no other cluster.
func SetHints(distribution *string, imported []*discoveryv1.EndpointSlice) {
	asked := ptr.Deref(distribution, "")
	nodes := asked == corev1.ServiceTrafficDistributionPreferSameNode
	if !nodes && asked != corev1.ServiceTrafficDistributionPreferClose &&
		asked != corev1.ServiceTrafficDistributionPreferSameZone {
		return
	}
	for _, s := range imported {
		for i := range s.Endpoints {
			e, hints := &s.Endpoints[i], discoveryv1.EndpointHints{}
			if e.Zone != nil {
				hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
			}
			if nodes && e.NodeName != nil {
				hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
			}
			if hints.ForZones != nil || hints.ForNodes != nil {
				e.Hints = &hints
			}
		}
	}
}

// LacksLocal reports whether the addresses of an import lead to no endpoint in a cluster: its internal traffic policy
// is Local, so that proxies use the endpoints of their own node alone, and of the imported slices those that proxies
// use have no endpoint on a node of the cluster. Proxies ignore that policy for clusterset IPs, which are addresses of
// a load balancer (docs/spec/controller.md 5.6).
func LacksLocal(imp *mcsv1beta1.ServiceImport, imported []*discoveryv1.EndpointSlice, cluster string) bool {
	if ptr.Deref(imp.Spec.InternalTrafficPolicy, "") != corev1.ServiceInternalTrafficPolicyLocal ||
		len(imp.Spec.IPs) == 0 || imp.Annotations[broker.AnnotationAllocatedBy] != "" {
		return false
	}
	return !slices.ContainsFunc(imported, func(e *discoveryv1.EndpointSlice) bool {
		return cluster != "" && e.Labels[mcsv1beta1.LabelSourceCluster] == cluster && !IsHidden(e) &&
			slices.ContainsFunc(e.Endpoints, func(p discoveryv1.Endpoint) bool { return p.NodeName != nil })
	})
}
