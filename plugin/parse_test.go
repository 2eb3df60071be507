package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/pkg/fall"
	_ "github.com/coredns/coredns/plugin/root"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterset-dns/clusterset/resolver"
)

// parsed is the result of Parse in the setup function below, which CoreDNS calls for a clusterset block.
var parsed Config

// further are the directives of other packages that Parse gets.
var further []Directive

func TestMain(m *testing.M) {
	if err := dnsserver.SetDirectives([]string{"root", "clusterset"}); err != nil {
		panic(err)
	}
	caddy.RegisterPlugin("clusterset", caddy.Plugin{ServerType: "dns", Action: func(c *caddy.Controller) (err error) {
		parsed, _, err = Parse(c, further...)
		return err
	}})
	m.Run()
}

// parse lets CoreDNS read a whole Corefile, as it does at the start.
func parse(corefile string) (Config, error) {
	parsed = Config{}
	in := caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"}
	err := caddy.ValidateAndExecuteDirectives(in, nil, true)
	return parsed, err
}

// within puts lines into the clusterset block of a Corefile; the first of them is line 3 of it.
func within(lines string) string {
	return "clusterset.local {\nclusterset {\n" + lines + "\n}\n}\n"
}

// base is the Config of an empty block.
func base(set func(*Config)) Config {
	c := Config{
		Zones:          []string{"clusterset.local."},
		ClusterNames:   true,
		Policy:         resolver.LocalFirst,
		TTL:            5 * time.Second,
		UDPSize:        1232,
		StartupTimeout: 5 * time.Second,
		StaleAfter:     time.Minute,
	}
	if set != nil {
		set(&c)
	}
	return c
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func selects(t testing.TB, s string) labels.Selector {
	t.Helper()
	sel, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return sel
}

// accepted has, by directive, valid lines and what each changes in the Config of an empty block.
func accepted(t testing.TB) map[string]map[string]func(*Config) {
	return map[string]map[string]func(*Config){
		"kubeconfig": {
			"kubeconfig /etc/k/config":       func(c *Config) { c.Kubeconfig = "/etc/k/config" },
			"kubeconfig config east":         func(c *Config) { c.Kubeconfig, c.Context = "config", "east" },
			`kubeconfig "a b/../c" "my ctx"`: func(c *Config) { c.Kubeconfig, c.Context = "c", "my ctx" },
		},
		"manifests": {
			"manifests /a":         func(c *Config) { c.Manifests = []string{"/a"} },
			"manifests b.yaml a/ ": func(c *Config) { c.Manifests = []string{"b.yaml", "a"} },
		},
		"namespaces": {
			"namespaces shop":            func(c *Config) { c.Namespaces = []string{"shop"} },
			"namespaces shop 0 web-2":    func(c *Config) { c.Namespaces = []string{"0", "shop", "web-2"} },
			"namespaces " + label(63):    func(c *Config) { c.Namespaces = []string{label(63)} },
			"namespaces kube-system web": func(c *Config) { c.Namespaces = []string{"kube-system", "web"} },
		},
		"namespace_labels": {
			"namespace_labels team=shop": func(c *Config) { c.NamespaceLabels = selects(t, "team=shop") },
			"namespace_labels team in (a, b), !draft": func(c *Config) {
				c.NamespaceLabels = selects(t,
					"team in (a,b),!draft")
			},
		},
		"labels": {
			"labels app":                        func(c *Config) { c.Labels = selects(t, "app") },
			`labels "a.b/c notin (x,y)" , d!=e`: func(c *Config) { c.Labels = selects(t, "a.b/c notin (x,y),d!=e") },
		},
		"deny": {
			"deny fd00:ec2::/32 168.63.129.16/32": func(c *Config) {
				c.Deny = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fd00:ec2::/32")}
			},
		},
		"cluster_names": {
			"cluster_names on":  nil,
			"cluster_names off": func(c *Config) { c.ClusterNames = false },
		},
		"explain_answers": {
			"explain_answers on":  func(c *Config) { c.ExplainAnswers = true },
			"explain_answers off": nil,
		},
		"ns": {
			"ns DNS.example":          func(c *Config) { c.NameServer = "dns.example." },
			"ns a.svc.cluster.local.": func(c *Config) { c.NameServer = "a.svc.cluster.local." },
			"ns ns.dns.clusterset.local 192.0.2.1": func(c *Config) {
				c.NameServer,
					c.NameServerAddresses = "ns.dns.clusterset.local.", addrs("192.0.2.1")
			},
			"ns ns.dns.clusterset.local 127.0.0.1 fd00::1": func(c *Config) {
				c.NameServer, c.NameServerAddresses = "ns.dns.clusterset.local.", addrs("127.0.0.1", "fd00::1")
			},
		},
		"udp_size": {
			"udp_size 512":   func(c *Config) { c.UDPSize = 512 },
			"udp_size 65507": func(c *Config) { c.UDPSize = 65507 },
		},
		"ready": {
			"ready shared": nil,
			"ready strict": func(c *Config) { c.ReadyStrict = true },
		},
		"policy": {
			"policy local_first": nil,
			"policy round_robin": func(c *Config) { c.Policy = resolver.RoundRobin },
			"policy all":         func(c *Config) { c.Policy = resolver.All },
			"policy none":        func(c *Config) { c.Policy = resolver.NoCluster },
		},
		"topology": {
			"topology zone z1":           func(c *Config) { c.Topology.Zone = "z1" },
			"topology region r.1":        func(c *Config) { c.Topology.Region = "r.1" },
			"topology zone Z region r":   func(c *Config) { c.Topology = Topology{Zone: "Z", Region: "r"} },
			"topology region r zone Z":   func(c *Config) { c.Topology = Topology{Zone: "Z", Region: "r"} },
			"topology node n1.example":   func(c *Config) { c.Topology.Node = "n1.example" },
			"topology region zone":       func(c *Config) { c.Topology.Region = "zone" },
			"topology zone a_b region 1": func(c *Config) { c.Topology = Topology{Zone: "a_b", Region: "1"} },
		},
		"noendpoints": {
			"noendpoints": func(c *Config) { c.NoEndpoints = true },
		},
		"ttl": {
			"ttl 0":    func(c *Config) { c.TTL = 0 },
			"ttl 30":   func(c *Config) { c.TTL = 30 * time.Second },
			"ttl 3600": func(c *Config) { c.TTL = time.Hour },
		},
		"max_answers": {
			"max_answers 1":    func(c *Config) { c.MaxAnswers = 1 },
			"max_answers 4096": func(c *Config) { c.MaxAnswers = 4096 },
		},
		"startup_timeout": {
			"startup_timeout 1ns": func(c *Config) { c.StartupTimeout = 1 },
			"startup_timeout 2m":  func(c *Config) { c.StartupTimeout = 2 * time.Minute },
		},
		"stale_after": {
			"stale_after 1s":   func(c *Config) { c.StaleAfter = time.Second },
			"stale_after 1h5m": func(c *Config) { c.StaleAfter = 65 * time.Minute },
		},
		"snapshot": {
			"snapshot /var/s":      func(c *Config) { c.Snapshot = "/var/s" },
			"snapshot s 1ms":       func(c *Config) { c.Snapshot, c.SnapshotMaxAge = "s", time.Millisecond },
			"snapshot ./s/../t 2h": func(c *Config) { c.Snapshot, c.SnapshotMaxAge = "t", 2*time.Hour },
		},
		"apiserver_qps": {
			"apiserver_qps 0.5":    func(c *Config) { c.QPS = 0.5 },
			"apiserver_qps 50 100": func(c *Config) { c.QPS, c.Burst = 50, 100 },
		},
		"fallthrough": {
			"fallthrough":       func(c *Config) { c.Fall = fall.Root },
			"fallthrough .":     func(c *Config) { c.Fall = fall.Root },
			"fallthrough Local": func(c *Config) { c.Fall = fall.F{Zones: []string{"local."}} },
			"fallthrough a.svc.clusterset.local": func(
				c *Config) {
				c.Fall = fall.F{Zones: []string{"a.svc.clusterset.local."}}
			},
			"fallthrough clusterset.local B.clusterset.local.": func(c *Config) {
				c.Fall = fall.F{Zones: []string{"clusterset.local.", "b.clusterset.local."}}
			},
		},
	}
}

func TestParseTakesEveryDirective(t *testing.T) {
	accepted := accepted(t)
	for _, d := range Directives() {
		if len(accepted[d.Name]) == 0 {
			t.Errorf("%s: no line of it is tried", d.Name)
		}
	}
	for _, lines := range accepted {
		for line, set := range lines {
			got, err := parse(within(line))
			if err != nil {
				t.Errorf("parse %q: %v, want no error", line, err)
				continue
			}
			equal(t, line, got, base(set))
		}
	}
}

func TestParseTakesDirectivesTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		lines string
		want  func(*Config)
	}{
		"nothing": {"", nil},
		"an API server": {
			"ttl 9\nkubeconfig k c\nnamespaces b a\nlabels x\npolicy all\ntopology node n\nsnapshot s\napiserver_qps 9\nfallthrough",
			func(c *Config) {
				c.TTL, c.Kubeconfig, c.Context, c.Namespaces = 9*time.Second, "k", "c", []string{"a", "b"}
				c.Labels, c.Policy, c.Topology.Node, c.Snapshot = selects(t, "x"), resolver.All, "n", "s"
				c.QPS, c.Fall = 9, fall.Root
			},
		},
		"files": {
			"manifests m\nnamespace_labels x\ntopology zone z\npolicy round_robin\nmax_answers 3",
			func(c *Config) {
				c.Manifests, c.NamespaceLabels, c.Topology.Zone = []string{"m"}, selects(t, "x"), "z"
				c.Policy, c.MaxAnswers = resolver.RoundRobin, 3
			},
		},
		"no slices": {
			"noendpoints\ncluster_names off\nstale_after 2s\nstartup_timeout 1s",
			func(c *Config) {
				c.NoEndpoints, c.ClusterNames, c.StaleAfter, c.StartupTimeout = true, false, 2*time.Second, time.Second
			},
		},
	} {
		got, err := parse(within(tt.lines))
		if err != nil {
			t.Errorf("%s: %v, want no error", name, err)
			continue
		}
		equal(t, name, got, base(tt.want))
	}
}

