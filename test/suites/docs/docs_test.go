// Package docs holds the documents of the repository, with corefile.example and Dockerfile, to the code and to running
// servers.
package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/plugin"
)

// root is the folder of the repository.
const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The documents with sections that are checked here.
const (
	readme        = "README.md"
	controllerDoc = "docs/controller.md"
	deploymentDoc = "docs/deployment.md"
	metricsDoc    = "docs/metrics.md"
)

// section returns the part of a document below a heading of the second level.
func section(t *testing.T, document, heading string) string {
	t.Helper()
	_, part, ok := strings.Cut(read(t, document), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s: want a section %q", document, heading)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	return part
}

// blocks returns the fenced blocks of a language in text.
func blocks(text, language string) (all []string) {
	for _, m := range regexp.MustCompile("(?ms)^~~~ (\\S+)\n(.*?)^~~~$").FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			all = append(all, m[2])
		}
	}
	return all
}

// equalSets compares the names in a document with those that exist.
func equalSets(t *testing.T, what string, documented, actual []string) {
	t.Helper()
	slices.Sort(documented)
	slices.Sort(actual)
	for _, d := range documented {
		if !slices.Contains(actual, d) {
			t.Errorf("%s %q is documented, but does not exist", what, d)
		}
	}
	for _, r := range actual {
		if !slices.Contains(documented, r) {
			t.Errorf("%s %q exists, but is not documented", what, r)
		}
	}
	if len(slices.Compact(slices.Clone(documented))) != len(documented) {
		t.Errorf("%s: %q: want each once", what, documented)
	}
}

// TestManPage holds README.md to its form, and to a length that can be read. After the front page for users of a
// clusterset it has the form of CoreDNS's manual pages.
func TestManPage(t *testing.T) {
	text := read(t, readme)
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	want := []string{
		"Get a clusterset", "Status",
		"Name", "Description", "Syntax", "Examples", "Metrics", "Ready", "Metadata", "Bugs", "See Also",
	}
	if !slices.Equal(got, want) {
		t.Errorf("sections of %s = %q, want %q", readme, got, want)
	}
	if lines := strings.Count(text, "\n"); lines > 350 {
		t.Errorf("%s has %d lines, want at most 350", readme, lines)
	}
}

func TestMetadata(t *testing.T) {
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(clusterset/[^`]+)` \\|").FindAllStringSubmatch(section(t, readme, "Metadata"), -1) {
		documented = append(documented, m[1])
	}
	store, err := cache.New(cache.Config{Manifests: []string{filepath.Join(root, "examples")}})
	if err != nil {
		t.Fatal(err)
	}
	h := plugin.NewHandler(plugin.Config{Zones: []string{"clusterset.local."}}, store, plugin.NewRotation())
	r := new(dns.Msg).SetQuestion("clusterset.local.", dns.TypeA)
	ctx := metadata.ContextWithMetadata(t.Context())
	ctx = h.Metadata(ctx, request.Request{Req: r})
	equalSets(t, "metadata label", documented, metadata.Labels(ctx))
}

// TestPluginCfg follows README.md with CoreDNS's own list.
func TestPluginCfg(t *testing.T) {
	var sed string
	for _, block := range blocks(section(t, readme, "Description"), "sh") {
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "sed ") {
				sed = line
			}
		}
	}
	if sed == "" {
		t.Fatal("README.md: want the sed command that changes plugin.cfg")
	}
	upstream := goList(t, "list", "-m", "-f", "{{.Dir}}", "github.com/coredns/coredns")
	before, err := os.ReadFile(filepath.Join(upstream, "plugin.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plugin.cfg"), before, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", sed)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", sed, err, out)
	}
	after, err := os.ReadFile(filepath.Join(dir, "plugin.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(before), "\nkubernetes:kubernetes\n",
		"\nclusterset:github.com/clusterset-dns/clusterset\nkubernetes:kubernetes\n", 1)
	if string(after) != want || want == string(before) {
		t.Errorf("plugin.cfg = %s\nwant one more line, before kubernetes", after)
	}
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return strings.TrimSpace(string(out))
}

// TestCommands compares the targets that README.md names with the Makefile.
func TestCommands(t *testing.T) {
	var targets []string
	for _, m := range regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)").FindAllStringSubmatch(read(t, "README.md"), -1) {
		targets = append(targets, m[1])
	}
	for _, want := range []string{"demo", "test", "build"} {
		if !slices.Contains(targets, want) {
			t.Errorf("README.md does not name make %s", want)
		}
	}
	makefile := read(t, "Makefile")
	for _, target := range targets {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(makefile) {
			t.Errorf("README.md names make %s, which the Makefile does not have", target)
		}
	}
}

