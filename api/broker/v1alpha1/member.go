package v1alpha1

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// Member is one cluster of the clusterset, as its admin made it known by joining; its name is the cluster id. Creating
// it takes the id and the VIP CIDRs (docs/spec/controller.md 2.1, docs/spec/controller.md 7.2).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name=VIP CIDRs,type=string,JSONPath=`.spec.vipCIDRs`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Pod CIDRs,type=string,JSONPath=`.spec.podCIDRs`,priority=1
// +kubebuilder:printcolumn:name=Service CIDRs,type=string,JSONPath=`.spec.serviceCIDRs`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="the name of a Member is its cluster id: one RFC 1123 label, or two joined by a dot, of at most 63 octets"
type Member struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is written by an admin alone.
	Spec MemberSpec `json:"spec"`

	// Status is written by the member alone.
	//
	// +optional
	Status MemberStatus `json:"status,omitempty"`
}

// MemberSpec is what a member was admitted with.
type MemberSpec struct {
	// KubeSystemUID is the UID of the namespace kube-system: it distinguishes this cluster from another that wants the
	// same id.
	//
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="another cluster needs another cluster id"
	KubeSystemUID string `json:"kubeSystemUID"`

	// Namespace is the broker namespace of the member: a prefix of at most 40 octets, "-" and 16 hex digits of the SHA-256
	// of the cluster id.
	//
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:validation:Pattern=`^[a-z0-9][-a-z0-9]{0,39}-[0-9a-f]{16}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the namespace follows from the cluster id"
	Namespace string `json:"namespace"`

	// PodCIDRs are where the addresses of the member's pods lie, at most 64. Without them no pod's address is accepted.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c) == cidr(c).masked())",message="want networks such as 10.0.0.0/16, without bits of a host"
	PodCIDRs []string `json:"podCIDRs,omitempty"`

	// ServiceCIDRs are where the addresses of the member's services lie, at most 64.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c) == cidr(c).masked())",message="want networks such as 10.0.0.0/16, without bits of a host"
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`

	// LoadBalancerCIDRs are where the addresses of the member's load balancers lie, at most 64.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c) == cidr(c).masked())",message="want networks such as 10.0.0.0/16, without bits of a host"
	LoadBalancerCIDRs []string `json:"loadBalancerCIDRs,omitempty"`

	// VIPCIDRs are the networks that the member allocates clusterset IPs from, at most one of each IP family. If
	// those of two members overlap, the older member keeps its network. A join replaces the whole list.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c) == cidr(c).masked())",message="want networks such as 243.0.0.0/16, without bits of a host"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !self.all(c, isCIDR(c)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="want at most one network of each IP family"
	VIPCIDRs []string `json:"vipCIDRs,omitempty"`

	// Protocol is the version of what the member writes on the broker; 1 if missing. Controllers that do not know it keep
	// what they imported of the member, and take nothing new.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	Protocol int32 `json:"protocol,omitempty"`
}

// Stamp returns the stamp of the last join that changed m, or 0. Each is higher than the one before
// (docs/spec/controller.md 2.6).
func (m *Member) Stamp() int64 {
	stamp, err := strconv.ParseInt(m.Annotations[broker.AnnotationStamp], 10, 64)
	if err != nil {
		return 0
	}
	return stamp
}

// MemberStatus is what a member publishes about itself.
type MemberStatus struct {
	// Version is that of its controller.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[ -~]*$`
	Version string `json:"version,omitempty"`

	// Merge is the option "merge". Members with different values may see different imports of the same exports.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^(kep|lighthouse|first)?$`
	Merge string `json:"merge,omitempty"`

	// VIP is its option "vip", as in the Corefile, with the networks that are not the default: "cidr 10.250.0.0/16".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^(derived|none|cidr( [0-9a-f.:]+/[0-9]+){0,2})?$`
	VIP string `json:"vip,omitempty"`

	// Properties are the ClusterProperties of the member, sorted by name: at most 32, with 8192 characters together. Other
	// members select clusters by them.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.map(p, p.name.size() + p.value.size()).sum() <= 8192",message="properties have to be at most 8192 characters together"
	Properties []Property `json:"properties,omitempty"`

	// Rejected are ServiceExports of the member that are not on the broker, at most 64. clusterset explain shows them in
	// other clusters. They are not exports: importers ignore them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Rejected []RejectedExport `json:"rejected,omitempty"`
}

// RejectedExport is a ServiceExport that is not on the broker, with the condition that reports the reason.
type RejectedExport struct {
	// Name is that of the missing export record: "<name>.<namespace>".
	//
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?\.[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Reason is that of the condition.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z]+$`
	Reason string `json:"reason"`

	// Message is the beginning of that of the condition.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[ -~]*$`
	Message string `json:"message,omitempty"`
}

// Property is a ClusterProperty of a member.
type Property struct {
	// Name is an RFC 1123 subdomain.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Name string `json:"name"`

	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value"`
}

// MemberList is a list of Member objects.
//
// +kubebuilder:object:root=true
type MemberList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Member `json:"items"`
}
