// Package v1alpha1 holds version v1alpha1 of the API group about.k8s.io (KEP-2149, "ClusterProperty CRD"). Its schema
// is that of v1beta1; it is read from clusters that serve nothing newer.
//
// +kubebuilder:object:generate=true
// +groupName=about.k8s.io
package v1alpha1
