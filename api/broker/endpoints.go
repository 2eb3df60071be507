package broker

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// The kinds of endpoints in exported slices: values of the option "endpoints" and of [AnnotationEndpoints]. The
// default, also if empty, is PodIP.
const (
	PodIP     = "pod_ip"     // what the source slices hold (KEP-1645, second Lighthouse document)
	ServiceIP = "service_ip" // the cluster IPs of the Service (first Lighthouse document); Headless as PodIP
	// the addresses of the Service's load balancer; only Services of type LoadBalancer can be exported
	LoadBalancer = "load_balancer"
)

// EndpointKinds returns all kinds of endpoints.
func EndpointKinds() []string { return []string{PodIP, ServiceIP, LoadBalancer} }

// The zone and region labels of a slice (KEP-2030). They travel from the source slice to the imported one.
const (
	LabelForZone   = "endpointslice.kubernetes.io/for-zone"
	LabelForRegion = "endpointslice.kubernetes.io/for-region"
)

// TopologyOf returns the valid zone and region labels of a slice. An empty value is left out.
func TopologyOf(labels map[string]string) map[string]string {
	var topology map[string]string
	for _, key := range []string{LabelForZone, LabelForRegion} {
		if value := labels[key]; value != "" && IsLabelValue(value) {
			if topology == nil {
				topology = make(map[string]string, 2)
			}
			topology[key] = value
		}
	}
	return topology
}

// FamilyOf returns the IP family of an address.
func FamilyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// IsReady reports whether an endpoint with these conditions is ready: if that is unknown, it counts as ready
// (discovery.k8s.io/v1).
func IsReady(c discoveryv1.EndpointConditions) bool { return c.Ready == nil || *c.Ready }

// LosesLastReady reports whether a slice lost its last ready endpoint. is is nil if the slice is gone.
func LosesLastReady(before, after *discoveryv1.EndpointSlice) bool {
	return before != nil && hasReady(before) && (after == nil || !hasReady(after))
}

func hasReady(e *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(e.Endpoints, func(ep discoveryv1.Endpoint) bool { return IsReady(ep.Conditions) })
}
