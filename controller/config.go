package controller

import (
	"cmp"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// A Config configures one controller. [Defaults] and the setters of [Options] set all fields but those of the first
// group. It is shared once it is passed to [Run]: it, and all that it points to, may not change.
type Config struct {
	Local   *rest.Config   // the API server of this cluster; its QPS and Burst do not count
	Version string         // of the program, for Member.status
	Metrics *Metrics       // nil if they are not collected
	Log     logging.Logger // nil discards

	// Broker is the path of a kubeconfig, Context one of its contexts or "" for its current one. The context names the
	// broker namespace of this member.
	Broker, Context string
	// ClusterID is the value for the ClusterProperty cluster.clusterset.k8s.io if that is missing; "" does not create it.
	ClusterID string
	// Namespace holds the Lease and the Secret of this controller. Its default is the namespace of the Pod that the
	// controller runs in, or [wellknown.ControllerNamespace] outside of a Pod.
	Namespace string

	VIP merge.VIPMode
	// VIPNetworks contain the VIP CIDRs of all members, with "vip cidr".
	VIPNetworks merge.VIPNetworks
	Endpoints   string
	// ServiceCIDRs are the service networks where the API server has no ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix

	// Renew is the time between two heartbeats, TTL the age at which a member's heartbeat expires. Both are 0 with "lease
	// 0": no member expires here, and this member renews its heartbeat seldom.
	Renew, TTL time.Duration
	OnExpiry   liveness.OnExpiry

	Merge merge.Mode

	// Affinity sets the clusters that traffic goes to first where neither a Namespace nor exports set them.
	// FailbackDelay is how long they must have been back before traffic returns to them.
	Affinity      selection.Affinity
	FailbackDelay time.Duration
	// ExportedAffinity is whether traffic follows what exports prefer.
	ExportedAffinity bool

	// Namespaces selects the namespaces that take part; see [member.Policy].
	Namespaces wellknown.NamespaceChoice
	// CreateNamespaces is whether missing ones are created for imports. It is false with a selector.
	CreateNamespaces bool

	LegacyConditions bool
	AggregateView    bool

	// StatusPage is where the status page is served; the zero value does not serve it.
	StatusPage netip.AddrPort

	// QPS and Burst limit the requests to each of the two API servers.
	QPS   float32
	Burst int
}

// namespaceFile is where a Pod finds the name of its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func ownNamespace() string {
	if b, err := os.ReadFile(namespaceFile); err == nil && len(b) > 0 {
		return strings.TrimSpace(string(b))
	}
	return wellknown.ControllerNamespace
}

// Same reports whether a controller with other does the same as one with c: then a reload keeps it.
func (c *Config) Same(other *Config) bool {
	return c.Difference(other) == ""
}

// Difference names the first option in which the two differ, "" if they are equal. Another address or credential of the
// local API server counts as "kubeconfig".
func (c *Config) Difference(other *Config) string {
	for _, x := range []struct {
		name string
		same bool
	}{
		{"kubeconfig", sameServer(c.Local, other.Local)},
		{"broker", c.Broker == other.Broker && c.Context == other.Context},
		{"cluster_id", c.ClusterID == other.ClusterID},
		{"controller_namespace", c.Namespace == other.Namespace},
		{"vip", c.VIP == other.VIP && c.VIPNetworks == other.VIPNetworks},
		{"endpoints", c.Endpoints == other.Endpoints},
		{"service_cidr", slices.Equal(c.ServiceCIDRs, other.ServiceCIDRs)},
		{"lease", c.Renew == other.Renew && c.TTL == other.TTL},
		{"on_expiry", c.OnExpiry == other.OnExpiry},
		{"merge", c.Merge == other.Merge},
		{"affinity", c.Affinity == other.Affinity && c.FailbackDelay == other.FailbackDelay},
		{"exported_affinity", c.ExportedAffinity == other.ExportedAffinity},
		{"import_namespaces", slices.Equal(c.Namespaces.Names, other.Namespaces.Names) &&
			c.Namespaces.Selector == other.Namespaces.Selector && c.CreateNamespaces == other.CreateNamespaces},
		{"legacy_conditions", c.LegacyConditions == other.LegacyConditions},
		{"aggregate_view", c.AggregateView == other.AggregateView},
		{"status_page", c.StatusPage == other.StatusPage},
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

// policy returns the policy for namespaces.
func (c *Config) policy() member.Policy {
	return member.Policy{Namespaces: c.Namespaces, Controller: c.Namespace, Create: c.CreateNamespaces}
}

// selectors returns those of the affinity.
func (c *Config) selectors() selection.Selectors {
	s, err := cmp.Or(c.Affinity, selection.None).Selectors()
	if err != nil {
		panic("controller: Config wants an affinity that setAffinity takes: " + err.Error())
	}
	return s
}

// mergeOptions returns the options of package merge, without pools and claims.
func (c *Config) mergeOptions() merge.Options {
	return merge.Options{Mode: c.Merge, VIP: c.VIP, VIPNetworks: c.VIPNetworks}
}