func TestParseZones(t *testing.T) {
	for _, tt := range []struct {
		name, corefile string
		want           []string
	}{
		{"without a block", "clusterset.local {\nclusterset\n}", []string{"clusterset.local."}},
		{"of the server block, folded", "Clusterset.LOCAL:1053 {\nclusterset {\n}\n}", []string{"clusterset.local."}},
		{"one on two ports", "a.test:53 b.test:53 tls://a.test:853 {\nclusterset\n}", []string{"a.test.", "b.test."}},
		{"given, folded", ".:53 {\nclusterset Clusterset.Local B.test.\n}", []string{"clusterset.local.", "b.test."}},
		{"below the server block", "test {\nclusterset a.test {\nttl 1\n}\n}", []string{"a.test."}},
		{"one below the other", "test {\nclusterset a.test test\n}", []string{"a.test.", "test."}},
		{"root", ". {\nclusterset\n}", []string{"."}},
		{"reverse beside ours", "clusterset.local 10.0.0.0/8 {\nclusterset clusterset.local\n}",
			[]string{"clusterset.local."}},
	} {
		got, err := parse(tt.corefile)
		if err != nil {
			t.Errorf("%s: parse %q: %v, want no error", tt.name, tt.corefile, err)
			continue
		}
		if !slices.Equal(got.Zones, tt.want) {
			t.Errorf("%s: parse %q: Zones = %q, want %q", tt.name, tt.corefile, got.Zones, tt.want)
		}
	}
}

