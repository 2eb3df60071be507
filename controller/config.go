package controller

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// A Config says what one controller does. [Defaults] and the setters of [Options] make all of it but the fields of the first
// group. Nobody may write to what it reaches.
type Config struct {
	Local   *rest.Config   // the API server of this cluster; its QPS and Burst do not count
	Version string         // of the program, for Member.status
	Metrics *Metrics       // nil if they are not collected
	Log     logging.Logger // nil discards

	// Broker is the path of a kubeconfig, Context one of its contexts or "" for its current one. The context names the
	// broker namespace of this member.
	Broker, Context string
	// ClusterID is what the ClusterProperty cluster.clusterset.k8s.io is set to if there is none; "" leaves that to others.
	ClusterID string
	// Namespace holds the Lease and the Secret of this controller. Its default is the namespace of the Pod that the controller
	// runs in, or [wellknown.ControllerNamespace] outside of a Pod.
	Namespace string

	VIP merge.VIPMode
	// VIPPool is the network that VIP CIDRs of members are taken from, with "vip cidr".
	VIPPool   netip.Prefix
	Endpoints export.Endpoints
	// ServiceCIDRs count where the API server has no ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix

	// Renew is the time between two heartbeats, TTL the age from which on a member's heartbeat is expired. Both are 0 with
	// "lease 0": nobody expires, and this member renews nothing.
	Renew, TTL time.Duration
	OnExpiry   OnExpiry

	OnConflict   merge.OnConflict
	PortMerge    merge.PortMerge
	TypeConflict merge.TypeConflict
	Precedence   merge.Precedence

	// Namespaces and NamespaceLabels replace the default of which namespaces take part: one of the first, or those that
	// match the second. Neither means the default, all but kube-*, default and Namespace.
	Namespaces      []string
	NamespaceLabels labels.Selector

	LegacyConditions bool
	AggregateView    bool

	// QPS and Burst bound the requests to each of the two API servers.
	QPS   float32
	Burst int
}

// OnExpiry says what becomes of the endpoints of a member whose heartbeat expired.
type OnExpiry string

// The values of "on_expiry".
const (
	Remove   OnExpiry = "remove"    // its imported slices are removed
	NotReady OnExpiry = "not_ready" // its endpoints stay, not ready
	Retain   OnExpiry = "keep"      // they stay as they are
)

// Defaults returns what holds where nothing is said (section 1).
func Defaults() Config {
	return Config{
		Namespace: ownNamespace(),
		VIP:       merge.Derived,
		VIPPool:   netip.MustParsePrefix("243.0.0.0/8"),
		Endpoints: export.PodIP,
		Renew:     10 * time.Second, TTL: time.Minute, OnExpiry: Remove,
		OnConflict: merge.OldestWins, PortMerge: merge.Union, TypeConflict: merge.Keep, Precedence: merge.Claimed,
		QPS: 500, Burst: 1000,
	}
}

// namespaceFile is where a Pod finds the name of its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func ownNamespace() string {
	if b, err := os.ReadFile(namespaceFile); err == nil && len(b) > 0 {
		return strings.TrimSpace(string(b))
	}
	return wellknown.ControllerNamespace
}

// Same reports whether a controller of other does just what one of c does: then a reload keeps it.
func (c *Config) Same(other *Config) bool {
	return c.Difference(other) == ""
}

// Difference names the first option in which the two differ, "" if there is none. How the local API server is reached counts
// as "kubeconfig".
func (c *Config) Difference(other *Config) string {
	for _, x := range []struct {
		name string
		same bool
	}{
		{"kubeconfig", sameServer(c.Local, other.Local)},
		{"broker", c.Broker == other.Broker && c.Context == other.Context},
		{"cluster_id", c.ClusterID == other.ClusterID},
		{"controller_namespace", c.Namespace == other.Namespace},
		{"vip", c.VIP == other.VIP && c.VIPPool == other.VIPPool},
		{"endpoints", c.Endpoints == other.Endpoints},
		{"service_cidr", slices.Equal(c.ServiceCIDRs, other.ServiceCIDRs)},
		{"lease", c.Renew == other.Renew && c.TTL == other.TTL},
		{"on_expiry", c.OnExpiry == other.OnExpiry},
		{"on_conflict", c.OnConflict == other.OnConflict},
		{"port_merge", c.PortMerge == other.PortMerge},
		{"type_conflict", c.TypeConflict == other.TypeConflict},
		{"precedence", c.Precedence == other.Precedence},
		{"import_namespaces", slices.Equal(c.Namespaces, other.Namespaces) && text(c.NamespaceLabels) == text(other.NamespaceLabels)},
		{"legacy_conditions", c.LegacyConditions == other.LegacyConditions},
		{"aggregate_view", c.AggregateView == other.AggregateView},
		{"controller_qps", c.QPS == other.QPS && c.Burst == other.Burst},
	} {
		if !x.same {
			return x.name
		}
	}
	return ""
}

func sameServer(a, b *rest.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Host == b.Host && a.Username == b.Username && a.BearerToken == b.BearerToken &&
		a.BearerTokenFile == b.BearerTokenFile && a.CertFile == b.CertFile && a.CAFile == b.CAFile &&
		string(a.CertData) == string(b.CertData) && string(a.CAData) == string(b.CAData)
}

func text(s fmt.Stringer) string {
	if s == nil {
		return ""
	}
	return s.String()
}
