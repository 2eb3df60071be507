package broker

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// SourceAllowed reports whether ns accepts exports of the cluster (docs/spec/controller.md 9.2). Without
// [AnnotationAllowedSources] it accepts all clusters, with an empty annotation no cluster.
func SourceAllowed(ns *corev1.Namespace, clusterID string) bool {
	list, limited := ns.Annotations[AnnotationAllowedSources]
	return !limited || slices.ContainsFunc(strings.Split(list, ","),
		func(id string) bool { return strings.TrimSpace(id) == clusterID })
}
