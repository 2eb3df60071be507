package controller

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// An Option is one setting: a directive of the Corefile, and with "-" for "_" a flag of the command
// (docs/spec/controller.md 1.3). docs/controller.md and the schema of the chart's values are generated from all
// options.
type Option struct {
	Name     string
	Args     string // in the notation of README.md
	Default  string // the arguments with the same effect as no option; "" if there are none
	Help     string // one phrase
	Min, Max int    // how many arguments; Max < 0 means any number
	// Set reads the arguments, in the wanted number. Its error has the bad value and the wanted form.
	Set func(*Config, []string) error
	// Text adds details to Help, in Markdown.
	Text string
	// Rare names the clusters that need the option; "" if normal clusters may.
	Rare string
}

const (
	minRenew         = time.Second
	minLimit         = time.Minute // of a last resort
	maxFailbackDelay = time.Hour
)

// shared ends the text of each option that all members share.
const shared = "All members should have the same value; `clusterset status` marks those that differ."

// Options lists all settings, "broker" first: without it the others have no meaning.
func Options() []Option { return slices.Concat(membership(), imports()) }

// membership returns the settings of membership and exports.
func membership() []Option {
	return []Option{
		{
			Name: "broker", Args: "KUBECONFIG [CONTEXT]", Min: 1, Max: 2, Set: (*Config).setBroker,
			Help: "kubeconfig of this member on the broker",
			Text: "`clusterset join` writes it; its context names the member's namespace there. Not with `manifests`. The controller reads and writes this cluster " +
				"through the API server of the block.",
		},
		{
			Name: "cluster_id", Args: "ID", Min: 1, Max: 1, Set: (*Config).setClusterID,
			Help: "cluster ID to set where the ClusterProperty cluster.clusterset.k8s.io is missing",
			Rare: "where the cluster was not joined by `clusterset join`, which sets the ClusterProperty",
		},
		{
			Name: "controller_namespace", Args: "NS", Default: wellknown.ControllerNamespace, Min: 1, Max: 1,
			Set:  (*Config).setNamespace,
			Help: "namespace of the controller's Lease and its broker credential",
			Text: "In a Pod the default is the namespace of the Pod.",
			Rare: "where the controller runs outside of a Pod, for another namespace",
		},
		{
			Name: "vip", Args: "derived|cidr [CIDR...]|none", Default: "derived", Min: 1, Max: 3, Set: (*Config).setVIP,
			Help: "source of the addresses of ClusterSetIP imports",
			Text: "`derived`: a Service without selector in every importing cluster; kube-proxy carries its cluster IP. `cidr` **[CIDR...]**: " +
				"[one address everywhere](#one-address-everywhere), which the first exporter claims from the blocks that `clusterset join --vip cidr` " +
				"reserved. These, and `--vip-cidr-pool`, must lie in **CIDR...**, at most one of each IP family (243.0.0.0/8 and fd17:87d8:f436::/48 " +
				"where not given). `none`: no addresses, DNS answers with endpoints. " + shared,
		},
		{
			Name: "endpoints", Args: "pod_ip|service_ip|load_balancer", Default: "pod_ip", Min: 1, Max: 1,
			Set:  choice(func(c *Config) *string { return &c.Endpoints }, broker.EndpointKinds()...),
			Help: "addresses in exported slices",
			Text: "`pod_ip` exports the endpoints of a ClusterSetIP service; `service_ip` its cluster IP instead, while a Pod is ready, for clusters " +
				"that reach each other's Services and not the Pods; `load_balancer` the addresses of its load balancer, for " +
				"clusters that do not route to each other. The annotation `clusterset-dns.io/endpoints` of a ServiceExport replaces the option.",
		},
		{
			Name: "service_cidr", Args: "CIDR...", Min: 1, Max: -1, Set: (*Config).setServiceCIDRs,
			Help: "service networks of this cluster, if it has no ServiceCIDR objects",
			Text: "No member may offer addresses in them. ServiceCIDR objects, which come first, exist from Kubernetes 1.33 on.",
			Rare: "before Kubernetes 1.33",
		},
		{
			Name: "lease", Args: "RENEW TTL|0", Default: "10s 60s", Min: 1, Max: 2, Set: (*Config).setLease,
			Help: "interval of this member's heartbeat, and age at which another member is silent",
			Text: "**RENEW** is at least 1s; **TTL** is at least three times **RENEW** and at most 1h. The heartbeat announces the TTL. Each other member uses the larger " +
				"of its own TTL and the announced one. With more than 100 members " +
				"both grow. With `lease 0` no other member is silent here, and this one renews its heartbeat every 5 minutes.",
			Rare: "where a minute is too long, or the link to the broker is often away for longer",
		},
		{
			Name: "on_expiry", Args: "last_resort [DURATION]|remove|keep", Default: "last_resort", Min: 1, Max: 2,
			Set:  (*Config).setOnExpiry,
			Help: "action on the endpoints of a silent member",
			Text: "`last_resort`: endpoints that were ready stay, for **DURATION** (1h), for the ports and IP families of a service for which no other cluster has a " +
				"ready one. `remove` removes all, as KEP-1645 wants. `keep` keeps all as they are, without end.",
			Rare: "`remove` where a wrong address is worse than none",
		},
	}
}

