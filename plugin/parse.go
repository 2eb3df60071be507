package plugin

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/resolver"
)

const (
	// no escapes, ports, schemes or prefix lengths
	zoneCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

	topologyArgs  = "[zone ZONE] [region REGION] | topology node NAME"
	maxTTL        = time.Hour
	maxAnswers    = 4096
	minStaleAfter = time.Second
)

// exclusive has the pairs of directives of which a block may have only one, and why.
var exclusive = []struct{ one, other, why string }{
	{"namespaces", "namespace_labels", "name the namespaces or select them"},
	{"manifests", "kubeconfig", "objects come from files or from an API server"},
	{"manifests", "snapshot", "files are still there at the next start"},
	{"manifests", "apiserver_qps", "it limits requests to an API server"},
	{"manifests", "broker", "the controller writes to an API server"},
	{"noendpoints", "policy", "a policy selects among slices"},
	{"noendpoints", "topology", "zones and regions are labels of slices"},
}

// A block is a clusterset block while it is parsed. It has one method for each directive, which sets its part of Config;
// their errors have no file and line.
type block struct {
	Config

	root  string
	known []Directive
	seen  Lines // where each directive is, for the line of an error
}

// Parse reads the clusterset block of one server block (docs/spec/dns.md 7). An error has the file, the line, the bad value
// and what is wanted. Relative paths are relative to the folder of the root directive. Parse opens no file and no
// connection. more are directives of other packages. Lines are for errors that are found later.
//
//	clusterset ZONES {        zones      origins, at or below the zones of the server block
//	    NAME ARGS             line       directives and more: number of arguments, and the function that sets them
//	}                         validate   directives that exclude or need each other
func Parse(c *caddy.Controller, more ...Directive) (Config, Lines, error) {
	b := &block{root: dnsserver.GetConfig(c).Root, seen: Lines{}}
	b.known = append(b.directives(), more...)
	b.defaults()
	c.Next()
	if err := b.zones(c.RemainingArgs(), c.ServerBlockKeys); err != nil {
		return Config{}, nil, c.Err(err.Error())
	}
	for c.NextBlock() {
		if err := b.line(c); err != nil {
			return Config{}, nil, err
		}
	}
	if c.Next() {
		return Config{}, nil, c.Errf("second %q in one server block: want one block, with all zones", c.Val())
	}
	if err := b.validate(); err != nil {
		return Config{}, nil, err
	}
	return b.Config, b.seen, nil
}

// Lines are the positions of the directives in the Corefile, by name.
type Lines map[string]caddyfile.Dispenser

// At returns err with the file and line of the first of directives that the block has, else with those of c.
func (at Lines) At(c *caddy.Controller, err error, directives ...string) error {
	for _, name := range directives {
		if line, ok := at[name]; ok {
			return line.Err(err.Error())
		}
	}
	return c.Err(err.Error())
}

// line reads the directive at c.
func (b *block) line(c *caddy.Controller) error {
	name := c.Val()
	i := slices.IndexFunc(b.known, func(d Directive) bool { return d.Name == name })
	if i < 0 {
		var names []string
		for _, d := range b.known {
			names = append(names, d.Name)
		}
		return c.Errf("directive %q: want one of %s", name, strings.Join(slices.Sorted(slices.Values(names)), ", "))
	}
	d := b.known[i]
	if _, ok := b.seen[name]; ok {
		return c.Errf("second %q in one block: want one", name)
	}
	b.seen[name] = c.Dispenser

	args := c.RemainingArgs()
	if len(args) < d.Min || d.Max >= 0 && len(args) > d.Max {
		return c.Err(wrongCount(name, args, d.Args))
	}
	// NextBlock would take a brace here as the start of the block.
	if next := c.Dispenser; next.Next() && next.Val() == "{" {
		return next.Errf("%q after %s: want a directive or %q", "{", name, "}")
	}
	if err := d.Set(args); err != nil {
		return c.Err(err.Error())
	}
	return nil
}

func wrongCount(name string, args []string, want string) string {
	want = cmp.Or(want, "no arguments")
	return fmt.Sprintf("%s: want %s", quoted(name, args), want)
}

// quoted returns a directive the way the user typed it.
func quoted(name string, args []string) string {
	for _, a := range args {
		name += " " + strconv.Quote(a)
	}
	return name
}

