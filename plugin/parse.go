package plugin

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

// exclusive has the pairs of directives that exclude each other in a block, and why.
var exclusivePairs = []struct{ one, other, why string }{
	{"namespaces", "namespace_labels", "name the namespaces or select them"},
	{"manifests", "kubeconfig", "objects come from files or from an API server"},
	{"manifests", "snapshot", "files are still there at the next start"},
	{"manifests", "apiserver_qps", "it limits requests to an API server"},
	{"manifests", "broker", "the controller writes to an API server"},
	{"noendpoints", "policy", "a policy selects among slices"},
	{"noendpoints", "topology", "zones and regions are labels of slices"},
}

// Parse reads the clusterset block of one server block (docs/spec/dns.md 7). An error has the file, the line, the bad
// value and the wanted form. Relative paths are relative to the folder of the root directive. Parse opens no file and
// no connection. more are directives of other packages. Lines are for errors that are found later.
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
	return fmt.Sprintf("%s: want %s", quoteArgs(name, args), want)
}

// validate checks directives against each other. The line in its error is that of one of them.
func (b *block) validate() error {
	for _, x := range exclusivePairs {
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

// zones sets the origins: args, or the zones of the server block if there are no args. Networks are reverse zones, as
// in the keys of a server block.
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
		return fmt.Errorf("zones %s: want a zone such as clusterset.local beside them, for PTR records to point into",
			strings.Join(b.Reverse, ", "))
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