func TestParseTakesReverseZones(t *testing.T) {
	for corefile, want := range map[string][]string{
		"clusterset.local 10.0.0.0/8 {\nclusterset clusterset.local\n}": nil,
		"fd00::/8 a.test {\nclusterset\n}":                              {"d.f.ip6.arpa."},
		". {\nclusterset 10.in-addr.ARPA a.test 192.168.0.0/23\n}": {"10.in-addr.arpa.", "0.168.192.in-addr.arpa.",
			"1.168.192.in-addr.arpa."},
		". {\nclusterset a.test ip6.arpa {\nfallthrough ip6.arpa\n}\n}": {"ip6.arpa."},
	} {
		got, err := parse(corefile)
		if err != nil {
			t.Errorf("parse %q: %v, want no error", corefile, err)
			continue
		}
		if !slices.Equal(got.Reverse, want) || slices.ContainsFunc(got.Zones, isReverse) {
			t.Errorf("parse %q: zones %q and reverse zones %q, want the reverse zones %q", corefile, got.Zones, got.Reverse, want)
		}
	}
}

func TestParseTakesRelativePathsFromRoot(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		line string
		want func(*Config)
	}{
		{"kubeconfig k/config", func(c *Config) { c.Kubeconfig = dir + "/k/config" }},
		{"kubeconfig /k/config", func(c *Config) { c.Kubeconfig = "/k/config" }},
		{"manifests m /n ../o", func(c *Config) { c.Manifests = []string{dir + "/r/m", "/n", dir + "/o"} }},
		{"snapshot s", func(c *Config) { c.Snapshot = dir + "/s" }},
	} {
		root := dir
		if strings.HasPrefix(tt.line, "manifests") {
			root += "/r"
		}
		// The order of the lines in a Corefile does not matter.
		got, err := parse(fmt.Sprintf("clusterset.local {\nclusterset {\n%s\n}\nroot %s\n}\n", tt.line, root))
		if err != nil {
			t.Errorf("parse %q: %v, want no error", tt.line, err)
			continue
		}
		equal(t, tt.line, got, base(tt.want))
	}
}

