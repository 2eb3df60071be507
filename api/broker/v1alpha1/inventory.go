package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Inventory lists a part of the services that a member exports, or gives clusterset IPs to. An export ends when its
// inventory no longer lists its UID. A listed record that is missing was lost by the broker. Each inventory lies in the
// broker namespace of its member, the only writer. Its name is two hexadecimal digits, 00 to 3f: a hash of each listed
// service.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=inventories
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[0-3][0-9a-f]$')",message="the name of an Inventory has to be 00 to 3f"
type Inventory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is written by the member. There is no status.
	Spec InventorySpec `json:"spec"`
}

// InventorySpec holds a stamp and the exports of one part.
type InventorySpec struct {
	// Stamp orders the writes of the member: microseconds since 1970, higher than in all of its earlier writes.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740991
	Stamp int64 `json:"stamp"`

	// Exports are the services of this part that the member exports or gives clusterset IPs to, at most 500, sorted by
	// name.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Exports []InventoryEntry `json:"exports,omitempty"`
}

// InventoryEntry is one service that a member exports or gives clusterset IPs to.
type InventoryEntry struct {
	// Name is the name of the export record: "<name>.<namespace>".
	//
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?\.[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// UID is the UID of the ServiceExport; none if the entry only has claims.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	UID string `json:"uid,omitempty"`

	// From is the stamp of the last inventory without this service. Older records and slices do not count.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	From int64 `json:"from,omitempty"`

	// Behind is a stamp at which the member could not write the service: records and slices that are older may be out of
	// date.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Behind int64 `json:"behind,omitempty"`

	// Claims are the clusterset IPs that the member gives to the service, at most one of each IP family.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Claims []Claim `json:"claims,omitempty"`
}

// Claim is a clusterset IP that a member gives to a service (docs/spec/controller.md 5.7).
type Claim struct {
	// IP is an address in a VIP CIDR of the member. Readers ignore all other addresses.
	//
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:Pattern=`^[0-9a-f.:]+$`
	IP string `json:"ip"`

	// Since is when the member claimed it, in microseconds since 1970.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740991
	Since int64 `json:"since"`

	// Released is the time when the service lost the address, in microseconds since 1970; 0 while it has it. Another
	// service may get it after ten minutes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Released int64 `json:"released,omitempty"`
}

// InventoryList is a list of Inventory objects.
//
// +kubebuilder:object:root=true
type InventoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Inventory `json:"items"`
}