// validate checks directives against each other. The line in its error is that of one of them.
func (b *block) validate() error {
	for _, x := range exclusive {
		_, one := b.seen[x.one]
		at, other := b.seen[x.other]
		if one && other {
			return at.Errf("%s beside %s: want one of them, %s", x.other, x.one, x.why)
		}
	}
	for _, d := range b.known {
		at, ok := b.seen[d.Name]
		if _, needed := b.seen[d.Needs]; ok && d.Needs != "" && !needed {
			return at.Errf("%s without %s: want both", d.Name, d.Needs)
		}
	}
	if at, ok := b.seen["topology"]; ok && b.Topology.Node != "" && b.Manifests != nil {
		return at.Errf("topology node %q beside manifests: want zone and region, manifests have no Nodes", b.Topology.Node)
	}
	return nil
}

// zones sets the origins: args, or the zones of the server block if there are no args. Networks are reverse zones, as in the keys of a
// server block.
func (b *block) zones(args, keys []string) error {
	var served []string
	for _, key := range keys {
		served = append(served, plugin.Host(key).NormalizeExact()...)
	}
	if len(args) == 0 {
		// A zone on two ports has two keys.
		args = slices.Compact(slices.Sorted(slices.Values(served)))
	}
	for _, arg := range args {
		origins, err := originsOf(arg)
		if err != nil {
			return err
		}
		for _, z := range origins {
			if err := b.zone(arg, z, served); err != nil {
				return err
			}
		}
	}
	if len(b.Zones) == 0 {
		return fmt.Errorf("zones %s: want a zone such as clusterset.local beside them, for PTR records to point into", strings.Join(b.Reverse, ", "))
	}
	return nil
}

// zone adds a zone, which the user typed as arg.
func (b *block) zone(arg, z string, served []string) error {
	if !slices.ContainsFunc(served, func(s string) bool { return dns.IsSubDomain(s, z) }) {
		return fmt.Errorf("zone %q is not at or below a zone of this server block", arg)
	}
	kind := &b.Zones
	if isReverse(z) {
		kind = &b.Reverse
	}
	if slices.Contains(*kind, z) {
		return fmt.Errorf("second zone %q in one block: want each zone once", arg)
	}
	*kind = append(*kind, z)
	return nil
}

// originsOf returns a zone, or the reverse zones of a network, as in the keys of a server block.
func originsOf(arg string) ([]string, error) {
	if _, err := netip.ParsePrefix(arg); err == nil {
		return plugin.Host(arg).NormalizeExact(), nil
	}
	z, err := origin(arg)
	return []string{z}, err
}

// origin returns a zone as typed in lower case and fully qualified.
func origin(arg string) (string, error) {
	strange := func(r rune) bool { return !strings.ContainsRune(zoneCharacters, r) }
	if _, ok := dns.IsDomainName(arg); !ok || strings.ContainsFunc(arg, strange) {
		return "", fmt.Errorf("zone %q: want a domain name of letters, digits, hyphens and underscores", arg)
	}
	return plugin.Name(arg).Normalize(), nil
}

// path resolves a path against the folder of the root directive, as CoreDNS's own plugins do.
func (b *block) path(name, arg string) (string, error) {
	if arg == "" {
		return "", fmt.Errorf("%s %q: want a path", name, arg)
	}
	if filepath.IsAbs(arg) || b.root == "" {
		return filepath.Clean(arg), nil
	}
	return filepath.Join(b.root, arg), nil
}

func (b *block) kubeconfig(args []string) (err error) {
	b.Kubeconfig, err = b.path("kubeconfig", args[0])
	if err != nil {
		return err
	}
	if len(args) == 2 {
		if args[1] == "" {
			return fmt.Errorf("kubeconfig context %q: want the name of a context", args[1])
		}
		b.Context = args[1]
	}
	return nil
}

func (b *block) manifests(args []string) error {
	for _, arg := range args {
		p, err := b.path("manifests", arg)
		if err != nil {
			return err
		}
		if slices.Contains(b.Manifests, p) {
			return fmt.Errorf("manifests: second %q: want each path once", arg)
		}
		b.Manifests = append(b.Manifests, p)
	}
	return nil
}

func (b *block) namespaces(args []string) error {
	for _, arg := range args {
		if len(validation.IsDNS1123Label(arg)) > 0 {
			return fmt.Errorf("namespaces %q: want the name of a namespace, an RFC 1123 label in lower case", arg)
		}
		if slices.Contains(b.Namespaces, arg) {
			return fmt.Errorf("namespaces: second %q: want each namespace once", arg)
		}
		b.Namespaces = append(b.Namespaces, arg)
	}
	slices.Sort(b.Namespaces)
	return nil
}

