package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
)

// ClusterProperty holds one fact about its cluster: a name and a value (KEP-2149, "ClusterProperty CRD"). Names are
// well known (KEP-2149, "Well known properties") or end in a suffix of their own (KEP-2149, "Additional
// Properties").
//
// +kubebuilder:resource:scope=Cluster,categories=multicluster
// +kubebuilder:printcolumn:name=value,type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name=age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/3084"
type ClusterProperty struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the value.
	Spec v1beta1.ClusterPropertySpec `json:"spec"`
}
