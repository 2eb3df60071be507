package plugin

import (
	"time"

	"github.com/coredns/coredns/plugin/pkg/fall"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterset-dns/clusterset/resolver"
)

// A Config is one clusterset block of a Corefile, checked (DNS rules, section 7). [Parse] makes it. Nobody may write to
// what it reaches: a block that is reloaded may share it.
type Config struct {
	// Zones are the origins served: one at least, in lower case, fully qualified, each once, none a reverse zone.
	Zones []string

	// Kubeconfig is the path of a kubeconfig; empty means in-cluster, or no API server at all where Manifests is set.
	Kubeconfig string
	// Context is a context of Kubeconfig; empty means its current one.
	Context string
	// Manifests are files and folders to read objects from instead of an API server; nil means an API server.
	Manifests []string

	// Namespaces are the only ones with services, sorted; nil means all. Never set together with NamespaceLabels.
	Namespaces []string
	// NamespaceLabels selects Namespaces by their own labels; nil means all.
	NamespaceLabels labels.Selector
	// Labels selects ServiceImports; nil means all.
	Labels labels.Selector
	// NoEndpoints means that no slices are watched, so that only addresses in spec.ips are served.
	NoEndpoints bool

	// ClusterNames means that <clusterid>.<svc>.<ns>.svc.<zone> owns addresses (section 2).
	ClusterNames bool
	// Policy says which clusters' slices answer for a ClusterSetIP import without spec.ips (section 3).
	Policy resolver.Policy
	// Topology says where this server runs (section 3).
	Topology Topology

	// TTL is that of every record but the dns-version TXT: whole seconds, 0 to 1h.
	TTL time.Duration
	// MaxAnswers is the most A, AAAA or SRV records in an answer, 1 to 4096; 0 means no cap.
	MaxAnswers int
	// Fall holds the zones whose NXDOMAIN goes to the next plugin; its zero value has none.
	Fall fall.F

	// StartupTimeout is the longest that the start may wait for the first sync, above 0.
	StartupTimeout time.Duration
	// StaleAfter is the time without contact after which answers are called stale, at least 1s.
	StaleAfter time.Duration
	// Snapshot is the path of the snapshot file; empty means none.
	Snapshot string
	// SnapshotMaxAge is the age from which on a snapshot is no longer served, above 0.
	SnapshotMaxAge time.Duration

	// QPS and Burst limit the requests to the API server; 0 means client-go's own limit.
	QPS   float32
	Burst int
}

// A Topology is where this server runs. The zero value means that it is not known.
type Topology struct {
	// Zone and Region are values of the well-known topology labels; either may be empty.
	Zone, Region string
	// Node names the Node whose labels tell zone and region; if it is set, Zone and Region are empty.
	Node string
}

func defaults() Config {
	return Config{
		ClusterNames:   true,
		Policy:         resolver.LocalFirst,
		TTL:            5 * time.Second,
		StartupTimeout: 5 * time.Second,
		StaleAfter:     time.Minute,
		SnapshotMaxAge: 24 * time.Hour,
	}
}
