package controller

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

func option(t *testing.T, name string) Option {
	t.Helper()
	i := slices.IndexFunc(Options(), func(o Option) bool { return o.Name == name })
	if i < 0 {
		t.Fatalf("there is no option %s", name)
	}
	return Options()[i]
}

// setOption does what both parsers do with one line.
func setOption(t *testing.T, c *Config, line string) (ok bool, err error) {
	t.Helper()
	words := strings.Fields(line)
	o, args := option(t, words[0]), words[1:]
	if len(args) < o.Min || o.Max >= 0 && len(args) > o.Max {
		return false, nil
	}
	return true, o.Set(c, args)
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		line string
		want func(*Config)
	}{
		{"broker /etc/broker", func(c *Config) { c.Broker = "/etc/broker" }},
		{"broker /etc/broker hub", func(c *Config) { c.Broker, c.Context = "/etc/broker", "hub" }},
		{"cluster_id east.example", func(c *Config) { c.ClusterID = "east.example" }},
		{"controller_namespace dns", func(c *Config) { c.Namespace = "dns" }},
		{"vip derived", func(*Config) {}},
		{"vip none", func(c *Config) { c.VIP = merge.NoVIP }},
		{"vip cidr", func(c *Config) { c.VIP = merge.CIDR }},
		{"vip cidr 10.200.0.0/14", func(c *Config) {
			c.VIP, c.VIPNetworks.IPv4 = merge.CIDR,
				netip.MustParsePrefix("10.200.0.0/14")
		}},
		{"vip cidr fd00:200::/96", func(c *Config) {
			c.VIP, c.VIPNetworks.IPv6 = merge.CIDR,
				netip.MustParsePrefix("fd00:200::/96")
		}},
		{"vip cidr fd00:200::/96 10.200.0.0/14", func(c *Config) {
			c.VIP = merge.CIDR
			c.VIPNetworks = merge.VIPNetworks{IPv4: netip.MustParsePrefix("10.200.0.0/14"),
				IPv6: netip.MustParsePrefix("fd00:200::/96")}
		}},
		{"endpoints service_ip", func(c *Config) { c.Endpoints = broker.ServiceIP }},
		{"service_cidr 10.96.0.0/12 fd00::/108", func(c *Config) {
			c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00::/108")}
		}},
		{"lease 1s 3s", func(c *Config) { c.Renew, c.TTL = time.Second, 3*time.Second }},
		{"lease 10s 1h", func(c *Config) { c.Renew, c.TTL = 10*time.Second, time.Hour }},
		{"lease 0", func(c *Config) { c.Renew, c.TTL = 0, 0 }},
		{"affinity local", func(c *Config) { c.Affinity = selection.Local }},
		{"affinity remote 0s", func(c *Config) { c.Affinity, c.FailbackDelay = selection.Remote, 0 }},
		{"exported_affinity off", func(c *Config) { c.ExportedAffinity = false }},
		{"on_expiry last_resort 10m", func(c *Config) { c.OnExpiry.Limit = 10 * time.Minute }},
		{"on_expiry remove", func(c *Config) { c.OnExpiry.Action = liveness.ActRemove }},
		{"on_expiry keep", func(c *Config) { c.OnExpiry.Action = liveness.ActKeep }},
		{"merge lighthouse", func(c *Config) { c.Merge = merge.Lighthouse }},
		{"merge first", func(c *Config) { c.Merge = merge.First }},
		{"import_namespaces b a b", func(c *Config) { c.Namespaces.Names = []string{"a", "b"} }},
		{"import_namespaces create", func(c *Config) { c.CreateNamespaces = true }},
		{"import_namespaces create create b", func(c *Config) {
			c.CreateNamespaces, c.Namespaces.Names = true,
				[]string{"b", "create"}
		}},
		{"import_namespaces b create", func(c *Config) { c.Namespaces.Names = []string{"b", "create"} }},
		{"legacy_conditions on", func(c *Config) { c.LegacyConditions = true }},
		{"aggregate_view on", func(c *Config) { c.AggregateView = true }},
		{"status_page on", func(c *Config) { c.StatusPage = netip.MustParseAddrPort("127.0.0.1:9154") }},
		{"status_page [fd00::1]:80", func(c *Config) { c.StatusPage = netip.MustParseAddrPort("[fd00::1]:80") }},
		{"controller_qps 20", func(c *Config) { c.QPS, c.Burst = 20, 40 }},
		{"controller_qps 0.5", func(c *Config) { c.QPS, c.Burst = 0.5, 1 }},
		{"controller_qps 20 30", func(c *Config) { c.QPS, c.Burst = 20, 30 }},
	} {
		got, want := Defaults(), Defaults()
		tt.want(&want)
		ok, err := setOption(t, &got, tt.line)
		if !ok || err != nil || !equal(got, want) {
			t.Errorf("%s: %v (counted %t), got %+v, want %+v", tt.line, err, ok, got, want)
		}
	}
}