func (b *block) namespaceLabels(args []string) (err error) {
	b.NamespaceLabels, err = selector("namespace_labels", args)
	return err
}

func (b *block) labels(args []string) (err error) {
	b.Labels, err = selector("labels", args)
	return err
}

func selector(name string, args []string) (labels.Selector, error) {
	typed := strings.Join(args, " ")
	s, err := labels.Parse(typed)
	if err != nil {
		return nil, fmt.Errorf("%s %q: want a label selector: %w", name, typed, err)
	}
	if s.Empty() {
		return nil, fmt.Errorf("%s %q: want a label selector with a requirement", name, typed)
	}
	return s, nil
}

func (b *block) clusterNames(args []string) (err error) {
	b.ClusterNames, err = onOff("cluster_names", args[0])
	return err
}

func (b *block) explainAnswers(args []string) (err error) {
	b.ExplainAnswers, err = onOff("explain_answers", args[0])
	return err
}

func onOff(name, arg string) (on bool, err error) {
	if arg != "on" && arg != "off" {
		return false, fmt.Errorf("%s %q: want on or off", name, arg)
	}
	return arg == "on", nil
}

func (b *block) deny(args []string) error {
	for _, arg := range args {
		p, err := broker.ParsePrefix(arg)
		if err != nil {
			return fmt.Errorf("deny %w", err)
		}
		if slices.Contains(b.Deny, p) {
			return fmt.Errorf("deny: second %q: want each network once", arg)
		}
		b.Deny = append(b.Deny, p)
	}
	slices.SortFunc(b.Deny, netip.Prefix.Compare)
	return nil
}

// ns sets the name server. With addresses the name is ns.dns below one of the zones, else it is outside of all: a name that does
// not exist here must not be named in NS records.
func (b *block) ns(args []string) error {
	name, err := origin(args[0])
	if err != nil || strings.Trim(args[0], ".") == "" {
		return fmt.Errorf("ns %q: want the name of a name server", args[0])
	}
	inside, own := false, false
	for _, z := range b.Zones {
		inside = inside || dns.IsSubDomain(z, name)
		own = own || name == below(nameServer, z)
	}
	switch addresses := args[1:]; {
	case len(addresses) > 0 && !own:
		return fmt.Errorf("ns %q with addresses: want %s", args[0], below(nameServer, b.Zones[0]))
	case len(addresses) == 0 && inside:
		return fmt.Errorf("ns %q without addresses: want a name outside of the zones", args[0])
	}
	for _, arg := range args[1:] {
		addr, err := netip.ParseAddr(arg)
		if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsMulticast() {
			return fmt.Errorf("ns address %q: want an IPv4 or IPv6 address", arg)
		}
		if slices.Contains(b.NameServerAddresses, addr) {
			return fmt.Errorf("ns: second address %q: want each address once", arg)
		}
		b.NameServerAddresses = append(b.NameServerAddresses, addr)
	}
	b.NameServer = name
	return nil
}

func (b *block) udpSize(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil || n < dns.MinMsgSize || n > maxDatagram {
		return fmt.Errorf("udp_size %q: want a whole number from %d to %d", args[0], dns.MinMsgSize, maxDatagram)
	}
	b.UDPSize = n
	return nil
}

func (b *block) ready(args []string) error {
	switch args[0] {
	case "shared":
		b.ReadyStrict = false
	case "strict":
		b.ReadyStrict = true
	default:
		return fmt.Errorf("ready %q: want shared or strict", args[0])
	}
	return nil
}

func (b *block) policy(args []string) error {
	switch args[0] {
	case "local_first":
		b.Policy = resolver.LocalFirst
	case "round_robin":
		b.Policy = resolver.RoundRobin
	case "all":
		b.Policy = resolver.All
	case "none":
		b.Policy = resolver.NoCluster
	default:
		return fmt.Errorf("policy %q: want local_first, round_robin, all or none", args[0])
	}
	return nil
}

func (b *block) topology(args []string) error {
	typed := quoted("topology", args)
	if len(args)%2 != 0 {
		return fmt.Errorf("%s: want %s", typed, topologyArgs)
	}
	for pair := range slices.Chunk(args, 2) {
		if err := b.Topology.set(pair[0], pair[1]); err != nil {
			return err
		}
	}
	if t := b.Topology; t.Node != "" && (t.Zone != "" || t.Region != "") {
		return fmt.Errorf("%s: want zone and region, or node alone", typed)
	}
	return nil
}

