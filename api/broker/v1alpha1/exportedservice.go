package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExportedService is an export record: one service of one member. It lives in the broker namespace of that member,
// which alone writes it, and is named "<name>.<namespace>" of the service.
//
// Whose it is follows from its namespace, never from its contents.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=exsvc
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name=Exported,type=date,JSONPath=`.spec.exportCreated`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.name + '.' + self.spec.__namespace__",message="the name of an ExportedService has to be <spec.name>.<spec.namespace>"
type ExportedService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the service. There is no status: only the member writes to it.
	Spec ExportedServiceSpec `json:"spec"`
}

// ServiceType is how clients reach an exported service. The words are those of ServiceImport (KEP-1645).
//
// +kubebuilder:validation:Enum=ClusterSetIP;Headless
type ServiceType string

// The types of an exported service. NodePort and LoadBalancer services export as ClusterSetIP.
const (
	ClusterSetIP ServiceType = "ClusterSetIP"
	Headless     ServiceType = "Headless" // clusterIP: None
)

// ExportedServiceSpec describes an exported service.
//
// The schema accepts no value that Go does not decode: one such value would make the whole list unreadable to older
// members. The format date-time is wider than RFC 3339, and an integer of more than 2^53 may come back as a float.
// Hence the patterns, which are what Go writes, and the bounds of integers.
type ExportedServiceSpec struct {
	// Namespace is that of the service in the exporting cluster: one RFC 1123 label.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// Name is that of the service: one RFC 1123 label.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	Type ServiceType `json:"type"`

	// Ports are those of the service in its own order, at most 100. No two share a name, and no two a protocol and number.
	//
	// +optional
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, (has(q.name) ? q.name : '') == (has(p.name) ? p.name : '')))",message="no two ports may share a name"
	Ports []ServicePort `json:"ports,omitempty"`

	// SessionAffinity is None or ClientIP; empty means None.
	//
	// +optional
	// +kubebuilder:validation:Enum=None;ClientIP
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// SessionAffinityConfig holds the timeout of ClientIP: 1 to 86,400 seconds.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.clientIP) || !has(self.clientIP.timeoutSeconds) || self.clientIP.timeoutSeconds >= 1 && self.clientIP.timeoutSeconds <= 86400",message="timeoutSeconds has to be 1 to 86400"
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`

	// InternalTrafficPolicy is Cluster or Local; none means Cluster.
	//
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`

	// TrafficDistribution is a word of Kubernetes, such as PreferClose, or one with the prefix of an implementation; newer
	// clusters know more words than older ones.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.indexOf('/') <= 253",message="the prefix has to be at most 253 octets"
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`

	// ClusterSelectors are the clusters that the traffic of the service prefers, the first ones first (KEP-5939): at most
	// 16 selectors.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(s, (has(s.matchProperties) ? s.matchProperties.map(p, p.name.size() + p.value.size()).sum() : 0) + (has(s.matchExpressions) ? s.matchExpressions.map(e, e.key.size() + (has(e.values) ? e.values.map(v, v.size()).sum() : 0)).sum() : 0)).sum() <= 8192",message="selectors have to be at most 8192 characters together"
	ClusterSelectors []ClusterSelector `json:"clusterSelectors,omitempty"`

	// ToClusters selects the clusters that the export reaches beside that of the member: those that match one of these
	// selectors (docs/spec/controller.md 3.8). Without the field it reaches all. Nothing stands for the importing cluster
	// here.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(s, (has(s.matchProperties) ? s.matchProperties.map(p, p.name.size() + p.value.size()).sum() : 0) + (has(s.matchExpressions) ? s.matchExpressions.map(e, e.key.size() + (has(e.values) ? e.values.map(v, v.size()).sum() : 0)).sum() : 0)).sum() <= 8192",message="selectors have to be at most 8192 characters together"
	ToClusters []ClusterSelector `json:"toClusters,omitempty"`

	// Endpoints is the kind of endpoints that the annotation of the ServiceExport asks for (docs/spec/controller.md 3.4);
	// empty: the option of the member decides. Newer members know more kinds.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Endpoints string `json:"endpoints,omitempty"`

	// Labels are spec.exportedLabels of the ServiceExport, sorted by key: at most 64, none with a reserved prefix.
	//
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=64
	Labels []Label `json:"labels,omitempty"`

	// Annotations are spec.exportedAnnotations of the ServiceExport, sorted by key: at most 64, none with a reserved
	// prefix.
	//
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.map(a, a.key.size() + (has(a.value) ? a.value.size() : 0)).sum() <= 32768",message="annotations have to be at most 32768 characters together"
	Annotations []Annotation `json:"annotations,omitempty"`

	// IPFamilies are those of the service in its own order, each once.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	IPFamilies []corev1.IPFamily `json:"ipFamilies"`

	// PublishNotReadyAddresses is that of the service. Its slices say the endpoints are ready by themselves.
	//
	// +optional
	PublishNotReadyAddresses bool `json:"publishNotReadyAddresses,omitempty"`

	// ExportCreated is when the ServiceExport was created, by the clock of the exporting cluster. Others use it only
	// between the creation of the member's broker namespace and that of this record (docs/spec/controller.md 4.2).
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$`
	ExportCreated metav1.Time `json:"exportCreated"`

	// ExportGeneration is the generation of the ServiceExport that this record shows.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	ExportGeneration int64 `json:"exportGeneration,omitempty"`

	// VIP holds the request for a clusterset IP ("vip cidr", docs/spec/controller.md 5.7).
	//
	// +optional
	VIP *VIP `json:"vip,omitempty"`

	// ClusterIPs are those of the service in the exporting cluster, one for each family at most; none if Headless.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(i, isIP(i) && ip.isCanonical(i) && ip(i).isGlobalUnicast())",message="want IP addresses in canonical form that are neither loopback, link-local nor multicast"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !self.all(i, isIP(i)) || ip(self[0]).family() != ip(self[1]).family()",message="want one address for each family"
	ClusterIPs []string `json:"clusterIPs,omitempty"`

	// Stamp orders the writes of the member, as in Inventory.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Stamp int64 `json:"stamp,omitempty"`

	// ExportUID is the UID of the ServiceExport. It is on each slice of the export, too.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	ExportUID string `json:"exportUID,omitempty"`

	// Slices names the slices of the export, at most 1,000, sorted: the hexadecimal digits that end the name of each.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{16}$`
	Slices []string `json:"slices,omitempty"`
}

