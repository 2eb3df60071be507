package clusterset

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/plugin"
)

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://127.0.0.1:1"}}
- {name: two, cluster: {server: "https://127.0.0.1:2"}}
contexts:
- {name: one, context: {cluster: one, user: somebody}}
- {name: two, context: {cluster: two, user: somebody}}
users:
- {name: somebody, user: {token: secret}}
`

// files writes a kubeconfig and a manifest, and returns a replacer that inserts their paths in a Corefile.
func files(t *testing.T) *strings.Replacer {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"kubeconfig": kubeconfig, "manifest.yaml": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer("{kubeconfig}", filepath.Join(dir, "kubeconfig"), "{manifest}",
		filepath.Join(dir, "manifest.yaml"),
		"{dir}", dir)
}

// blockOf returns a controller for a block in a server block of clusterset.local.
func blockOf(block string) *caddy.Controller {
	c := caddy.NewTestController("dns", block)
	c.ServerBlockKeys = []string{"dns://clusterset.local.:53"}
	dnsserver.GetConfig(c) // creates the configuration, which plugins expect
	return c
}

// specOf returns the store configuration of a block.
func specOf(t *testing.T, block string) cache.Config {
	t.Helper()
	config, _, err := plugin.Parse(blockOf(block))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := storeConfigOf(config)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestSettingsReachTheStore has one row for each setting that is passed on to the store.
func TestSettingsReachTheStore(t *testing.T) {
	in := files(t)
	for _, tt := range []struct {
		line string
		got  func(cache.Config) any
		want any
	}{
		{"", func(c cache.Config) any { return c.REST.Host }, "https://127.0.0.1:1"},
		{"", func(c cache.Config) any { return c.REST.BearerToken }, "secret"},
		{"", func(c cache.Config) any { return c.REST.UserAgent }, "clusterset"},
		{"", func(c cache.Config) any { return c.REST.QPS }, float32(0)},
		{"", func(c cache.Config) any { return c.CheckInterval }, 30 * time.Second},
		{"", func(c cache.Config) any { return fmt.Sprintf("%+v", c.Index) }, fmt.Sprintf("%+v", index.Options{
			ClusterNames: true, MaxNames: []int{253 - len("clusterset.local.") - len(".svc")}})},
		{"apiserver_qps 7 9", func(c cache.Config) any { return [2]any{c.REST.QPS, c.REST.Burst} }, [2]any{float32(7), 9}},
		{"stale_after 4s", func(c cache.Config) any { return c.CheckInterval }, 2 * time.Second},
		{"snapshot {dir}/s 3h", func(c cache.Config) any { return [2]any{c.Snapshot, c.SnapshotMaxAge} },
			[2]any{in.Replace("{dir}/s"), 3 * time.Hour}},
		{"namespaces b a", func(c cache.Config) any { return strings.Join(c.Namespaces, " ") }, "a b"},
		{"namespace_labels a=b", func(c cache.Config) any { return c.NamespaceLabels.String() }, "a=b"},
		{"labels c=d", func(c cache.Config) any { return c.Labels.String() }, "c=d"},
		{"noendpoints", func(c cache.Config) any { return c.NoEndpoints }, true},
		{"cluster_names off", func(c cache.Config) any { return c.Index.ClusterNames }, false},
		{"topology zone z region r", func(c cache.Config) any { return c.Index.Zone + c.Index.Region }, "zr"},
		{"topology node n", func(c cache.Config) any { return c.TopologyNode }, "n"},
	} {
		spec := specOf(t, in.Replace("clusterset {\nkubeconfig {kubeconfig}\n"+tt.line+"\n}"))
		if got := tt.got(spec); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.line, got, tt.want)
		}
	}
	if got := specOf(t, in.Replace(
		"clusterset {\nkubeconfig {kubeconfig} two\n}")).REST.Host; got != "https://127.0.0.1:2" {
		t.Errorf("context two: got %s, want the server of two", got)
	}
	if got := specOf(t, in.Replace("clusterset {\nmanifests {manifest}\n}")); got.REST != nil || len(got.Manifests) != 1 {
		t.Errorf("manifests: got %+v, want no API server", got)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestSetupRejects: errors that Parse cannot find have the file and the line, too.
func TestSetupRejects(t *testing.T) {
	in := files(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tt := range []struct{ name, block, want string }{
		{"kubeconfig is missing", "clusterset {\nkubeconfig {dir}/none\n}",
			"Testfile:2 - Error during parsing: kubeconfig: stat " + in.Replace("{dir}/none")},
		{"not a kubeconfig", "clusterset {\nkubeconfig {manifest} one\n}", "Testfile:2 - Error during parsing: kubeconfig"},
		{"context is missing", "clusterset {\nkubeconfig {kubeconfig} three\n}",
			"Testfile:2 - Error during parsing: kubeconfig"},
		{"not in a cluster", "clusterset", "want kubeconfig FILE or manifests PATH"},
		{"manifest is missing", "clusterset {\nmanifests {dir}/none\n}",
			"Testfile:2 - Error during parsing: manifests: stat " + in.Replace("{dir}/none")},
	} {
		c := blockOf(in.Replace(tt.block))
		if got := errorText(setup(c)); !strings.Contains(got, tt.want) || !strings.HasPrefix(got, "plugin/clusterset: ") {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
