package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Inventory is one part of what a member exports. Only what an inventory says ends an export: one that is missing on the broker and listed here was
// lost there, and goes on. It lives in the broker namespace of the member, which alone writes it, and is named by two hexadecimal digits, 00 to 3f:
// those of the services that it lists.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=inventories
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[0-3][0-9a-f]$')",message="the name of an Inventory has to be 00 to 3f"
type Inventory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the member says. There is no status: only the member writes to it.
	Spec InventorySpec `json:"spec"`
}

// InventorySpec is what one part of an inventory says.
type InventorySpec struct {
	// Stamp orders what the member writes on the broker: microseconds since 1970, higher than all that it gave before.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740991
	Stamp int64 `json:"stamp"`

	// Exports are the services of this part that the member exports, at most 500, sorted by name.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Exports []InventoryEntry `json:"exports,omitempty"`
}

// InventoryEntry is one service that a member exports.
type InventoryEntry struct {
	// Name is that of the export record: "<name>.<namespace>".
	//
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?\.[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// UID is that of the ServiceExport.
	//
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	UID string `json:"uid"`

	// From is the stamp from which on records and slices of this service count: that of the last inventory without it.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	From int64 `json:"from,omitempty"`
}

// InventoryList is a list of Inventory objects.
//
// +kubebuilder:object:root=true
type InventoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Inventory `json:"items"`
}
