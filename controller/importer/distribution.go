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

// distributionOf returns the traffic distribution of an import in a Namespace, which may be nil: what that says, else
// what exports ask for. Another cluster can give its endpoints the name of any zone, and so draw the traffic of that
// zone: what this cluster says comes first. With an error the value is unknown, and keeps out what exports ask for, too
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