// imports returns the settings of imports and of the process.
func imports() []Option {
	return []Option{
		{
			Name: "merge", Args: "kep|lighthouse|first", Default: "kep", Min: 1, Max: 1,
			Set:  choice(func(c *Config) *merge.Mode { return &c.Merge }, merge.Modes...),
			Help: "document that decides how exports which disagree are merged",
			Text: "`kep`: the oldest export decides, an import has the ports of any export, and endpoints of exports of another type (headless or not) are " +
				"imported, too. `lighthouse`: an import has the ports of all exports, or those of the oldest where none is common; exports " +
				"of another type are left out. `first`, as the first version of KEP-1645: nothing is imported until the exports agree. " + shared,
			Rare: "`lighthouse` to merge as Lighthouse does, `first` where a wrong merge is worse than none",
		},
		{
			Name: "affinity", Args: "local|region|remote|none [DELAY]", Default: "none 0s", Min: 1, Max: 2,
			Set:  (*Config).setAffinity,
			Help: "clusters that traffic goes to first, and how long they must have been back before it returns",
			Text: "It counts where neither the Namespace nor exports say so ([above](#which-clusters-traffic-goes-to)). **DELAY** is from 0s to 1h: with some seconds, traffic does not follow a cluster whose endpoints come and go.",
		},
		{
			Name: "exported_affinity", Args: "on|off", Default: "on", Min: 1, Max: 1,
			Set:  toggle(func(c *Config) *bool { return &c.ExportedAffinity }),
			Help: "follow the clusters and zones that exports prefer",
			Rare: "`off` where other members must not steer traffic",
		},
		{
			Name: "import_namespaces", Args: "create [NAME...]|NAME...|SELECTOR", Min: 1, Max: -1, Set: (*Config).setNamespaces,
			Help: "namespaces to export and import; with create, missing ones are created; without names: all except kube-*, openshift-*, default and the " +
				"controller's own",
			Text: "**SELECTOR** is a label selector such as `clusterset=yes`. `default` counts only where it is named or matches; kube-* and openshift-* also need `clusterset-dns.io/allowed-source-clusters`. " +
				"`create` comes " +
				"first, without a selector: [missing namespaces](#missing-namespaces) are made, all or the named ones.",
		},
		{
			Name: "legacy_conditions", Args: "on|off", Default: "off", Min: 1, Max: 1,
			Set:  toggle(func(c *Config) *bool { return &c.LegacyConditions }),
			Help: "also write the conditions of the first version of KEP-1645",
			Text: "They are `Initialized` and `Exported` of ServiceExports.",
			Rare: "where a program waits for them",
		},
		{
			Name: "aggregate_view", Args: "on|off", Default: "off", Min: 1, Max: 1,
			Set:  toggle(func(c *Config) *bool { return &c.AggregateView }),
			Help: "publish merged imports on the broker for people to read",
			Text: "The member with the oldest export of a service does, in its namespace there; it needs `clusterset broker init --aggregate-view`.",
			Rare: "where people look at the broker with kubectl",
		},
		{
			Name: "status_page", Args: "on|off|ADDRESS", Default: "off", Min: 1, Max: 1, Set: (*Config).setStatusPage,
			Help: "serve a page with the status of the clusterset, on 127.0.0.1:9154 or another IP address and port",
			Text: "[The status page](#the-status-page) says what it shows.",
		},
		{
			Name: "controller_qps", Args: "QPS [BURST]", Default: "1000 2000", Min: 1, Max: 2, Set: (*Config).setQPS,
			Help: "request limit per second to each of the two API servers",
			Text: "Without **BURST** it is twice **QPS**.",
			Rare: "where an administrator of an API server asks for it",
		},
	}
}