func TestImportNamespacesTakesSelectors(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"import_namespaces team=a", "team=a"},
		{"import_namespaces team=a,tier!=test", "team=a,tier!=test"},
		{"import_namespaces team in (a, b)", "team in (a,b)"},
	} {
		c := Defaults()
		if ok, err := setOption(t, &c, tt.line); !ok || err != nil {
			t.Errorf("%s: %v (counted %t)", tt.line, err, ok)
		} else if got := c.Namespaces.Selector; got != tt.want || c.Namespaces.Names != nil {
			t.Errorf("%s: selector %q and names %q, want %q and none", tt.line, got, c.Namespaces.Names, tt.want)
		}
	}
}

// A value out of range is rejected with the value and the wanted form; the number of words is part of the option.
func TestOptionsReject(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"cluster_id East", "East"},
		{"cluster_id a.b.c", "a.b.c"},
		{"controller_namespace a.b", "a.b"},
		{"vip maybe", "maybe"},
		{"vip none 10.0.0.0/8", "10.0.0.0/8"},
		{"vip cidr 10.0.0.1/8", "10.0.0.1/8"},
		{"vip cidr ten", "ten"},
		{"vip cidr 10.0.0.0/8 11.0.0.0/8", "11.0.0.0/8"},
		{"vip cidr 10.0.0.0/8 x", "x"},
		{"endpoints both", "both"},
		{"service_cidr 10.96.0.0/12 10.96.0.1", "10.96.0.1"},
		{"lease 1", "1"},
		{"lease 999ms 1m", "999ms"},
		{"lease 10s 29s", "29s"},
		{"lease 10s 24h", "24h"},
		{"lease ten 60s", "ten"},
		{"lease 0 60s", "0"},
		{"affinity near", "near"},
		{"affinity local soon", "soon"},
		{"affinity local -1s", "-1s"},
		{"affinity local 2h", "2h"},
		{"on_expiry not_ready", `"not_ready": want one of last_resort, remove, keep`}, {"on_expiry keep 1h", `"1h" after keep: want nothing`},
		{"on_expiry last_resort 5s", `"5s": want a duration from 1m0s on`}, {"on_expiry last_resort soon", `"soon"`},
		{"merge union", "union"},
		{"import_namespaces team in (a", "team in (a"},
		{"import_namespaces create team=a", "team=a"},
		{"legacy_conditions yes", "yes"},
		{"aggregate_view true", "true"},
		{"status_page yes", "yes"},
		{"status_page :9154", ":9154"},
		{"status_page localhost:9154", "localhost:9154"},
		{"controller_qps 0", "0"},
		{"controller_qps -1", "-1"},
		{"controller_qps NaN", "NaN"},
		{"controller_qps Inf", "Inf"},
		{"controller_qps 10 0", "0"},
		{"controller_qps 10 1.5", "1.5"},
	} {
		c := Defaults()
		ok, err := setOption(t, &c, tt.line)
		if !ok || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "want") {
			t.Errorf("%s: %v (counted %t), want an error that has %q and says what is wanted", tt.line, err, ok, tt.want)
		}
		if now := Defaults(); !equal(c, now) {
			t.Errorf("%s: rejected, yet the Config changed", tt.line)
		}
	}
	for _, line := range []string{"broker", "broker a b c", "cluster_id", "vip", "vip cidr 1.0.0.0/8 ::/8 x", "lease",
		"lease 1s 3s 5s", "import_namespaces", "service_cidr"} {
		c := Defaults()
		if ok, _ := setOption(t, &c, line); ok {
			t.Errorf("%s: taken, want another number of words", line)
		}
	}
}

// equal compares what settings have been made.
func equal(a, b Config) bool { return a.Difference(&b) == "" }
