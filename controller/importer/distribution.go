package importer

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
)

// noDistribution is the traffic distribution of a Namespace in which all endpoints are used alike.
const noDistribution = "none"

var distributions = []string{
	corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode,
	corev1.ServiceTrafficDistributionPreferClose,
}

// distributionOf returns the traffic distribution of an import: that of its Namespace, which may be nil, else that of
// the exports. The Namespace comes first, since another cluster can give its endpoints any zone name, and so draw the
// traffic of that zone. With an error the value is unknown, and the exports have no effect either
// (docs/spec/selection.md 5).
func distributionOf(ns *corev1.Namespace, exported *string) (*string, error) {
	if ns == nil {
		return exported, nil
	}
	value, given := ns.Annotations[apibroker.AnnotationTrafficDistribution]
	switch {
	case !given:
		return exported, nil
	case slices.Contains(distributions, value):
		return &value, nil
	case value == noDistribution:
		return nil, nil
	}
	return nil, fmt.Errorf("annotation %s: %.80q: want PreferSameZone, PreferSameNode, PreferClose or none",
		apibroker.AnnotationTrafficDistribution, value)
}