// rejected has, by directive, invalid lines and the whole error text after file and line.
var rejected = map[string]map[string]string{
	"kubeconfig": {
		"kubeconfig":       `kubeconfig: want FILE [CONTEXT]`,
		"kubeconfig a b c": `kubeconfig "a" "b" "c": want FILE [CONTEXT]`,
		`kubeconfig ""`:    `kubeconfig "": want a path`,
		`kubeconfig a ""`:  `kubeconfig context "": want the name of a context`,
	},
	"manifests": {
		"manifests":         `manifests: want PATH...`,
		`manifests a ""`:    `manifests "": want a path`,
		"manifests a b ./a": `manifests: second "./a": want each path once`,
	},
	"namespaces": {
		"namespaces":               `namespaces: want NAMESPACE...`,
		"namespaces a Shop":        `namespaces "Shop": want the name of a namespace, an RFC 1123 label in lower case`,
		"namespaces a.b":           `namespaces "a.b": want the name of a namespace, an RFC 1123 label in lower case`,
		"namespaces " + label(64):  `namespaces "` + label(64) + `": want the name of a namespace, an RFC 1123 label in lower case`,
		`namespaces ""`:            `namespaces "": want the name of a namespace, an RFC 1123 label in lower case`,
		"namespaces shop web shop": `namespaces: second "shop": want each namespace once`,
	},
	"namespace_labels": {
		"namespace_labels":       `namespace_labels: want SELECTOR`,
		`namespace_labels ""`:    `namespace_labels "": want a label selector with a requirement`,
		"namespace_labels a b":   `namespace_labels "a b": want a label selector: ` + unparsed(`a b`),
		"namespace_labels a=-b-": `namespace_labels "a=-b-": want a label selector: ` + unparsed(`a=-b-`),
	},
	"labels": {
		"labels":        `labels: want SELECTOR`,
		`labels ""`:     `labels "": want a label selector with a requirement`,
		"labels a in b": `labels "a in b": want a label selector: ` + unparsed(`a in b`),
		"labels a=b,":   `labels "a=b,": want a label selector: ` + unparsed(`a=b,`),
	},
	"deny": {
		"deny":                       `deny: want CIDR...`,
		"deny 10.0.0.1":              `deny CIDR "10.0.0.1": want a network such as 10.0.0.0/16, without bits of a host`,
		"deny 10.0.0.1/8":            `deny CIDR "10.0.0.1/8": want a network such as 10.0.0.0/16, without bits of a host`,
		"deny 10.0.0.0/8 10.0.0.0/8": `deny: second "10.0.0.0/8": want each network once`,
	},
	"cluster_names": {
		"cluster_names":        `cluster_names: want on|off`,
		"cluster_names on off": `cluster_names "on" "off": want on|off`,
		"cluster_names ON":     `cluster_names "ON": want on or off`,
	},
	"explain_answers": {
		"explain_answers":        `explain_answers: want on|off`,
		"explain_answers on off": `explain_answers "on" "off": want on|off`,
		"explain_answers yes":    `explain_answers "yes": want on or off`,
	},
	"ns": {
		"ns":                                     `ns: want NAME [ADDRESS...]`,
		"ns .":                                   `ns ".": want the name of a name server`,
		"ns a:53":                                `ns "a:53": want the name of a name server`,
		"ns ns.dns.clusterset.local":             `ns "ns.dns.clusterset.local" without addresses: want a name outside of the zones`,
		"ns ns.example 192.0.2.1":                `ns "ns.example" with addresses: want ns.dns.clusterset.local.`,
		"ns ns.clusterset.local 192.0.2.1":       `ns "ns.clusterset.local" with addresses: want ns.dns.clusterset.local.`,
		"ns ns.dns.clusterset.local here":        `ns address "here": want an IPv4 or IPv6 address`,
		"ns ns.dns.clusterset.local ::":          `ns address "::": want an IPv4 or IPv6 address`,
		"ns ns.dns.clusterset.local ::1 0:0::01": `ns: second address "0:0::01": want each address once`,
	},
	"udp_size": {
		"udp_size":       `udp_size: want OCTETS`,
		"udp_size 511":   `udp_size "511": want a whole number from 512 to 65507`,
		"udp_size 65508": `udp_size "65508": want a whole number from 512 to 65507`,
		"udp_size big":   `udp_size "big": want a whole number from 512 to 65507`,
	},
	"ready": {
		"ready":               `ready: want shared|strict`,
		"ready shared strict": `ready "shared" "strict": want shared|strict`,
		"ready always":        `ready "always": want shared or strict`,
	},
	"policy": {
		"policy":                 `policy: want local_first|round_robin|all|none`,
		"policy all all":         `policy "all" "all": want local_first|round_robin|all|none`,
		"policy local_first|all": `policy "local_first|all": want local_first, round_robin, all or none`,
	},
	"topology": {
		"topology":                    `topology: want ` + topologyArgs,
		"topology z1":                 `topology "z1": want ` + topologyArgs,
		"topology zone":               `topology "zone": want ` + topologyArgs,
		"topology zone a region":      `topology "zone" "a" "region": want ` + topologyArgs,
		"topology zone a b c d":       `topology "zone" "a" "b" "c" "d": want ` + topologyArgs,
		"topology rack 7":             `topology "rack": want zone, region or node`,
		"topology zone a zone b":      `topology: second "zone": want one`,
		"topology region a region b":  `topology: second "region": want one`,
		"topology node a node b":      `topology: second "node": want one`,
		"topology zone a node b":      `topology "zone" "a" "node" "b": want zone and region, or node alone`,
		"topology node b region a":    `topology "node" "b" "region" "a": want zone and region, or node alone`,
		`topology zone "" region a`:   `topology zone "": want a label value`,
		"topology zone a region b/c":  `topology region "b/c": want a label value`,
		"topology zone " + label(64):  `topology zone "` + label(64) + `": want a label value`,
		`topology node ""`:            `topology node "": want the name of a Node`,
		"topology node Upper.example": `topology node "Upper.example": want the name of a Node`,
	},
	"noendpoints": {
		"noendpoints on": `noendpoints "on": want no arguments`,
	},
	"ttl": {
		"ttl":                      `ttl: want SECONDS`,
		"ttl 5 6":                  `ttl "5" "6": want SECONDS`,
		"ttl 3601":                 `ttl "3601": want whole seconds from 0s to 1h`,
		"ttl -1":                   `ttl "-1": want whole seconds from 0s to 1h`,
		"ttl 1.5":                  `ttl "1.5": want whole seconds from 0s to 1h`,
		"ttl 5s":                   `ttl "5s": want whole seconds from 0s to 1h`,
		`ttl ""`:                   `ttl "": want whole seconds from 0s to 1h`,
		"ttl 18446744073709551617": `ttl "18446744073709551617": want whole seconds from 0s to 1h`,
	},
	"max_answers": {
		"max_answers":      `max_answers: want N`,
		"max_answers 1 2":  `max_answers "1" "2": want N`,
		"max_answers 0":    `max_answers "0": want a whole number from 1 to 4096`,
		"max_answers 4097": `max_answers "4097": want a whole number from 1 to 4096`,
		"max_answers -1":   `max_answers "-1": want a whole number from 1 to 4096`,
		"max_answers ten":  `max_answers "ten": want a whole number from 1 to 4096`,
	},
	"startup_timeout": {
		"startup_timeout":       `startup_timeout: want DURATION`,
		"startup_timeout 1s 2s": `startup_timeout "1s" "2s": want DURATION`,
		"startup_timeout 0s":    `startup_timeout "0s": want a duration above 0s, such as 5s`,
		"startup_timeout -5s":   `startup_timeout "-5s": want a duration above 0s, such as 5s`,
		"startup_timeout 5":     `startup_timeout "5": want a duration above 0s, such as 5s`,
	},
	"stale_after": {
		"stale_after":       `stale_after: want DURATION`,
		"stale_after 1m 2m": `stale_after "1m" "2m": want DURATION`,
		"stale_after 999ms": `stale_after "999ms": want a duration of at least 1s, such as 1m`,
		"stale_after soon":  `stale_after "soon": want a duration of at least 1s, such as 1m`,
	},
	"snapshot": {
		"snapshot":         `snapshot: want FILE [MAX_AGE]`,
		"snapshot a 1h 2h": `snapshot "a" "1h" "2h": want FILE [MAX_AGE]`,
		`snapshot ""`:      `snapshot "": want a path`,
		`snapshot "" 1h`:   `snapshot "": want a path`,
		"snapshot a 0s":    `snapshot age "0s": want a duration above 0s, such as 24h`,
		"snapshot a 24":    `snapshot age "24": want a duration above 0s, such as 24h`,
	},
	"apiserver_qps": {
		"apiserver_qps":              `apiserver_qps: want QPS [BURST]`,
		"apiserver_qps 1 2 3":        `apiserver_qps "1" "2" "3": want QPS [BURST]`,
		"apiserver_qps 0":            `apiserver_qps "0": want a number above 0`,
		"apiserver_qps -1":           `apiserver_qps "-1": want a number above 0`,
		"apiserver_qps NaN":          `apiserver_qps "NaN": want a number above 0`,
		"apiserver_qps Inf":          `apiserver_qps "Inf": want a number above 0`,
		"apiserver_qps 1e99":         `apiserver_qps "1e99": want a number above 0`,
		"apiserver_qps 1e-99":        `apiserver_qps "1e-99": want a number above 0`,
		"apiserver_qps fast":         `apiserver_qps "fast": want a number above 0`,
		"apiserver_qps 5 0":          `apiserver_qps burst "0": want a whole number above 0`,
		"apiserver_qps 5 1.5":        `apiserver_qps burst "1.5": want a whole number above 0`,
		"apiserver_qps 5 2147483648": `apiserver_qps burst "2147483648": want a whole number above 0`,
	},
	"fallthrough": {
		"fallthrough a..b":           `fallthrough: zone "a..b": want a domain name of letters, digits, hyphens and underscores`,
		"fallthrough example.org":    `fallthrough zone "example.org": want one at, below or above clusterset.local.`,
		"fallthrough in-addr.arpa":   `fallthrough zone "in-addr.arpa": want one at, below or above clusterset.local.`,
		"fallthrough local . LOCAL.": `fallthrough: second zone "LOCAL.": want each zone once`,
	},
}

