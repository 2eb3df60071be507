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
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// An Option is one setting: a directive of the Corefile, and with "-" for "_" a flag of the command
// (docs/spec/controller.md 1.3).
type Option struct {
	Name     string
	Args     string // in the notation of README.md
	Default  string // in the words of Args
	Help     string // one phrase
	Min, Max int    // how many arguments; Max < 0 means any number
	// Set reads the arguments, of which there are as many as wanted. Its error has the bad value and what is wanted.
	Set func(*Config, []string) error
}

const (
	minRenew         = time.Second
	maxTTL           = 24 * time.Hour
	maxFailbackDelay = time.Hour
)

// Options lists all settings, "broker" first: without it the others have no meaning.
func Options() []Option {
	return []Option{
		{"broker", "KUBECONFIG [CONTEXT]", "", "kubeconfig of this member on the broker", 1, 2, (*Config).setBroker},
		{"cluster_id", "ID", "", "cluster ID to set where the ClusterProperty " + "cluster.clusterset.k8s.io is missing", 1, 1, (*Config).setClusterID},
		{"controller_namespace", "NS", wellknown.ControllerNamespace, "namespace of the controller's Lease and its broker credential", 1, 1, (*Config).setNamespace},
		{"vip", "derived|cidr [CIDR...]|none", "derived", "source of the addresses of ClusterSetIP imports", 1, 3, (*Config).setVIP},
		{"endpoints", "pod_ip|service_ip", "pod_ip", "addresses in exported slices", 1, 1, choice(func(c *Config) *export.Endpoints { return &c.Endpoints },
			export.PodIP, export.ServiceIP)},
		{"service_cidr", "CIDR...", "", "service networks of this cluster, if it has no ServiceCIDR objects", 1, -1, (*Config).setServiceCIDRs},
		{"lease", "RENEW TTL|0", "10s 60s", "interval of this member's heartbeat, and age at which that of another member is expired", 1, 2, (*Config).setLease},
		{"on_expiry", "remove|not_ready|keep", "remove", "action on the endpoints of an expired member", 1, 1,
			choice(func(c *Config) *safety.OnExpiry { return &c.OnExpiry }, safety.Remove, safety.NotReady, safety.Retain)},
		{"on_conflict", "oldest|withhold", "oldest", "action on a service whose exports disagree", 1, 1,
			choice(func(c *Config) *merge.OnConflict { return &c.OnConflict }, merge.OldestWins, merge.Withhold)},
		{"port_merge", "union|intersection", "union", "ports of an import: those of any export or those of all", 1, 1,
			choice(func(c *Config) *merge.PortMerge { return &c.PortMerge }, merge.Union, merge.Intersection)},
		{"type_conflict", "keep|exclude", "keep", "action on an export whose type differs from that of the oldest", 1, 1,
			choice(func(c *Config) *merge.TypeConflict { return &c.TypeConflict }, merge.Keep, merge.Exclude)},
		{"precedence", "claimed|broker", "claimed", "creation time that decides which export is oldest", 1, 1,
			choice(func(c *Config) *merge.Precedence { return &c.Precedence }, merge.Claimed, merge.ByBroker)},
		{"affinity", "local|region|remote|none [DELAY]", "none 10s", "clusters that traffic goes to first, and how long they must have been back before it returns", 1, 2,
			(*Config).setAffinity},
		{"exported_affinity", "on|off", "on", "follow the clusters and zones that exports prefer", 1, 1, toggle(func(c *Config) *bool { return &c.ExportedAffinity })},
		{"import_namespaces", "create [NAME...]|NAME...|SELECTOR", "", "namespaces to export and import; with create, missing ones are created; without names: all except kube-*, openshift-*, " +
			"default and the controller's own", 1, -1,
			(*Config).setNamespaces},
		{"legacy_conditions", "on|off", "off", "also write the conditions of the first version of KEP-1645", 1, 1,
			toggle(func(c *Config) *bool { return &c.LegacyConditions })},
		{"aggregate_view", "on|off", "off", "publish merged imports on the broker for people to read", 1, 1,
			toggle(func(c *Config) *bool { return &c.AggregateView })},
		{"status_page", "on|off|ADDRESS", "off", "serve a page with the status of the clusterset, on 127.0.0.1:9154 or another IP address and port", 1, 1,
			(*Config).setStatusPage},
		{"controller_qps", "QPS [BURST]", "1000 2000", "request limit per second to each of the two API servers", 1, 2, (*Config).setQPS},
	}
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
	if err != nil || ttl < 3*renew || ttl > maxTTL {
		return fmt.Errorf("%q: want a duration from three times %s to %s", args[1], renew, maxTTL)
	}
	c.Renew, c.TTL = renew, ttl
	return nil
}

func (c *Config) setAffinity(args []string) error {
	affinity := selection.Affinity(args[0])
	if _, err := affinity.Selectors(); err != nil {
		return err
	}
	delay := Defaults().FailbackDelay
	if len(args) > 1 {
		var err error
		if delay, err = time.ParseDuration(args[1]); err != nil || delay < 0 || delay > maxFailbackDelay {
			return fmt.Errorf("%q: want a duration from 0s to %s, such as 10s", args[1], maxFailbackDelay)
		}
	}
	c.Affinity, c.FailbackDelay = affinity, delay
	return nil
}

// createWord before the namespaces creates those that are missing. A namespace of that name cannot be the first one, unless the word precedes it.
const createWord = "create"

// setNamespaces takes names, or one selector: its requirements may be arguments of their own. A label alone reads as a name;
// "label=" and the like say that it is a selector.
func (c *Config) setNamespaces(args []string) error {
	create := args[0] == createWord
	if create {
		args = args[1:]
	}
	if names := splitNames(args); names != nil || len(args) == 0 {
		c.Namespaces, c.NamespaceLabels, c.CreateNamespaces = names, nil, create
		return nil
	}
	selector := strings.Join(args, " ")
	s, err := labels.Parse(selector)
	if err != nil || s.Empty() {
		return fmt.Errorf("%q: want names of namespaces, or a label selector such as team=a", selector)
	}
	if create {
		return fmt.Errorf("%q after %s: want names of namespaces, or no further words, since a missing namespace has no labels", selector, createWord)
	}
	c.Namespaces, c.NamespaceLabels, c.CreateNamespaces = nil, s, false
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