// Defaults returns the default options (docs/spec/controller.md 1.3).
func Defaults() Config {
	var c Config
	for _, o := range Options() {
		if o.Default == "" {
			continue
		}
		if err := o.Set(&c, strings.Fields(o.Default)); err != nil {
			panic(fmt.Sprintf("default of %s: %v", o.Name, err))
		}
	}
	c.Namespace = ownNamespace()
	return c
}

// choice makes a setter of a word.
func choice[T ~string](field func(*Config) *T, words ...T) func(*Config, []string) error {
	return func(c *Config, args []string) error {
		if !slices.Contains(words, T(args[0])) {
			return fmt.Errorf("%q: want one of %s", args[0], oneOf(words))
		}
		*field(c) = T(args[0])
		return nil
	}
}

func oneOf[T ~string](words []T) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all, ", ")
}

// toggle makes a setter of on or off.
func toggle(field func(*Config) *bool) func(*Config, []string) error {
	return func(c *Config, args []string) error {
		if args[0] != "on" && args[0] != "off" {
			return fmt.Errorf("%q: want on or off", args[0])
		}
		*field(c) = args[0] == "on"
		return nil
	}
}

func (c *Config) setBroker(args []string) error {
	c.Broker, c.Context = args[0], ""
	if c.Broker == "" {
		return fmt.Errorf("kubeconfig %q: want the path of a file", args[0])
	}
	if len(args) > 1 {
		c.Context = args[1]
	}
	return nil
}

func (c *Config) setClusterID(args []string) error {
	if !broker.IsClusterID(args[0]) {
		return fmt.Errorf("%q: want one RFC 1123 label, or two joined by a dot, of at most 63 octets", args[0])
	}
	c.ClusterID = args[0]
	return nil
}

func (c *Config) setNamespace(args []string) error {
	if !broker.IsLabel(args[0]) {
		return fmt.Errorf("%q: want the name of a namespace", args[0])
	}
	c.Namespace = args[0]
	return nil
}

func (c *Config) setVIP(args []string) error {
	setting, err := merge.ParseVIPSetting(args)
	if err != nil {
		return err
	}
	c.VIP, c.VIPNetworks = setting.Mode, setting.Networks
	return nil
}

