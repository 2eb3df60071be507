package broker

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

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
