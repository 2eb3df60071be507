package desired

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// SetHints gives the endpoints of imported slices the hints that a traffic distribution asks for: that of their own
// zone, and with PreferSameNode that of their own node, which only endpoints of this cluster have
// (docs/spec/controller.md 5.6). kube-proxy knows the distribution by hints alone, and ignores those for zones, or for
// nodes, while a ready endpoint that it sees has none.
//
// So each endpoint's hints follow from the endpoint alone: exports, hides and withdrawals of other clusters do not
// change its slice, and kube-proxy uses the hints for nodes as soon as it sees no other cluster.
func SetHints(distribution *string, imported []*discoveryv1.EndpointSlice) {
	var nodes bool
	switch ptr.Deref(distribution, "") {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
	case corev1.ServiceTrafficDistributionPreferSameNode:
		nodes = true
	default:
		return
	}
	for _, s := range imported {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			node := nodes && e.NodeName != nil
			if e.Zone == nil && !node {
				continue
			}
			e.Hints = &discoveryv1.EndpointHints{}
			if e.Zone != nil {
				e.Hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
			}
			if node {
				e.Hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
			}
		}
	}
}