func (c *Config) setServiceCIDRs(args []string) error {
	var all []netip.Prefix
	for _, arg := range args {
		p, err := broker.ParsePrefix(arg)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	c.ServiceCIDRs = all
	return nil
}

func (c *Config) setLease(args []string) error {
	if len(args) == 1 {
		if args[0] != "0" {
			return fmt.Errorf("%q: want 0, or two durations such as 10s 60s", args[0])
		}
		c.Renew, c.TTL = 0, 0
		return nil
	}
	renew, err := time.ParseDuration(args[0])
	if err != nil || renew < minRenew {
		return fmt.Errorf("%q: want a duration from %s on, such as 10s", args[0], minRenew)
	}
	ttl, err := time.ParseDuration(args[1])
	if err != nil || ttl < 3*renew || ttl > broker.MaxHeartbeatTTL {
		return fmt.Errorf("%q: want a duration from three times %s to %s", args[1], renew, broker.MaxHeartbeatTTL)
	}
	c.Renew, c.TTL = renew, ttl
	return nil
}

func (c *Config) setOnExpiry(args []string) error {
	o := liveness.OnExpiry{Action: liveness.Action(args[0]), Limit: liveness.DefaultLimit}
	switch actions := []liveness.Action{liveness.ActLastResort, liveness.ActRemove, liveness.ActKeep}; {
	case !slices.Contains(actions, o.Action):
		return fmt.Errorf("%q: want one of %s", args[0], oneOf(actions))
	case len(args) > 1 && o.Action != liveness.ActLastResort:
		return fmt.Errorf("%q after %s: want nothing", args[1], args[0])
	case len(args) > 1:
		var err error
		if o.Limit, err = time.ParseDuration(args[1]); err != nil || o.Limit < minLimit {
			return fmt.Errorf("%q: want a duration from %s on, such as 1h", args[1], minLimit)
		}
	}
	c.OnExpiry = o
	return nil
}

func (c *Config) setAffinity(args []string) error {
	affinity := selection.Affinity(args[0])
	if _, err := affinity.Selectors(); err != nil {
		return err
	}
	var delay time.Duration
	if len(args) > 1 {
		var err error
		if delay, err = time.ParseDuration(args[1]); err != nil || delay < 0 || delay > maxFailbackDelay {
			return fmt.Errorf("%q: want a duration from 0s to %s, such as 10s", args[1], maxFailbackDelay)
		}
	}
	c.Affinity, c.FailbackDelay = affinity, delay
	return nil
}

// createWord before the namespaces creates those that are missing. A namespace of that name cannot be the first one,
// unless the word precedes it.
const createWord = "create"

// setNamespaces takes names, or one selector: its requirements may be arguments of their own. A label alone reads as a
// name; "label=" and the like say that it is a selector.
func (c *Config) setNamespaces(args []string) error {
	create := args[0] == createWord
	if create {
		args = args[1:]
	}
	if names := splitNames(args); names != nil || len(args) == 0 {
		c.Namespaces, c.CreateNamespaces = wellknown.NamespaceChoice{Names: names}, create
		return nil
	}
	selector := strings.Join(args, " ")
	s, err := labels.Parse(selector)
	if err != nil || s.Empty() {
		return fmt.Errorf("%q: want names of namespaces, or a label selector such as team=a", selector)
	}
	if create {
		return fmt.Errorf(
			"%q after %s: want names of namespaces, or no further words, since a missing namespace has no labels", selector,
			createWord)
	}
	c.Namespaces, c.CreateNamespaces = wellknown.NamespaceChoice{Selector: s.String()}, false
	return nil
}

// splitNames returns args sorted, each once, or nil if one of them is no name.
func splitNames(args []string) []string {
	for _, arg := range args {
		if !broker.IsLabel(arg) {
			return nil
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(args)))
}

// defaultStatusPage is reached from where the controller runs alone: the page needs no credential.
var defaultStatusPage = netip.MustParseAddrPort("127.0.0.1:9154")

func (c *Config) setStatusPage(args []string) error {
	switch args[0] {
	case "on":
		c.StatusPage = defaultStatusPage
		return nil
	case "off":
		c.StatusPage = netip.AddrPort{}
		return nil
	}
	address, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return fmt.Errorf("%q: want on, off, or an IP address and a port, such as 127.0.0.1:9154", args[0])
	}
	c.StatusPage = address
	return nil
}

func (c *Config) setQPS(args []string) error {
	qps, err := strconv.ParseFloat(args[0], 32)
	if err != nil || !(qps > 0) || math.IsInf(qps, 0) {
		return fmt.Errorf("%q: want a number above 0 of requests a second", args[0])
	}
	burst := int(math.Ceil(2 * qps))
	if len(args) > 1 {
		if burst, err = strconv.Atoi(args[1]); err != nil || burst < 1 {
			return fmt.Errorf("%q: want a whole number from 1 on as burst", args[1])
		}
	}
	c.QPS, c.Burst = float32(qps), burst
	return nil
}