// unparsed returns the error of the parser of label selectors.
func unparsed(s string) string {
	_, err := labels.Parse(s)
	if err == nil {
		return "the selector is valid"
	}
	return err.Error()
}

func TestParseRejectsArguments(t *testing.T) {
	for _, d := range Directives() {
		if len(rejected[d.Name]) == 0 {
			t.Errorf("%s: no invalid line is tested", d.Name)
		}
	}
	for _, lines := range rejected {
		for line, want := range lines {
			// Two lines down: the line number is that of the directive, not of the block.
			reject(t, within("# a\n# b\n"+line+"\n"), 5, want)
		}
	}
}

func TestParseRejectsWrongCounts(t *testing.T) {
	for _, d := range Directives() {
		want := cmp.Or(d.Args, "no arguments")
		if d.Min > 0 {
			reject(t, within(d.Name), 3, d.Name+": want "+want)
		}
		if d.Max >= 0 {
			line := d.Name + strings.Repeat(" x", d.Max+1)
			reject(t, within(line), 3, d.Name+strings.Repeat(` "x"`, d.Max+1)+": want "+want)
		}
	}
}

func TestParseRejectsADirectiveTwice(t *testing.T) {
	for name, lines := range accepted(t) {
		line := slices.Min(slices.Collect(maps.Keys(lines)))
		reject(t, within(line+"\n\n"+line), 5, fmt.Sprintf("second %q in one block: want one", name))
	}
}

