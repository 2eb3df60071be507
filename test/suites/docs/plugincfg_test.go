//go:build plugincfg

package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

const (
	ourModule    = "github.com/clusterset-dns/clusterset"
	corednsTags  = "-tags=grpcnotrace" // as CoreDNS's Makefile has it
	dependencies = "docs/dependencies.md"
)

// A checkout is a copy of the source of CoreDNS, as it is released.
type checkout struct {
	t   *testing.T
	dir string
}

// newCheckout copies the module from the module cache, where it cannot be written.
func newCheckout(t *testing.T) checkout {
	t.Helper()
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(goList(t, "mod", "download", "-json", "github.com/coredns/coredns")),
		&module); err != nil {
		t.Fatal(err)
	}
	c := checkout{t, t.TempDir()}
	c.run("cp", "-R", module.Dir+"/.", c.dir)
	c.run("chmod", "-R", "u+w", c.dir)
	return c
}

// run runs a command in the folder, and returns what it prints.
func (c checkout) run(name string, args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var out, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("%s: %v\n%s%s", cmd, err, out.String(), failure.String())
	}
	return out.String()
}

// requirements are those of go.mod, with versions.
func (c checkout) requirements() (all []string) {
	c.t.Helper()
	var m struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(c.run("go", "mod", "edit", "-json")), &m); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range m.Require {
		all = append(all, r.Path+" "+r.Version)
	}
	return all
}

// compiled are the modules that the program is made of, with versions.
func (c checkout) compiled() []string {
	c.t.Helper()
	lines := strings.Split(c.run("go", "list", "-deps", corednsTags, "-f",
		"{{with .Module}}{{.Path}} {{.Version}}{{end}}", "."), "\n")
	slices.Sort(lines)
	return slices.Compact(lines)
}

// graph are the modules of which go reads the go.mod.
func (c checkout) graph() []string {
	c.t.Helper()
	return strings.Split(strings.TrimSpace(c.run("go", "list", "-m", "-f", "{{.Path}}", "all")), "\n")
}

// TestWholeCoreDNS does with the source of CoreDNS what README.md says, but takes this checkout, and builds and starts
// the result.
func TestWholeCoreDNS(t *testing.T) {
	before, c := newCheckout(t), newCheckout(t)
	path, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range readmeCommands(t) {
		switch line {
		case "go get " + ourModule + "@latest":
			c.run("go", "mod", "edit", "-require="+ourModule+"@v0.0.0", "-replace="+ourModule+"="+path)
			c.run("go", "get")
		case "make": // it runs go generate and go get once more, with a toolchain of its own
			c.run("go", "build", "-trimpath", corednsTags, "-ldflags=-s -w", "-o", "coredns", ".")
		default:
			c.run("sh", "-c", line)
		}
	}
	adds(t, "the go.mod of CoreDNS", c.requirements(), before.requirements(), []string{ourModule + " v0.0.0"})
	compiled := documentedModules(t, "compiled")
	for i := range compiled {
		compiled[i] += " v0.0.0"
	}
	adds(t, "what a CoreDNS is compiled from", c.compiled(), before.compiled(), compiled)
	adds(t, "the module graph of CoreDNS", c.graph(), before.graph(),
		slices.Concat(documentedModules(t, "compiled"), documentedModules(t, "in the graph alone")))
	c.serves()
}

// readmeCommands are those of the section on the installation that build a CoreDNS.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	for _, block := range blocks(section(t, readme, "Description"), "sh") {
		if strings.HasPrefix(block, "sed ") {
			return strings.Split(strings.TrimSpace(block), "\n")
		}
	}
	t.Fatal("README.md: want the commands that build a CoreDNS with the plugin")
	return nil
}

// documentedModules are those of a list in docs/dependencies.md.
func documentedModules(t *testing.T, list string) (all []string) {
	t.Helper()
	text := section(t, dependencies, "What the plugin adds to a CoreDNS")
	m := regexp.MustCompile(`(?m)^\* ` + regexp.QuoteMeta(list) + ": (.*(?:\n  .*)*)").FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s: want a list %q", dependencies, list)
	}
	for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[1], -1) {
		all = append(all, name[1])
	}
	return all
}

// adds compares what after has and before has not with a list. Nothing may be gone: another version is two differences.
func adds(t *testing.T, what string, after, before, want []string) {
	t.Helper()
	without := func(all, some []string) (left []string) {
		for _, one := range all {
			if !slices.Contains(some, one) {
				left = append(left, one)
			}
		}
		return left
	}
	if gone := without(before, after); len(gone) > 0 {
		t.Errorf("%s: %q is gone, or another version: want it as it was", what, gone)
	}
	equalSets(t, "module that the plugin adds to "+what, want, without(after, before))
}

// serves starts the program, which has the plugin and answers.
func (c checkout) serves() {
	c.t.Helper()
	bin := filepath.Join(c.dir, "coredns")
	if plugins := strings.Fields(c.run(bin, "-plugins")); !slices.Contains(plugins, "clusterset") ||
		!slices.Contains(plugins, "kubernetes") {
		c.t.Errorf("plugins = %q, want clusterset and those of CoreDNS", plugins)
	}
	local := localize(c.t, "clusterset.local {\n    clusterset {\n        manifests examples\n    }\n}", "")
	file := filepath.Join(local.dir, "Corefile")
	if err := os.WriteFile(file, []byte(local.text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	s, err := server.Start(subprocess.Command{Bin: bin, Args: []string{"-conf", file}, Dir: local.dir})
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			c.t.Error(err)
		}
	}()
	awaitAnswer(c.t, s, local.dns, web, "10.200.0.10")
}
