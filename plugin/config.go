package plugin

import (
	"net"
	"net/netip"
	"time"

	"github.com/coredns/coredns/plugin/pkg/fall"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterset-dns/clusterset/resolver"
)

// Name is the name of the plugin and of its directive.
const Name = "clusterset"

// Log writes log lines that begin with the name of the plugin.
var Log = clog.NewWithPlugin(Name)

// A Config is one clusterset block of a Corefile after validation (docs/spec/dns.md 7). [Parse] makes it. It must not
// be changed: blocks before and after a reload may share parts of it.
type Config struct {
	// Zones are the origins served, at least one: in lower case, fully qualified, each once.
	Zones []string
	// Reverse are the zones of in-addr.arpa and ip6.arpa with the PTR records, in the same form, or nil. They point
	// into the first of Zones.
	Reverse []string

	// Kubeconfig is the path of a kubeconfig; empty means in-cluster, or no API server if Manifests is set.
	Kubeconfig string
	// Context is a context of Kubeconfig; empty means its current one.
	Context string
	// Manifests are files and folders that objects are read from; nil means from an API server.
	Manifests []string

	// Namespaces are the served namespaces, sorted; nil means all. Never set with NamespaceLabels.
	Namespaces []string
	// NamespaceLabels selects Namespaces by their own labels; nil means all.
	NamespaceLabels labels.Selector
	// Labels selects ServiceImports; nil means all.
	Labels labels.Selector
	// NoEndpoints means that EndpointSlices are not watched: only addresses in spec.ips are served.
	NoEndpoints bool

	// Deny are networks with addresses that are not served, or nil.
	Deny []netip.Prefix

	// ClusterNames means that <clusterid>.<svc>.<ns>.svc.<zone> owns addresses (docs/spec/dns.md 2.3).
	ClusterNames bool
	// Policy is which clusters answer for a ClusterSetIP import without spec.ips (docs/spec/dns.md 3.2).
	Policy resolver.Policy
	// Topology is where this server runs (docs/spec/dns.md 3.5).
	Topology Topology

	// TTL is the TTL of all records except the TXT of dns-version: whole seconds, 0 to 1h.
	TTL time.Duration
	// MaxAnswers is the most A, AAAA or SRV records in an answer: 1 to 4096, or 0 for no cap.
	MaxAnswers int
	// UDPSize is the most octets of an answer over UDP, for any client: 512 to 65507.
	UDPSize int
	// NameServer is the name in SOA and NS records, in lower case and fully qualified; empty means ns.dns below each zone.
	NameServer string
	// NameServerAddresses are the addresses of ns.dns below each zone if NameServer is one of these names; nil means
	// the addresses that the server listens on, or no addresses if NameServer is elsewhere.
	NameServerAddresses []netip.Addr
	// ExplainAnswers means that answers without records say why, to clients that sent OPT (docs/spec/dns.md 5.8).
	ExplainAnswers bool
	// Fall has the zones that pass NXDOMAIN to the next plugin; its zero value has no zone.
	Fall fall.F

	// ReadyStrict means that ready waits until every answer can be given, also for rights and CRDs (docs/spec/dns.md 6.3).
	ReadyStrict bool
	// StartupTimeout is the most time that the start waits for the first sync, above 0.
	StartupTimeout time.Duration
	// StaleAfter is the time without contact after which answers are stale, at least 1s.
	StaleAfter time.Duration
	// Snapshot is the path of the snapshot file; empty means no snapshot.
	Snapshot string
	// SnapshotMaxAge is the age up to which a snapshot is served; 0 means the default of package cache, 24h.
	SnapshotMaxAge time.Duration

	// QPS and Burst limit the requests to the API server; 0 means client-go's default.
	QPS   float32
	Burst int
}

// A Topology is where this server runs. The zero value means unknown.
type Topology struct {
	// Zone and Region are values of the well-known topology labels; either may be empty.
	Zone, Region string
	// Node is the Node with labels for zone and region; if it is set, Zone and Region are empty.
	Node string
}

// Addresses are those of ns.dns, for a server that listens on hosts.
func (c *Config) Addresses(hosts []string) []netip.Addr {
	if c.NameServer != "" {
		return c.NameServerAddresses
	}
	return ListenAddresses(hosts)
}

// ListenAddresses returns the addresses of a server that listens on hosts; for a wildcard, those of the machine.
// Link-local addresses are left out, and loopback addresses unless there are no others (docs/spec/dns.md 2.2).
func ListenAddresses(hosts []string) []netip.Addr {
	var all []netip.Addr
	for _, host := range hosts {
		addr, err := netip.ParseAddr(host)
		if err == nil && !addr.IsUnspecified() {
			all = append(all, addr)
			continue
		}
		for _, own := range interfaceAddresses() {
			// 0.0.0.0 is IPv4 only; "" and [::] are both families.
			if !addr.Is4() || own.Is4() {
				all = append(all, own)
			}
		}
	}
	var usable, local []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, addr := range all {
		addr = addr.Unmap().WithZone("")
		switch {
		case seen[addr] || addr.IsLinkLocalUnicast():
		case addr.IsLoopback():
			local = append(local, addr)
		default:
			usable = append(usable, addr)
		}
		seen[addr] = true
	}
	if len(usable) == 0 {
		return local
	}
	return usable
}

func interfaceAddresses() (addrs []netip.Addr) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		Log.Warningf("ns.dns: addresses of this machine: %s", err)
		return nil
	}
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, prefix.Addr())
		}
	}
	return addrs
}