func TestDependencies(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal([]byte(goList(t, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	reasons := map[string]string{}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$").FindAllStringSubmatch(read(t, "docs/dependencies.md"), -1) {
		documented = append(documented, m[1])
		reasons[m[2]] = m[1]
	}
	equalSets(t, "dependency", documented, direct)
	if len(reasons) != len(documented) {
		t.Errorf("docs/dependencies.md has %d reasons for %d modules: want one each, %q", len(reasons), len(documented),
			slices.Sorted(maps.Keys(reasons)))
	}
}

// TestKubeadm compares corefile.example, and the Corefile like it in README.md, with that of kubeadm (the file in
// testdata is from cmd/kubeadm/app/phases/addons/dns of Kubernetes 1.36): whoever replaces the one by the other loses
// nothing.
func TestKubeadm(t *testing.T) {
	lines := func(text string) [][]string {
		blocks, err := caddyfile.Parse("Corefile", strings.NewReader(text), nil)
		if err != nil || len(blocks) != 1 {
			t.Fatalf("%d server blocks, %v, want 1", len(blocks), err)
		}
		var lines [][]string
		for _, tokens := range blocks[0].Tokens {
			directive, line := tokens[0].Text, -1
			for _, token := range tokens {
				if token.Line != line {
					lines, line = append(lines, []string{directive}), token.Line
				}
				if text := token.Text; text != "{" && text != "}" {
					lines[len(lines)-1] = append(lines[len(lines)-1], text)
				}
			}
		}
		return lines
	}
	theirs := lines(read(t, "test/suites/docs/testdata/kubeadm.Corefile"))
	if len(theirs) < 15 {
		t.Fatalf("%d lines of kubeadm: %q", len(theirs), theirs)
	}
	for name, text := range map[string]string{
		"corefile.example": read(t, "corefile.example"), readme: blocks(section(t, readme, "Examples"), "corefile")[0],
	} {
		ours := lines(text)
		for _, want := range theirs {
			if !slices.ContainsFunc(ours, func(line []string) bool {
				// cache has one more zone.
				return slices.Equal(line, want) || want[0] == "cache" && len(line) == len(want)+1 &&
					slices.Equal(line[:len(want)], want)
			}) {
				t.Errorf("%s has no line %q", name, want)
			}
		}
	}
}

// TestDockerfile checks the parts that need no build. TestImage builds and runs the file.
func TestDockerfile(t *testing.T) {
	f := parseDockerfile(t)
	version := strings.Split(goList(t, "list", "-m", "-f", "{{.GoVersion}}"), ".")
	if want := "--platform=$BUILDPLATFORM golang:" + version[0] + "." + version[1] + " AS build"; f.from[0] != want {
		t.Errorf("first stage FROM %s, want %s as go.mod has it", f.from[0], want)
	}
	if len(f.from) != 2 || f.from[1] != "scratch" {
		t.Errorf("stages FROM %q, want two, the last from scratch", f.from)
	}
	if !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(f.one(t, "USER")) {
		t.Errorf("USER %s, want numbers that are not root's", f.one(t, "USER"))
	}
	if got := f.one(t, "EXPOSE"); got != "1053 1053/udp" {
		t.Errorf("EXPOSE %s, want 1053 for TCP and UDP", got)
	}
	if !strings.Contains(read(t, "corefile.example"), "\n.:1053 {") {
		t.Error("corefile.example does not listen on the port that the image exposes")
	}
	// As the Makefile builds it, but for the version, which comes from outside there.
	makefile := read(t, "Makefile")
	for _, flag := range []string{"CGO_ENABLED=0", "-trimpath", "-buildvcs=false", "-s -w", "-X main.version="} {
		if !strings.Contains(f.build, flag) || !strings.Contains(makefile, flag) {
			t.Errorf("build flag %s: want it in Dockerfile and Makefile", flag)
		}
	}
}

// A dockerfile is what tests need of one.
type dockerfile struct {
	from  []string
	build string              // the command that runs go build
	final map[string][]string // arguments in the last stage, by instruction
}

func (f dockerfile) one(t *testing.T, instruction string) string {
	t.Helper()
	if len(f.final[instruction]) != 1 {
		t.Fatalf("Dockerfile: want one %s in the last stage, have %q", instruction, f.final[instruction])
	}
	return f.final[instruction][0]
}

func parseDockerfile(t *testing.T) dockerfile {
	t.Helper()
	var f dockerfile
	for line := range strings.Lines(read(t, "Dockerfile")) {
		instruction, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case instruction == "" || instruction == "#":
		case instruction == "FROM":
			f.from = append(f.from, args)
			f.final = map[string][]string{}
		case f.from == nil:
			t.Fatalf("Dockerfile: %s before FROM", instruction)
		default:
			f.final[instruction] = append(f.final[instruction], args)
			if instruction == "RUN" && strings.Contains(args, " go build ") {
				f.build = args
			}
		}
	}
	if f.build == "" {
		t.Fatal("Dockerfile: want a RUN line with go build")
	}
	return f
}

// metricNames are those of our metrics in a text that prometheus serves.
func metricNames(text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (coredns_clusterset_\S+) `).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// metricLabels are the labels of our metrics, by name.
func metricLabels(text string) map[string][]string {
	labels := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^(coredns_clusterset_\w+)(?:\{(.*)\})? `).FindAllStringSubmatch(text, -1) {
		labels[m[1]] = nil
		for _, l := range regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`).FindAllStringSubmatch(m[2], -1) {
			labels[m[1]] = append(labels[m[1]], l[1])
		}
	}
	return labels
}

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// testMain stops what tests started.
func testMain(m *testing.M) (code int, err error) {
	defer func() {
		if api != nil {
			err = api.Stop()
		}
	}()
	return m.Run(), nil
}
