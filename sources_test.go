package clusterset

import (
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

// files writes a kubeconfig and a manifest, and returns what replaces their names in a Corefile.
func files(t *testing.T) *strings.Replacer {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"kubeconfig": kubeconfig, "manifest.yaml": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer("{kubeconfig}", filepath.Join(dir, "kubeconfig"), "{manifest}", filepath.Join(dir, "manifest.yaml"),
		"{dir}", dir)
}

// blockOf returns a controller for a block in a server block of clusterset.local.
func blockOf(block string) *caddy.Controller {
	c := caddy.NewTestController("dns", block)
	c.ServerBlockKeys = []string{"dns://clusterset.local.:53"}
	dnsserver.GetConfig(c) // It makes the configuration that plugins look for.
	return c
}

// specOf returns what a block makes of the store.
func specOf(t *testing.T, block string) cache.Config {
	t.Helper()
	config, _, err := plugin.Parse(blockOf(block))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := storeConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestSettingsReachTheStore has one setting a row that a store has to know.
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
		{"", func(c cache.Config) any { return c.Index }, index.Options{ClusterNames: true, MaxName: 253 - len("clusterset.local.") - len(".svc")}},
		{"apiserver_qps 7 9", func(c cache.Config) any { return [2]any{c.REST.QPS, c.REST.Burst} }, [2]any{float32(7), 9}},
		{"stale_after 4s", func(c cache.Config) any { return c.CheckInterval }, 2 * time.Second},
		{"snapshot {dir}/s 3h", func(c cache.Config) any { return [2]any{c.Snapshot, c.SnapshotMaxAge} }, [2]any{in.Replace("{dir}/s"), 3 * time.Hour}},
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
	if got := specOf(t, in.Replace("clusterset {\nkubeconfig {kubeconfig} two\n}")).REST.Host; got != "https://127.0.0.1:2" {
		t.Errorf("context two: got %s, want the server of two", got)
	}
	if got := specOf(t, in.Replace("clusterset {\nmanifests {manifest}\n}")); got.REST != nil || len(got.Manifests) != 1 {
		t.Errorf("manifests: got %+v, want no API server", got)
	}
}

// TestSharing says what blocks, and the Corefile before and after a reload, have in common.
func TestSharing(t *testing.T) {
	in := files(t)
	for _, tt := range []struct {
		name, one, other string
		same             bool
	}{
		{"nothing differs", "", "", true},
		{"answers differ", "ttl 5", "ttl 6\npolicy all\nmax_answers 3\nfallthrough\nstartup_timeout 9s", true},
		{"order differs", "namespaces a b", "namespaces b a", true},
		{"namespaces differ", "namespaces a", "namespaces b", false},
		{"labels differ", "labels a=b", "labels a=c", false},
		{"labels of namespaces differ", "namespace_labels a", "", false},
		{"limits differ", "apiserver_qps 5", "apiserver_qps 6", false},
		{"endpoints or none", "noendpoints", "", false},
	} {
		block := "clusterset {\nkubeconfig {kubeconfig}\n"
		one, other := specOf(t, in.Replace(block+tt.one+"\n}")), specOf(t, in.Replace(block+tt.other+"\n}"))
		r := registry{ctx: t.Context()}
		held := r.hold()
		a, err := r.find(held, one)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.find(held, other)
		if err != nil {
			t.Fatal(err)
		}
		if same := a.source == b.source; same != tt.same {
			t.Errorf("%s: same = %t, want %t", tt.name, same, tt.same)
		}
		r.release(held)
	}
}

// TestSnapshotOfTwo: two blocks must not write what they see into one file, unless they see the same.
func TestSnapshotOfTwo(t *testing.T) {
	in := files(t)
	for _, tt := range []struct{ name, other, want string }{
		{"the same objects", "cluster_names off", ""},
		{"other objects", "namespaces a", "want a file of its own"},
		{"another file", "namespaces a\nsnapshot {dir}/b", ""},
	} {
		r := registry{ctx: t.Context()}
		held := r.hold()
		if _, err := r.find(held, specOf(t, in.Replace("clusterset {\nkubeconfig {kubeconfig}\nsnapshot {dir}/a\n}"))); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(tt.other, "snapshot") {
			tt.other += "\nsnapshot {dir}/a"
		}
		_, err := r.find(held, specOf(t, in.Replace("clusterset {\nkubeconfig {kubeconfig}\n"+tt.other+"\n}")))
		if got := errorText(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		r.release(held)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestSetupRefuses: what is wrong beyond the block itself has its file and line, too.
func TestSetupRefuses(t *testing.T) {
	in := files(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tt := range []struct{ name, block, want string }{
		{"kubeconfig is missing", "clusterset {\nkubeconfig {dir}/none\n}", "Testfile:2 - Error during parsing: kubeconfig: stat " + in.Replace("{dir}/none")},
		{"kubeconfig is none", "clusterset {\nkubeconfig {manifest} one\n}", "Testfile:2 - Error during parsing: kubeconfig"},
		{"context is missing", "clusterset {\nkubeconfig {kubeconfig} three\n}", "Testfile:2 - Error during parsing: kubeconfig"},
		{"not in a cluster", "clusterset", "want kubeconfig FILE, or manifests PATH"},
		{"manifest is missing", "clusterset {\nmanifests {dir}/none\n}", "Testfile:2 - Error during parsing: manifests: stat " + in.Replace("{dir}/none")},
	} {
		c := blockOf(in.Replace(tt.block))
		if got := errorText(setup(c)); !strings.Contains(got, tt.want) || !strings.HasPrefix(got, "plugin/clusterset: ") {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
