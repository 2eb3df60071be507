package cache

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/cache/index"
)

// A Config has the source of objects and their filters.
type Config struct {
	// REST is the API server, or Manifests are the files and folders that stand for one. Exactly one of them is set.
	REST      *rest.Config
	Manifests []string
	// Kubeconfig is the file that REST was read from, and ReadREST reads it again: when it changes, and when the API
	// server rejects the credential. Without a file ReadREST is nil, and REST stays.
	Kubeconfig string
	ReadREST   func() (*rest.Config, error)
	// Name is the source in words, for logs: "in-cluster", "kubeconfig FILE CONTEXT", "manifests PATHS".
	Name string

	// Namespaces are the only ones that count; nil means all. Each is listed by itself, so that rights in these
	// namespaces are enough, and so that nothing else is sent: one watch for each kind and namespace.
	Namespaces []string
	// NamespaceLabels selects by the labels of the Namespace; nil means all. It needs the right to watch Namespaces.
	NamespaceLabels labels.Selector
	// Labels selects ServiceImports, on the server; nil means all.
	Labels labels.Selector
	// NoEndpoints leaves EndpointSlices alone.
	NoEndpoints bool
	// Addresses in the networks of Deny are rejected.
	Deny []netip.Prefix

	// Index has the options of building services.
	Index index.Options
	// Reverse keeps the services of each address, for PTR records.
	Reverse bool
	// TopologyNode is the Node with labels for zone and region, in place of those in Index; "" means no Node.
	TopologyNode string

	// Snapshot is the file that keeps the state for a start without the API; "" means no file. SnapshotMaxAge is its
	// greatest age when it is read; 0 means 24 hours. It has no effect with Manifests.
	Snapshot       string
	SnapshotMaxAge time.Duration
	// ConfirmAfter is how long the watch must be healthy before ServiceImports that are gone at once are removed; 0 means
	// [apiserver.ConfirmAfter].
	ConfirmAfter time.Duration
	// withholdFor sets [apiserver.Withheld.For], for tests.
	withholdFor time.Duration
	// CheckInterval is the time between two server checks; 0 means 30 seconds.
	CheckInterval time.Duration

	// Log takes changes of state; nil drops them.
	Log logging.Logger
	// Latency is called, if not nil, for each change that is published, with the time since it was written, which objects
	// have in whole seconds, and since it was received. It must not block.
	Latency func(sinceWritten, sinceReceived time.Duration)
}

// check fills in defaults.
func (c *Config) check() error {
	if (c.REST == nil) == (len(c.Manifests) == 0) {
		return errors.New("cache: want either an API server or manifests")
	}
	if len(c.Namespaces) > 0 && c.NamespaceLabels != nil {
		return errors.New("cache: want either namespaces or labels of namespaces")
	}
	c.Log = cmp.Or(c.Log, logging.Discard)
	c.SnapshotMaxAge = cmp.Or(c.SnapshotMaxAge, 24*time.Hour)
	c.CheckInterval = cmp.Or(c.CheckInterval, 30*time.Second)
	c.ConfirmAfter = cmp.Or(c.ConfirmAfter, apiserver.ConfirmAfter)
	return nil
}

// identity differs between configurations that see different objects. An API server may move: the UID of its cluster
// tells it from others.
func (c *Config) identity() string {
	var b strings.Builder
	fmt.Fprintf(&b, "source=%q namespaces=%q noendpoints=%t", c.Name, slices.Sorted(slices.Values(c.Namespaces)),
		c.NoEndpoints)
	if c.NamespaceLabels != nil {
		fmt.Fprintf(&b, " namespace_labels=%q", c.NamespaceLabels)
	}
	if c.Labels != nil {
		fmt.Fprintf(&b, " labels=%q", c.Labels)
	}
	if len(c.Deny) > 0 {
		fmt.Fprintf(&b, " deny=%q", c.Deny)
	}
	return b.String()
}

// SameObjects reports whether a Store of other sees the same objects as one of c, with the same rights: then one may
// inherit from the other. How services are built and how objects are followed does not count.
func (c *Config) SameObjects(other *Config) bool {
	return c.identity() == other.identity() && slices.Equal(c.Manifests, other.Manifests) && sameRights(c, other)
}

// Same reports whether a Store of other serves as well as one of c: then a reload keeps it. Log and Latency do not
// count.
func (c *Config) Same(other *Config) bool {
	a, b := *c, *other
	return a.check() == nil && b.check() == nil && a.SameObjects(&b) && a.Index.Equal(&b.Index) &&
		a.Reverse == b.Reverse && a.TopologyNode == b.TopologyNode && a.Snapshot == b.Snapshot &&
		a.SnapshotMaxAge == b.SnapshotMaxAge &&
		a.CheckInterval == b.CheckInterval && (a.REST == nil || a.REST.Host == b.REST.Host && a.REST.QPS == b.REST.QPS &&
		a.REST.Burst == b.REST.Burst)
}

// sameRights reports whether two configurations reach the API server as the same user. The user in a kubeconfig at one
// moment does not count: a Store follows the file.
func sameRights(a, b *Config) bool {
	return a.Kubeconfig == b.Kubeconfig && (a.Kubeconfig != "" || sameAccess(a.REST, b.REST))
}

func sameAccess(a, b *rest.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Host == b.Host && a.APIPath == b.APIPath && a.Username == b.Username && a.Password == b.Password &&
		a.BearerToken == b.BearerToken && a.BearerTokenFile == b.BearerTokenFile &&
		reflect.DeepEqual(a.Impersonate, b.Impersonate) && reflect.DeepEqual(a.TLSClientConfig, b.TLSClientConfig) &&
		reflect.DeepEqual(a.AuthProvider, b.AuthProvider) && reflect.DeepEqual(a.ExecProvider, b.ExecProvider)
}
