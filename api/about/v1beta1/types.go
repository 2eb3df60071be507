package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterProperty holds one fact about its cluster: a name and a value (KEP-2149, "ClusterProperty CRD"). Names are
// well known (KEP-2149, "Well known properties") or end in a suffix of their own (KEP-2149, "Additional
// Properties").
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=multicluster
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name=value,type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name=age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/3084"
type ClusterProperty struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the value.
	Spec ClusterPropertySpec `json:"spec"`
}

// ClusterPropertySpec has the value of a ClusterProperty.
type ClusterPropertySpec struct {
	// Value is the fact, in the form that the name of the property asks for: 1 to 128,000 Unicode code points (KEP-2149,
	// "ClusterProperty CRD").
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128000
	Value string `json:"value"`
}

// ClusterPropertyList is a list of ClusterProperty objects.
//
// +kubebuilder:object:root=true
type ClusterPropertyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProperty `json:"items"`
}