func TestParseRejectsDirectivesTogether(t *testing.T) {
	further = []Directive{{Name: "broker", Args: "FILE", Min: 1, Max: 1, Set: func([]string) error { return nil }}}
	defer func() { further = nil }()
	for _, tt := range []struct{ one, other, want string }{
		{"namespaces a", "namespace_labels b",
			"namespace_labels beside namespaces: want one of them, name the namespaces or select them"},
		{"manifests a", "kubeconfig b",
			"kubeconfig beside manifests: want one of them, objects come from files or from an API server"},
		{"manifests a", "snapshot b", "snapshot beside manifests: want one of them, files are still there at the next start"},
		{"manifests a", "apiserver_qps 5",
			"apiserver_qps beside manifests: want one of them, it limits requests to an API server"},
		{"manifests a", "topology node b", `topology node "b" beside manifests: want zone and region, manifests have no Nodes`},
		{"manifests a", "broker b", "broker beside manifests: want one of them, the controller writes to an API server"},
		{"noendpoints", "policy all", "policy beside noendpoints: want one of them, a policy selects among slices"},
		{"noendpoints", "topology zone b",
			"topology beside noendpoints: want one of them, zones and regions are labels of slices"},
	} {
		reject(t, within(tt.one+"\n\n"+tt.other), 5, tt.want)
		reject(t, within(tt.other+"\n\n"+tt.one), 3, tt.want)
	}
	if got, want := len(exclusivePairs), 7; got != want {
		t.Errorf("%d pairs of directives exclude each other, %d are tested", got, want)
	}
}

