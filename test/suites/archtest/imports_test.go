// Package archtest holds a test of how the packages of this module depend on each other.
package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/clusterset-dns/clusterset"

// A rule has the packages that one may reach by imports, its own and those of what it imports. A pattern is an import
// path, or the beginning of some with "..." at the end; "std" is the standard library.
type rule struct {
	name  string
	pkg   string   // below the module, "" for its root
	allow []string // if not nil, nothing else
	deny  []string
	// direct means that only the package's own imports count.
	direct bool
}

const (
	ours     = module + "/..."
	miekg    = "github.com/miekg/dns"
	coredns  = "github.com/coredns/..."
	clientgo = "k8s.io/client-go/..."
)

// tests are packages that nothing which is shipped may hold.
var tests = []string{
	"testing", "testing/...", "github.com/stretchr/...", "go.uber.org/goleak/...", "k8s.io/client-go/testing/...",
	"net/http/httptest", module + "/test/...", module + "/cmd/...",
}

// parts returns packages of the controller, and the controller itself, which no part may reach.
func parts(names ...string) []string {
	paths := []string{module + "/controller"}
	for _, name := range names {
		paths = append(paths, module+"/controller/"+name)
	}
	return paths
}

var rules = []rule{
	{name: "the index is of the standard library alone", pkg: "cache/index", allow: []string{"std"}},
	{name: "the resolver is pure", pkg: "resolver", allow: []string{"std", module + "/cache/index", miekg}, direct: true},
	{name: "the resolver knows no clock, log, file or net of its own", pkg: "resolver", direct: true,
		deny: []string{"time", "log/...", "os/...", "net", "net/http", "context", "sync/...", "math/rand/..."}},
	{name: "the resolver reaches no API", pkg: "resolver",
		deny: []string{coredns, "k8s.io/...", "sigs.k8s.io/...", "github.com/prometheus/..."}},
	{name: "codes are of the standard library alone", pkg: "api/reason", allow: []string{"std"}},
	{name: "denial is pure", pkg: "resolver/denial", deny: []string{clientgo, "github.com/coredns/coredns/...",
		module + "/cache", module + "/apiserver"}},
	{name: "denial knows no clock, log, file or net of its own", pkg: "resolver/denial", direct: true,
		deny: []string{"time", "log/...", "os/...", "net", "net/http", "context", "sync/...", "math/rand/..."}},
	{name: "the cache knows no server", pkg: "cache",
		deny: append([]string{coredns, miekg, "github.com/prometheus/client_golang/...", module + "/plugin/...",
			module + "/resolver/..."}, tests...)},
	{name: "the cache imports of ours", pkg: "cache", deny: []string{module + "/controller/..."}},
	{name: "the plugin", pkg: "plugin", deny: append([]string{module + "/controller/...", module}, tests...)},
	{name: "the plugin talks to no API by itself", pkg: "plugin", direct: true,
		deny: []string{clientgo, "sigs.k8s.io/..."}},
	// The Lease of the leader election comes with client-go's typed clients, and those with what fakes them.
	{name: "what is registered", pkg: "", deny: append(slices.DeleteFunc(slices.Clone(tests), func(pattern string) bool {
		return pattern == "k8s.io/client-go/testing/..."
	}), "github.com/spf13/cobra/...", "k8s.io/cli-runtime/...", module+"/deploy/...", module+"/admin/...")},
	{name: "the types", pkg: "api/...", deny: []string{clientgo, coredns, module + "/cache/...", module + "/plugin/...",
		module + "/resolver/..."}},
	{name: "the controller and the DNS side are apart", pkg: "controller/...",
		deny: []string{module + "/cache/...", module + "/plugin/...", module + "/resolver/...", coredns, miekg}},
	{name: "the controller knows no command", pkg: "controller/...",
		deny: append(slices.Clone(tests[:4]), "github.com/spf13/cobra/...", "k8s.io/cli-runtime/...")},
	{name: "liveness is pure", pkg: "controller/liveness", allow: []string{"std", module + "/controller/protocol"},
		direct: true},
	{name: "selection is pure", pkg: "controller/selection", deny: []string{clientgo, module + "/controller/broker"}},
	{name: "the status page is pure", pkg: "controller/page", allow: []string{"std"}},
	{name: "the status page has no lock, file or net", pkg: "controller/page", direct: true,
		deny: []string{"log/...", "os/...", "net", "net/http", "context", "sync/..."}},
	{name: "merge and export are pure", pkg: "controller/merge", deny: []string{clientgo, module + "/controller/broker"}},
	{name: "desired is pure", pkg: "controller/desired", deny: []string{clientgo, module + "/controller/broker"}},
	{name: "merge knows no part above it", pkg: "controller/merge", deny: parts("desired")},
	{name: "merge and export are pure", pkg: "controller/export", deny: []string{clientgo, module + "/controller/broker"}},
	{name: "wiring is pure", pkg: "admin/wiring", deny: []string{clientgo, "github.com/coredns/coredns/...",
		module + "/apiserver"}},
	{name: "wiring knows no clock, file or net", pkg: "admin/wiring", direct: true,
		deny: []string{"time", "log/...", "os/...", "net", "net/http", "context", "sync/..."}},
	{name: "explain has no client, clock, file or net", pkg: "admin/explain/cause", direct: true,
		deny: []string{clientgo, coredns, "log/...", "os/...", "net", "net/http", "context", "sync/...",
			module + "/apiserver"}},
	// The parts of the controller, from the lowest: a part may reach those before it.
	{name: "metrics of the controller know no part", pkg: "controller/metrics", deny: []string{module + "/..."}},
	{name: "the member knows no part above it", pkg: "controller/member",
		deny: parts("broker", "safety", "identity", "exporter", "importer")},
	{name: "the broker knows no part above it", pkg: "controller/broker",
		deny: parts("member", "safety", "identity", "exporter", "importer")},
	{name: "safety knows no part above it", pkg: "controller/safety", deny: parts("identity", "exporter", "importer")},
	{name: "identity knows no part above it", pkg: "controller/identity", deny: parts("exporter", "importer")},
	{name: "the exporter does not know the importer", pkg: "controller/exporter", deny: parts("importer")},
	{name: "only the wiring knows lease, queue and status page", pkg: "controller/importer",
		deny: parts("lease", "queue", "statuspage", "page")},
	{name: "the status page knows neither lease nor queue", pkg: "controller/statuspage", deny: parts("lease", "queue")},
}

