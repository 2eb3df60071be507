package docs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// bad has an address that is refused, for metrics that are there only then.
const bad = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata:
  name: bad
  namespace: shop
spec:
  type: ClusterSetIP
  ips: [127.0.0.1]
  ports: []
`

func TestMetrics(t *testing.T) {
	c := localize(t, `clusterset.local {
    prometheus :9153
    clusterset {
        manifests examples bad.yaml
    }
}`, "")
	if err := os.WriteFile(filepath.Join(c.dir, "bad.yaml"), []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	s := c.start(t)
	awaitAnswer(t, s, c.dns, web, "10.200.0.10")
	text, err := get(t.Context(), "http://"+c.addresses["prometheus"]+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	plugins := section(t, metricsDoc, "The plugin")
	documented := documentedMetrics(plugins)
	equalSets(t, "metric", slices.Collect(maps.Keys(documented)), metricNames(text))
	checkLabels(t, documented, metricLabels(text))
	checkValues(t, plugins, text)
}

// documentedMetrics returns the metrics in a table, with their labels.
func documentedMetrics(table string) map[string][]string {
	labels := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(coredns_clusterset_\\w+)(?:\\{([^}]*)\\})?` \\|").FindAllStringSubmatch(table, -1) {
		labels[m[1]] = nil
		if m[2] != "" {
			labels[m[1]] = strings.Split(m[2], ", ")
		}
	}
	return labels
}

// checkLabels compares the labels of metrics. Those of histograms have one, le, that is not ours.
func checkLabels(t *testing.T, documented, exported map[string][]string) {
	t.Helper()
	for name, want := range documented {
		got := slices.DeleteFunc(slices.Clone(exported[name]), func(label string) bool { return label == "le" })
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("labels of %s = %q, documented are %q", name, got, want)
		}
	}
}

// A registry has the collectors that are registered with it.
type registry map[string][]string

func (r registry) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for d := range descs {
		m := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		r[m[1]] = strings.FieldsFunc(m[2], func(c rune) bool { return c == ',' })
	}
	return nil
}

func (r registry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = r.Register(c) // It never fails.
	}
}

func (r registry) Unregister(prometheus.Collector) bool { return false }

// TestControllerMetrics also knows those that have no value yet.
func TestControllerMetrics(t *testing.T) {
	text := section(t, metricsDoc, "The controller")
	exported := registry{}
	controller.NewMetrics(exported)
	documented := documentedMetrics(text)
	equalSets(t, "metric", slices.Collect(maps.Keys(documented)), slices.Collect(maps.Keys(exported)))
	checkLabels(t, documented, exported)
	for name, labels := range exported {
		if len(labels) != len(documented[name]) {
			t.Errorf("labels of %s = %q, documented are %q", name, labels, documented[name])
		}
	}
	_, list, _ := strings.Cut(text, "Here a `reason` of rejection is one of ")
	list, _, _ = strings.Cut(list, ".")
	equalSets(t, "reason of rejection", quotedWords(list), []string{
		string(merge.BadCluster), string(merge.BadRecord), string(merge.BadName), string(merge.Duplicate),
		string(merge.BadSlice),
		string(merge.BadAddress), string(merge.AlienCIDR), string(merge.OwnCIDR), string(merge.AlienVIP),
		string(merge.NotTaken), string(merge.BeyondLimit),
		string(merge.Undecodable), string(merge.BadProperty), string(merge.BadSelector), string(merge.BadWeights),
		string(merge.BadDistribution),
	})
}

// checkValues compares the label values that the section lists.
func checkValues(t *testing.T, plugins, text string) {
	t.Helper()
	var answers []string
	for _, m := range regexp.MustCompile(`coredns_clusterset_answers_total\{kind="(\w+)"\}`).FindAllStringSubmatch(text, -1) {
		answers = append(answers, m[1])
	}
	_, row, _ := strings.Cut(plugins, "coredns_clusterset_answers_total")
	_, row, _ = strings.Cut(row, "here `kind` is one of")
	row, _, _ = strings.Cut(row, "\n")
	equalSets(t, "kind of answer", quotedWords(row), answers)

	var reasons []string
	for r := cache.BadObject; r <= cache.Panicked; r++ {
		reasons = append(reasons, r.String())
	}
	_, list, _ := strings.Cut(plugins, "A `reason` is one of ")
	list, _, _ = strings.Cut(list, ".")
	equalSets(t, "reason", quotedWords(list), reasons)
}

func quotedWords(text string) (words []string) {
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// TestRights runs with the rights that docs/deployment.md grants, and with no others.
func TestRights(t *testing.T) {
	need(t)
	ctx := t.Context()
	manifests := blocks(section(t, deploymentDoc, "Rights"), "yaml")
	if len(manifests) != 2 {
		t.Fatalf("%s has %d manifests of rights, want 2", deploymentDoc, len(manifests))
	}
	const account = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {topology.kubernetes.io/zone: zone-a}
`
	apply(t, account)
	apply(t, manifests[0])
	kubeconfig, err := api.ServiceAccountKubeconfig(ctx, "kube-system", "coredns")
	if err != nil {
		t.Fatal(err)
	}

	plain := localize(t, "clusterset.local {\n    clusterset\n}", kubeconfig)
	s := plain.start(t)
	awaitAnswer(t, s, plain.dns, "payment.bank.svc.clusterset.local.", "10.96.1.40") // by the local cluster
	if strings.Contains(s.Output(), "rights are missing") {
		t.Errorf("rights are missing:\n%s", s.Output())
	}
	checkNamespaces(t, kubeconfig)

	// The other two directives need what the second manifest has.
	more := localize(t, `clusterset.local {
    clusterset {
        namespace_labels team=storefront
        topology node node-1
    }
}`, kubeconfig)
	file := filepath.Join(more.dir, "Corefile")
	if err := os.WriteFile(file, []byte(more.text), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = server.Start(subprocess.Command{Bin: coredns, Args: []string{"-conf", file}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	awaitLog(t, s, "Namespace: rights are missing")
	awaitLog(t, s, "the right to get it is missing")
	apply(t, manifests[1])
	apply(t, binding)
	awaitAnswer(t, s, more.dns, web, "10.200.0.10")
	awaitAnswer(t, s, more.dns, "payment.bank.svc.clusterset.local.", "NXDOMAIN")
	awaitLog(t, s, `node node-1 is in zone "zone-a"`)
}

const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns-clusterset-more}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns-clusterset-more}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
`

func apply(t *testing.T, manifest string) {
	t.Helper()
	if err := api.ApplyYAML(t.Context(), []byte(manifest)); err != nil {
		t.Fatal(err)
	}
}

func awaitLog(t *testing.T, s *server.Server, text string) {
	t.Helper()
	if err := s.Await(t.Context(), func(context.Context) error {
		if !strings.Contains(s.Output(), text) {
			return fmt.Errorf("log without %q", text)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkNamespaces reads the one namespace that may be read, and another one.
func checkNamespaces(t *testing.T, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if _, err := namespaces.Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
		t.Errorf("namespace kube-system: %v", err)
	}
	if _, err := namespaces.Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
		t.Error("namespace default can be read, want that right for kube-system alone")
	}
}
