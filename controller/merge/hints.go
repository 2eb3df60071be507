package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// SetHints gives the endpoints of imported slices the hints that a traffic distribution asks for: that of their own zone, and with PreferSameNode
// that of their own node (docs/spec/controller.md 5.6). kube-proxy knows the distribution by hints alone. It ignores them all while one endpoint of the service has none,
// so they are complete, also over the slices that stay beside, or left out. Only endpoints of this cluster have the name of a node.
func SetHints(distribution *string, imported, beside []*discoveryv1.EndpointSlice) {
	var zones, nodes bool
	switch deref(distribution) {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		zones = true
	case corev1.ServiceTrafficDistributionPreferSameNode:
		zones, nodes = true, true
	default:
		return
	}
	each := func(has func(*discoveryv1.Endpoint) bool) bool {
		return !slices.ContainsFunc(slices.Concat(imported, beside), func(s *discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return !has(&e) })
		})
	}
	zones = zones && each(func(e *discoveryv1.Endpoint) bool { return e.Zone != nil })
	nodes = nodes && each(func(e *discoveryv1.Endpoint) bool { return e.NodeName != nil })
	if !zones && !nodes {
		return
	}
	for _, s := range imported {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			e.Hints = &discoveryv1.EndpointHints{}
			if zones {
				e.Hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
			}
			if nodes {
				e.Hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
			}
		}
	}
}
