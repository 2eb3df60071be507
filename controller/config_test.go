package controller

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// Two Configs differ if one option does, and only then.
func TestDifference(t *testing.T) {
	base := Defaults()
	base.Broker = "/etc/broker"
	base.Local = &rest.Config{Host: "https://a"}
	for _, line := range []string{
		"broker /etc/other", "broker /etc/broker context", "cluster_id east", "controller_namespace dns", "vip none",
		"vip cidr 10.0.0.0/8",
		"endpoints service_ip", "service_cidr 10.96.0.0/12", "lease 0", "lease 10s 30s", "on_expiry keep", "merge first",
		"affinity local", "affinity none 5s", "exported_affinity off", "import_namespaces a", "import_namespaces a=b",
		"import_namespaces create",
		"legacy_conditions on", "aggregate_view on", "status_page on", "controller_qps 1", "controller_qps 500 2",
	} {
		other := base
		if ok, err := setOption(t, &other, line); !ok || err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		name, _, _ := strings.Cut(line, " ")
		if got := base.Difference(&other); got != name || base.Same(&other) {
			t.Errorf("%s: difference = %q, want %q", line, got, name)
		}
		if got := other.Difference(&base); got != name {
			t.Errorf("%s: difference = %q the other way round, want %q", line, got, name)
		}
	}
	for _, o := range Options() {
		if _, covered := map[string]bool{
			"broker": true, "cluster_id": true, "controller_namespace": true, "vip": true, "endpoints": true,
			"service_cidr": true, "lease": true,
			"on_expiry": true, "merge": true,
			"affinity": true, "exported_affinity": true, "import_namespaces": true, "legacy_conditions": true,
			"aggregate_view": true, "status_page": true, "controller_qps": true,
		}[o.Name]; !covered {
			t.Errorf("option %s: no case in this test", o.Name)
		}
	}
	same := base
	same.Local = &rest.Config{Host: "https://a", QPS: 3, Burst: 4}
	same.Log, same.Metrics, same.Version = logging.Discard, NewMetrics(nil), "v2"
	if got := base.Difference(&same); got != "" {
		t.Errorf("difference = %q, want none", got)
	}
	for _, local := range []*rest.Config{nil, {Host: "https://b"}, {Host: "https://a", BearerToken: "t"}} {
		other := base
		other.Local = local
		if got := base.Difference(&other); got != "kubeconfig" {
			t.Errorf("difference with %v = %q, want kubeconfig", local, got)
		}
	}
}

func TestConfigIsRejected(t *testing.T) {
	good := Defaults()
	good.Local, good.Broker = &rest.Config{}, "/etc/broker"
	for _, tt := range []struct {
		name  string
		spoil func(*Config)
	}{
		{"API server", func(c *Config) { c.Local = nil }},
		{"kubeconfig", func(c *Config) { c.Broker = "" }},
		{"namespace", func(c *Config) { c.Namespace = "" }},
	} {
		c := good
		tt.spoil(&c)
		if err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.name) {
			t.Errorf("without %s: %v, want an error that names it", tt.name, err)
		}
	}
	c, err := good.complete()
	if err != nil || c.Log == nil || c.Metrics == nil {
		t.Errorf("complete = %+v, %v; want a Logger and Metrics", c, err)
	}
}
