package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// SetHints gives the endpoints of imported slices the hints that a traffic distribution asks for: that of their own zone, and with PreferSameNode
// that of their own node (docs/spec/controller.md 5.6). kube-proxy knows the distribution by hints alone, and ignores those for zones, or for nodes, while one ready endpoint
// of the service has none.
//
// So an endpoint without a zone costs nothing but itself: the others keep their hints, and their slices are not written. Only endpoints of this cluster have the name
// of a node, so hints for nodes are complete, also over the slices that stay beside, or left out.
func SetHints(distribution *string, imported, beside []*discoveryv1.EndpointSlice) {
	var nodes bool
	switch deref(distribution) {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
	case corev1.ServiceTrafficDistributionPreferSameNode:
		nodes = !slices.ContainsFunc(slices.Concat(imported, beside), func(s *discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.NodeName == nil })
		})
	default:
		return
	}
	for _, s := range imported {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if e.Zone == nil && !nodes {
				continue
			}
			e.Hints = &discoveryv1.EndpointHints{}
			if e.Zone != nil {
				e.Hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
			}
			if nodes {
				e.Hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
			}
		}
	}
}