func TestParseRejectsBlocks(t *testing.T) {
	var names []string
	for _, d := range Directives() {
		names = append(names, d.Name)
	}
	known := strings.Join(slices.Sorted(slices.Values(names)), ", ")
	const hostname = "want a domain name of letters, digits, hyphens and underscores"
	for _, tt := range []struct {
		name, corefile string
		line           int
		want           string
	}{
		{"unknown directive", within("ttl 5\nendpoint http://127.0.0.1"), 4, `directive "endpoint": want one of ` + known},
		{"letter case of a directive", within("TTL 5"), 3, `directive "TTL": want one of ` + known},
		{"a block below a directive", within("ttl 5 {\nlabels x\n}"), 3, `"{" after ttl: want a directive or "}"`},
		{"an empty block below a directive", within("noendpoints {\n}\nlabels x"), 3, `"{" after noendpoints: want a directive or "}"`},
		{"a block without a name", within("{\n}"), 3, `directive "{": want one of ` + known},
		{"a block on a line of its own", within("ttl 5\n{\n}"), 4, `"{" after ttl: want a directive or "}"`},
		{"a block that ends on the line of a directive", "a.test {\nclusterset {\nttl 5 }\n}\n", 3, `ttl "5" "}": want SECONDS`},

		{"second block", "a.test {\nclusterset\nclusterset\n}", 3, `second "clusterset" in one server block: want one block, with all zones`},
		{"second block of another zone", "test {\nclusterset a.test {\nttl 5\n}\nclusterset b.test {\n}\n}", 5, `second "clusterset" in one server block: want one block, with all zones`},

		{"zone outside", "a.test {\nclusterset b.test\n}", 2, `zone "b.test" is not at or below a zone of this server block`},
		{"zone above", "a.test {\nclusterset test {\nttl 1\n}\n}", 2, `zone "test" is not at or below a zone of this server block`},
		{"zone that only ends alike", "a.test {\nclusterset ba.test\n}", 2, `zone "ba.test" is not at or below a zone of this server block`},
		{"zone of another server block", "a.test {\nclusterset b.test\n}\nb.test {\nroot /\n}", 2, `zone "b.test" is not at or below a zone of this server block`},
		{"zone twice", ". {\nclusterset a.test A.Test.\n}", 2, `second zone "A.Test." in one block: want each zone once`},
		{"reverse zones alone", ". {\nclusterset ip6.ARPA 10.0.0.0/8\n}", 2, `zones ip6.arpa., 10.in-addr.arpa.: want a zone such as clusterset.local beside them, for PTR records to point into`},
		{"reverse zone twice", ". {\nclusterset a.test 10.0.0.0/8 10.in-addr.arpa\n}", 2, `second zone "10.in-addr.arpa" in one block: want each zone once`},
		{"reverse zone outside", "a.test {\nclusterset a.test 10.0.0.0/8\n}", 2, `zone "10.0.0.0/8" is not at or below a zone of this server block`},
		{"a network with too long a prefix", ". {\nclusterset a.test 10.0.0.0/33\n}", 2, `zone "10.0.0.0/33": ` + hostname},
		{"zone with a port", ". {\nclusterset a.test:53\n}", 2, `zone "a.test:53": ` + hostname},
		{"zone with a scheme", ". {\nclusterset dns://a.test\n}", 2, `zone "dns://a.test": ` + hostname},
		{"zone without a name", ". {\nclusterset \"\"\n}", 2, `zone "": ` + hostname},
		{"zone with an empty label", ". {\nclusterset a..test\n}", 2, `zone "a..test": ` + hostname},
		{"zone with a long label", ". {\nclusterset " + label(64) + "\n}", 2, `zone "` + label(64) + `": ` + hostname},
		{"zone beyond ASCII", ". {\nclusterset ä.test\n}", 2, `zone "ä.test": ` + hostname},
	} {
		t.Run(tt.name, func(t *testing.T) { reject(t, tt.corefile, tt.line, tt.want) })
	}
}

