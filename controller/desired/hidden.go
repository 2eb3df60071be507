package desired

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

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

// Kept returns a shown copy of an imported slice.
func Kept(e *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	e = e.DeepCopy()
	e.UID, e.ResourceVersion, e.ManagedFields = "", "", nil
	if _, hidden := e.Labels[labelProxyName]; hidden { // a Headless service has the other label, too
		Show(e)
	}
	return e
}

// IsHidden reports whether proxies leave out an imported slice. The headless label decides alone: older versions of
// ours set no other one.
func IsHidden(e *discoveryv1.EndpointSlice) bool {
	_, hidden := e.Labels[corev1.IsHeadlessService]
	return hidden
}