// ServicePort is one port of an exported service.
type ServicePort struct {
	// Name is one RFC 1123 label, or empty.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Name string `json:"name,omitempty"`

	// Protocol is TCP, UDP or SCTP.
	//
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol"`

	// AppProtocol is the protocol above: a word, with or without the prefix of a domain.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.indexOf('/') <= 253",message="the prefix has to be at most 253 octets"
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	AppProtocol *string `json:"appProtocol,omitempty"`

	// Port is the number at which the service is reached, not that of its endpoints.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// Label is one exported label. A list of them, unlike a map, can bound its keys.
type Label struct {
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(kubernetes|k8s|clusterset-dns|submariner)[.]io/')",message="the prefix is reserved"
	// +kubebuilder:validation:XValidation:rule="self.indexOf('/') <= 253",message="the prefix has to be at most 253 octets"
	Key string `json:"key"`

	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Value string `json:"value,omitempty"`
}

// Annotation is one exported annotation.
type Annotation struct {
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(kubernetes|k8s|clusterset-dns|submariner)[.]io/')",message="the prefix is reserved"
	// +kubebuilder:validation:XValidation:rule="self.indexOf('/') <= 253",message="the prefix has to be at most 253 octets"
	Key string `json:"key"`

	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}

// VIP is the request for a clusterset IP (second Lighthouse document, "Creating ServiceExport"). Inventories have the
// addresses.
type VIP struct {
	// Wanted is whether this export asks for a clusterset IP. Changing it later changes only whether exports are in
	// conflict.
	//
	// +optional
	Wanted bool `json:"wanted"` // also false: an object that loses all of its fields becomes null when it is applied
}

// ExportedServiceList is a list of ExportedService objects.
//
// +kubebuilder:object:root=true
type ExportedServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExportedService `json:"items"`
}