func TestParseNamesTheFileOfAnImport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ours")
	if err := os.WriteFile(file, []byte("clusterset {\nttl x\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := parse("a.test {\nimport " + file + "\n}\n")
	want := file + `:2 - Error during parsing: ttl "x": want whole seconds from 0s to 1h`
	if err == nil || err.Error() != want {
		t.Errorf("parse of an import:\n got %v\nwant %s", err, want)
	}
}

func reject(t *testing.T, corefile string, line int, want string) {
	t.Helper()
	_, err := parse(corefile)
	want = fmt.Sprintf("Corefile:%d - Error during parsing: %s", line, want)
	if err == nil || err.Error() != want {
		t.Errorf("parse %q:\n got %v\nwant %s", corefile, err, want)
	}
}

func equal(t *testing.T, what string, got, want Config) {
	t.Helper()
	// Selectors are compared by their canonical text, as they have parsed requirements.
	gotText, wantText := fmt.Sprint(got.Labels, got.NamespaceLabels), fmt.Sprint(want.Labels, want.NamespaceLabels)
	got.Labels, got.NamespaceLabels, want.Labels, want.NamespaceLabels = nil, nil, nil, nil
	if gotText != wantText || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, selectors %s\nwant %+v, selectors %s", what, got, gotText, want, wantText)
	}
}

func label(octets int) string { return strings.Repeat("a", octets) }

// FuzzParse gives Parse the lines of a block. A block is either rejected at a line of the file or the same Config each
// time, within the documented bounds.
func FuzzParse(f *testing.F) {
	for _, lines := range accepted(f) {
		for line := range lines {
			f.Add(line)
		}
	}
	for _, lines := range []string{"}", "}\n}\nclusterset {", "ttl", "ttl -1", "labels a in (", "topology zone", "manifests \x00", `kubeconfig "`, "max_answers 1e9", "import x", "{$HOME}"} {
		f.Add(lines)
	}
	read := func(lines string) (Config, error) {
		c := caddy.NewTestController("dns", "clusterset {\n"+lines+"\n}\n")
		c.ServerBlockKeys = []string{"dns://clusterset.local.:53"}
		dnsserver.GetConfig(c)
		config, _, err := Parse(c)
		return config, err
	}
	f.Fuzz(func(t *testing.T, lines string) {
		config, err := read(lines)
		if err != nil {
			if !strings.Contains(err.Error(), "Testfile:") {
				t.Errorf("Parse(%q) = %q, want the place in the file", lines, err)
			}
			return
		}
		again, err := read(lines)
		if err != nil || !reflect.DeepEqual(again, config) {
			t.Errorf("Parse(%q) = %+v, %v the second time, want %+v", lines, again, err, config)
		}
		if config.TTL < 0 || config.TTL > time.Hour || config.MaxAnswers < 0 || config.StartupTimeout < 0 ||
			len(config.Zones) == 0 {
			t.Errorf("Parse(%q) = %+v, which is outside of the bounds", lines, config)
		}
	})
}
