package join

import (
	"time"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Defaults of the options.
const (
	DefaultPrefix     = "clusterset" // of broker namespaces
	DefaultClusterSet = "clusterset" // name of the clusterset
)

// ByKubeSystem as a cluster id stands for the UID of the Namespace kube-system, the value that KEP-2149 recommends.
const ByKubeSystem = "kube-system-uid"

// Special values of [Options].VIPCIDR and LoadBalancerCIDRs.
const (
	// keep the VIP CIDRs of the member, and take the first free one of each IP family of its Services that lacks one
	VIPAuto  = "auto"
	CIDRNone = "none" // give up the VIP CIDRs, or the CIDRs of load balancers
)

// Options are the options of [Join]. Start from [Defaults].
type Options struct {
	write.Options

	ClusterID  string // [ByKubeSystem] or an id; "" is the id in the ClusterProperty of the cluster
	ClusterSet string // name of the clusterset; "" is that of the cluster, of the other members, or [DefaultClusterSet]
	Prefix     string // of the broker namespace, at most 40 octets; "" is that of the Member, or [DefaultPrefix]
	Namespace  string // of the controller in the member
	Region     string // the ClusterProperty region.topology.k8s.io of the cluster, or [RegionAuto]; "" leaves it as it is

	PodCIDRs, ServiceCIDRs []string // at most 64 each; if empty, those found in the cluster
	LoadBalancerCIDRs      []string // at most 64, or only [CIDRNone]; if empty, those declared before
	// one network of each IP family, separated by a comma, [VIPAuto] or [CIDRNone]; "" keeps those of the member
	VIPCIDR string
	// networks that contain the VIP CIDRs of all members, in the same form; "" are those of the clusterset, or the default
	VIPPool      string
	Endpoints    string // one of [broker.EndpointKinds]: which of the networks the cluster exports addresses of
	AllowOverlap bool   // the networks may overlap with those of other members

	BrokerServer     string        // URL by which the member reaches the broker; "" is that of the broker configuration
	CredentialLife   time.Duration // longest lifetime of a token, at least 10 minutes; the broker may grant less
	Quota            Quota
	AllowSameCluster bool // broker and member may be the same cluster
	TakeOver         bool // another cluster may renew the heartbeat of this one: its credential ends
	ReplaceBroker    bool // the broker may have another kube-system UID than the one that the cluster joined

	Components     []Component // what to install in the member; if empty, nothing
	KeepComponents bool        // install those of the join before instead, or else defaultComponents
	Values         Values      // for the manifests of the components
	DNS            dns.Options // how to wire the cluster's DNS server; Join sets the Service
	// until new Pods run, the controller renews its heartbeat and the DNS server is ready, at most Timeout each
	Wait    bool
	Timeout time.Duration // of each wait

	Now func() time.Time
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{
		Namespace: wellknown.ControllerNamespace, Now: time.Now,
		CredentialLife: broker.DefaultCredentialLife, DNS: dns.Defaults(), Wait: true, Timeout: 5 * time.Minute,
	}
}

// Result is the result of [Join].
type Result struct {
	ClusterID         string              `json:"clusterID"`
	ClusterSet        string              `json:"clusterSet"`
	Namespace         string              `json:"namespace"` // on the broker
	PodCIDRs          []string            `json:"podCIDRs,omitempty"`
	ServiceCIDRs      []string            `json:"serviceCIDRs,omitempty"`
	LoadBalancerCIDRs []string            `json:"loadBalancerCIDRs,omitempty"`
	VIPCIDRs          []string            `json:"vipCIDRs,omitempty"`
	VIP               string              `json:"vip,omitempty"`              // the option of the controller
	Merge             string              `json:"merge,omitempty"`            // likewise
	Region            string              `json:"region,omitempty"`           // that the cluster got
	RegionOfNodes     string              `json:"regionOfNodes,omitempty"`    // of all Nodes, if the cluster has no region
	Components        []Component         `json:"components,omitempty"`       // that are installed
	CredentialExpires time.Time           `json:"credentialExpires,omitzero"` // zero in a dry run
	Networks          []networks.Declared `json:"networks,omitempty"`         // those CIDRs, with where they are known from
	Warnings          []string            `json:"warnings,omitempty"`
	DNS               *dns.State          `json:"dns,omitempty"` // of the cluster's DNS server; nil if Join did not look at it
}
