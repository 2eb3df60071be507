package plugin

import (
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
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterset-dns/clusterset/api/broker"
)

const (
	// no escapes, ports, schemes or prefix lengths
	zoneCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

	topologyArgs = "[zone ZONE] [region REGION] | topology node NAME"
	maxTTL       = time.Hour
	maxAnswers   = 4096
)

// A Directive is one line of a clusterset block. README.md, docs/controller.md and the schema of the chart's values are
// generated from these values.
type Directive struct {
	Name     string
	Args     string // in the notation of README.md
	Min, Max int    // the number of arguments; Max < 0: no upper bound
	// Default is the arguments with the same effect as no directive, or "".
	Default string
	// Text describes the directive in Markdown, without the default.
	Text string
	// Rare names the clusters that need the directive; "" if normal clusters may.
	Rare string
	// Needs is another directive that the block must have, or "".
	Needs string
	// Set takes the arguments. Its error has the directive, the bad value and the wanted form.
	Set func([]string) error
}

// A block is a clusterset block while it is parsed. Its directives set Config; their errors have no file and line.
type block struct {
	Config

	root  string
	known []Directive
	seen  Lines // where each directive is, for the line of an error
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

// quoteArgs returns a directive the way the user typed it.
func quoteArgs(name string, args []string) string {
	for _, a := range args {
		name += " " + strconv.Quote(a)
	}
	return name
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

// selector sets a field by the directive of that name.
func selector(name string, field *labels.Selector) func([]string) error {
	return func(args []string) (err error) {
		typed := strings.Join(args, " ")
		if *field, err = labels.Parse(typed); err != nil {
			return fmt.Errorf("%s %q: want a label selector: %w", name, typed, err)
		}
		if (*field).Empty() {
			return fmt.Errorf("%s %q: want a label selector with a requirement", name, typed)
		}
		return nil
	}
}

// choice completes a directive that takes one of the words in d.Args, and sets a field to the value of that word.
func choice[T any](d Directive, field *T, values ...T) Directive {
	words := strings.Split(d.Args, "|")
	d.Min, d.Max = 1, 1
	d.Set = func(args []string) error {
		i := slices.Index(words, args[0])
		if i < 0 {
			last := len(words) - 1
			return fmt.Errorf("%s %q: want %s or %s", d.Name, args[0], strings.Join(words[:last], ", "), words[last])
		}
		*field = values[i]
		return nil
	}
	return d
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

// ns sets the name server. With addresses the name is ns.dns below one of the zones, else it is outside of all: a name
// that does not exist here must not be named in NS records.
func (b *block) ns(args []string) error {
	name, err := origin(args[0])
	if err != nil || strings.Trim(args[0], ".") == "" {
		return fmt.Errorf("ns %q: want the name of a name server", args[0])
	}
	inside, own := false, false
	for _, z := range b.Zones {
		inside = inside || dns.IsSubDomain(z, name)
		own = own || name == joinName(nameServer, z)
	}
	switch addresses := args[1:]; {
	case len(addresses) > 0 && !own:
		return fmt.Errorf("ns %q with addresses: want %s", args[0], joinName(nameServer, b.Zones[0]))
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

func (b *block) topology(args []string) error {
	typed := quoteArgs("topology", args)
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

// duration sets a field to a duration of at least least.
func duration(name string, field *time.Duration, least time.Duration, want string) func([]string) error {
	return func(args []string) (err error) {
		if *field, err = time.ParseDuration(args[0]); err != nil || *field < least {
			return fmt.Errorf("%s %q: want a duration %s", name, args[0], want)
		}
		return nil
	}
}

func (b *block) snapshot(args []string) (err error) {
	b.Snapshot, err = b.path("snapshot", args[0])
	if err != nil || len(args) == 1 {
		return err
	}
	return duration("snapshot age", &b.SnapshotMaxAge, 1, "above 0s, such as 24h")(args[1:])
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
		if !slices.ContainsFunc(slices.Concat(b.Zones, b.Reverse),
			func(o string) bool { return dns.IsSubDomain(o, z) || dns.IsSubDomain(z, o) }) {
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