// A pkg is what the go command reports about a package.
type pkg struct {
	path          string
	standard      bool
	imports, deps []string
}

// list returns all packages of this module without tests, and all that they need.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-pgo=off",
		"-f", `{{.ImportPath}}|{{.Standard}}|{{join .Imports " "}}|{{join .Deps " "}}`, ours)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	all := map[string]pkg{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		all[fields[0]] = pkg{fields[0], fields[1] == "true", strings.Fields(fields[2]), strings.Fields(fields[3])}
	}
	return all
}

func matches(pattern, path string) bool {
	if head, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(path+"/", head)
	}
	return pattern == path
}

// broken lists what p reaches against the rule.
func (r rule) broken(p pkg, all map[string]pkg) []string {
	reached := p.deps
	if r.direct {
		reached = p.imports
	}
	var bad []string
	for _, dep := range reached {
		is := func(pattern string) bool {
			return matches(pattern, dep) || pattern == "std" && all[dep].standard
		}
		if r.allow != nil && !slices.ContainsFunc(r.allow, is) || slices.ContainsFunc(r.deny, is) {
			bad = append(bad, dep)
		}
	}
	return bad
}

func TestImports(t *testing.T) {
	all := list(t)
	for _, r := range rules {
		met := false
		for path, p := range all {
			want := strings.TrimSuffix(module+"/"+r.pkg, "/")
			if !matches(want, path) {
				continue
			}
			met = true
			if bad := r.broken(p, all); len(bad) > 0 {
				t.Errorf("%s: %s imports %q", r.name, path, bad)
			}
		}
		if !met {
			t.Errorf("%s: no package %s", r.name, r.pkg) // such a rule proves nothing
		}
	}
}

// TestRulesCanBreak shows each way in which a rule is broken.
func TestRulesCanBreak(t *testing.T) {
	all := map[string]pkg{"time": {path: "time", standard: true}, "k8s.io/client-go/rest": {path: "k8s.io/client-go/rest"}}
	p := pkg{imports: []string{"time"}, deps: []string{"k8s.io/client-go/rest", "time"}}
	for _, tt := range []struct {
		name string
		rule rule
		want []string
	}{
		{name: "not allowed", rule: rule{allow: []string{"std"}}, want: []string{"k8s.io/client-go/rest"}},
		{name: "allowed", rule: rule{allow: []string{"std", "k8s.io/..."}}},
		{name: "direct", rule: rule{allow: []string{"std"}, direct: true}},
		{name: "denied", rule: rule{deny: []string{"time"}}, want: []string{"time"}},
		{name: "denied below", rule: rule{deny: []string{clientgo}}, want: []string{"k8s.io/client-go/rest"}},
		{name: "denied itself", rule: rule{deny: []string{"k8s.io/client-go/rest/..."}},
			want: []string{"k8s.io/client-go/rest"}},
		{name: "another with that beginning", rule: rule{deny: []string{"k8s.io/client/..."}}},
	} {
		if got := tt.rule.broken(p, all); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
