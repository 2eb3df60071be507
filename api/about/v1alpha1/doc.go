// Package v1alpha1 describes version v1alpha1 of the API group about.k8s.io (KEP-2149, "ClusterProperty CRD") to the
// generator of the CRD. Its schema is that of v1beta1. In clusters that serve nothing newer, its objects are read and
// written as the Go types of v1beta1.
//
// +groupName=about.k8s.io
package v1alpha1