// set sets one of zone, region and node.
func (t *Topology) set(key, value string) error {
	field, wrong, want := &t.Zone, validation.IsValidLabelValue(value), "a label value"
	switch key {
	case "zone":
	case "region":
		field = &t.Region
	case "node":
		field, wrong, want = &t.Node, validation.IsDNS1123Subdomain(value), "the name of a Node"
	default:
		return fmt.Errorf("topology %q: want zone, region or node", key)
	}
	if *field != "" {
		return fmt.Errorf("topology: second %q: want one", key)
	}
	if value == "" || len(wrong) > 0 {
		return fmt.Errorf("topology %s %q: want %s", key, value, want)
	}
	*field = value
	return nil
}

func (b *block) noEndpoints([]string) error {
	b.NoEndpoints = true
	return nil
}

func (b *block) ttl(args []string) error {
	n, err := strconv.ParseUint(args[0], 10, 16)
	b.TTL = time.Duration(n) * time.Second
	if err != nil || b.TTL > maxTTL {
		return fmt.Errorf("ttl %q: want whole seconds from 0s to 1h", args[0])
	}
	return nil
}

func (b *block) maxAnswers(args []string) error {
	n, err := strconv.ParseUint(args[0], 10, 16)
	if err != nil || n < 1 || n > maxAnswers {
		return fmt.Errorf("max_answers %q: want a whole number from 1 to %d", args[0], maxAnswers)
	}
	b.MaxAnswers = int(n)
	return nil
}

func (b *block) startupTimeout(args []string) (err error) {
	b.StartupTimeout, err = time.ParseDuration(args[0])
	if err != nil || b.StartupTimeout <= 0 {
		return fmt.Errorf("startup_timeout %q: want a duration above 0s, such as 5s", args[0])
	}
	return nil
}

func (b *block) staleAfter(args []string) (err error) {
	b.StaleAfter, err = time.ParseDuration(args[0])
	if err != nil || b.StaleAfter < minStaleAfter {
		return fmt.Errorf("stale_after %q: want a duration of at least %s, such as 1m", args[0], minStaleAfter)
	}
	return nil
}

func (b *block) snapshot(args []string) (err error) {
	b.Snapshot, err = b.path("snapshot", args[0])
	if err != nil || len(args) == 1 {
		return err
	}
	b.SnapshotMaxAge, err = time.ParseDuration(args[1])
	if err != nil || b.SnapshotMaxAge <= 0 {
		return fmt.Errorf("snapshot age %q: want a duration above 0s, such as 24h", args[1])
	}
	return nil
}

func (b *block) apiserverQPS(args []string) error {
	qps, err := strconv.ParseFloat(args[0], 32)
	// NaN is not above 0, and a float32 may round a tiny number to 0, which means the default.
	if err != nil || !(float32(qps) > 0) || math.IsInf(qps, 0) {
		return fmt.Errorf("apiserver_qps %q: want a number above 0", args[0])
	}
	b.QPS = float32(qps)
	if len(args) == 2 {
		burst, err := strconv.ParseUint(args[1], 10, 31)
		if err != nil || burst < 1 {
			return fmt.Errorf("apiserver_qps burst %q: want a whole number above 0", args[1])
		}
		b.Burst = int(burst)
	}
	return nil
}

// fallthru is fallthrough, a keyword of Go.
func (b *block) fallthru(args []string) error {
	var zones []string
	for _, arg := range args {
		z, err := origin(arg)
		if err != nil {
			return fmt.Errorf("fallthrough: %w", err)
		}
		// A zone above ours has all of our names, as "." does. Reverse zones always fall through, so they need not be here.
		if !slices.ContainsFunc(slices.Concat(b.Zones, b.Reverse), func(o string) bool { return dns.IsSubDomain(o, z) || dns.IsSubDomain(z, o) }) {
			return fmt.Errorf("fallthrough zone %q: want one at, below or above %s", arg, strings.Join(b.Zones, " or "))
		}
		if slices.Contains(zones, z) {
			return fmt.Errorf("fallthrough: second zone %q: want each zone once", arg)
		}
		zones = append(zones, z)
	}
	b.Fall.SetZonesFromArgs(zones)
	return nil
}
