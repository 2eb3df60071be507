// Package v1beta1 holds version v1beta1 of the API group about.k8s.io (KEP-2149, "ClusterProperty CRD"). It is the
// version that the API server stores.
//
// +kubebuilder:object:generate=true
// +groupName=about.k8s.io
package v1beta1
