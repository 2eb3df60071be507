package docs

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

const webImport = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: web, namespace: shop}
spec:
  type: ClusterSetIP
  ips: [10.200.0.10]
  ports: [{port: 80}]
`

// TestAlertsOfServer takes the series of a server whose cluster has no ClusterProperty kind, as a cluster without our
// controller may be. Nothing fires while the API server answers, for as long as that goes on; once it does not, what is
// served is stale.
func TestAlertsOfServer(t *testing.T) {
	tier.All(t)
	api := controlplane.StartT(t, controlplane.Options{CRDs: controlplane.MCSCRDs()})
	if err := api.ApplyYAML(t.Context(), []byte(webImport)); err != nil {
		t.Fatal(err)
	}
	c := localize(t, "clusterset.local {\n    prometheus :9153\n    clusterset\n}", api.Kubeconfig())
	s := c.start(t)
	awaitAnswer(t, s, c.dns, web, "10.200.0.10")
	scrape := func() series {
		text, err := get(t.Context(), "http://"+c.addresses["prometheus"]+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		return readSeries(t, text)
	}

	// No controller is scraped here.
	const alone = "ClusterSetNoLeader"
	first := scrape()
	wantAlerts(t, first.hour(first), alone)

	if err := api.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	contact := func(s series) float64 {
		return s.values[`coredns_clusterset_last_contact_seconds{source="`+first.source(t)+`",watch="ServiceImport"}`]
	}
	until.True(t, "the age of the last contact grows", func() bool { first = scrape(); return contact(first) > 2 })
	second := first
	until.True(t, "it goes on to grow", func() bool { second = scrape(); return contact(second) > contact(first)+2 })
	wantAlerts(t, first.hour(second), alone, "ClusterSetDNSStale")
}

// TestAlertsOfController takes the series of a controller: while all is well, and when its broker is gone.
func TestAlertsOfController(t *testing.T) {
	tier.All(t)
	c := testclusterset.StartT(t, "east")
	east := c.Members[0]
	if _, err := east.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	east.Run(t, func(c *controller.Config) { c.Metrics = controller.NewMetrics(registry) })
	web := testclusterset.Service("shop", "web", testclusterset.Port("http", 80))
	east.Put(t, testclusterset.Namespace("shop"), web, testclusterset.Export("shop", "web"))
	until.OK(t, "exported and imported", func(ctx context.Context) error {
		_, err := east.Import(ctx, "shop", "web")
		return err
	})
	scrape := func() series {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				t.Fatal(err)
			}
		}
		return readSeries(t, text.String())
	}
	var healthy series
	until.True(t, "the controller leads, and nothing is frozen", func() bool {
		healthy = scrape()
		frozen := 0.0
		for name, value := range healthy.values {
			if strings.HasPrefix(name, "coredns_clusterset_controller_frozen{") {
				frozen += value
			}
		}
		return healthy.values["coredns_clusterset_controller_leader"] == 1 && frozen == 0 &&
			healthy.values["coredns_clusterset_controller_broker_connected"] == 1
	})
	wantAlerts(t, healthy.hour(healthy))

	if err := c.Broker.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	var down series
	until.True(t, "the broker is gone", func() bool {
		down = scrape()
		// A term that ends resets all metrics.
		return down.values["coredns_clusterset_controller_leader"] == 1 &&
			down.values["coredns_clusterset_controller_broker_connected"] == 0
	})
	fired := firing(t, down.hour(down))
	if !slices.Contains(fired, "ClusterSetBrokerDisconnected") || slices.Contains(fired, "ClusterSetNoLeader") {
		t.Errorf("firing = %q, want ClusterSetBrokerDisconnected, and no alert that says that nothing leads", fired)
	}
}

// A series is what one scrape found of our metrics.
type series struct {
	at     time.Time
	values map[string]float64 // by name with labels
}

var sample = regexp.MustCompile(`(?m)^(coredns_clusterset_\w+(?:\{.*\})?) (\S+)$`)

func readSeries(t *testing.T, text string) series {
	t.Helper()
	s := series{at: time.Now(), values: map[string]float64{}}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		s.values[m[1]] = value
	}
	if len(s.values) == 0 {
		t.Fatalf("no metric of ours in %q", text)
	}
	return s
}

// source returns the label of the same name of the one source of a server.
func (s series) source(t *testing.T) string {
	t.Helper()
	for name := range s.values {
		if m := regexp.MustCompile(`last_contact_seconds\{.*source="([^"]*)"`).FindStringSubmatch(name); m != nil {
			return m[1]
		}
	}
	t.Fatal("no series of the last contact")
	return ""
}

// hour returns series of an hour in the notation of promtool: each begins as in s and goes on as it did until next.
// With s itself as next they stay as they are, so that alerts about rates do not fire: how often something fails in
// some seconds of a test depends on the machine.
func (s series) hour(next series) (all []string) {
	minutes := next.at.Sub(s.at).Minutes()
	for name, value := range s.values {
		step := 0.0
		if minutes > 0 && !math.IsInf(value, 0) {
			step = (next.values[name] - value) / minutes
		}
		name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		all = append(all, fmt.Sprintf("  - series: '%s{job=\"dns\",instance=\"a\",%s}'\n    values: %s%sx60\n", name, labels,
			strconv.FormatFloat(value, 'f', -1, 64), fmt.Sprintf("%+f", step)))
	}
	slices.Sort(all)
	return all
}

func wantAlerts(t *testing.T, series []string, want ...string) {
	t.Helper()
	got := firing(t, series)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("firing = %q, want %q, of\n%s", got, want, strings.Join(series, ""))
	}
}

// firing returns the names of the alerts that fire at any time in the hour of these series, sorted.
func firing(t *testing.T, series []string) (names []string) {
	t.Helper()
	const folder = "../../../deploy/alerts"
	rules, err := filepath.Abs(filepath.Join(folder, "clusterset.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	alert := regexp.MustCompile(`(?m)- alert: (\w+)$`)
	var text strings.Builder
	fmt.Fprintf(
		&text, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n%s  alert_rule_test:\n",
		rules, strings.Join(series, ""))
	for _, m := range alert.FindAllStringSubmatch(read(t, "deploy/alerts/clusterset.rules.yaml"), -1) {
		for _, minute := range []int{10, 30, 60} {
			fmt.Fprintf(&text, "  - {eval_time: %dm, alertname: %s}\n", minute, m[1])
		}
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program.Find(t, "promtool"), "test", "rules", file).CombinedOutput()
	for _, m := range regexp.MustCompile(`alertname: (\w+),`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	if (err != nil) != (len(names) > 0) || strings.Contains(string(out), "error") {
		t.Fatalf("promtool: %v\n%s\n%s", err, out, text.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}
