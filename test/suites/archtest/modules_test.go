package archtest

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

const corednsModule = "github.com/coredns/coredns"

// goCommand returns what the go command prints in the root of this module.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return strings.TrimSpace(string(out))
}

// A goMod is a go.mod, as far as the tests need it.
type goMod struct {
	Require          []struct{ Path, Version string }
	Replace, Exclude []any
}

func readGoMod(t *testing.T, path string) (m goMod) {
	t.Helper()
	if err := json.Unmarshal([]byte(goCommand(t, "mod", "edit", "-json", path)), &m); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return m
}

// TestAddsNoModule: a CoreDNS with the plugin is compiled from the modules of a CoreDNS without it, in the same
// versions, and from this one (docs/dependencies.md).
func TestAddsNoModule(t *testing.T) {
	theirs := map[string]string{corednsModule: goCommand(t, "list", "-m", "-f", "{{.Version}}", corednsModule)}
	for _, r := range readGoMod(t, goCommand(t, "list", "-m", "-f", "{{.GoMod}}", corednsModule)).Require {
		theirs[r.Path] = r.Version
	}
	compiled := 0
	for line := range strings.Lines(goCommand(t, "list", "-deps", "-pgo=off", "-f",
		"{{with .Module}}{{.Path}} {{.Version}}{{end}}", ".")) {
		path, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !ok || path == module:
			continue
		case theirs[path] == "":
			t.Errorf("the plugin is compiled from %s, which CoreDNS does not require: want no such module", path)
		case theirs[path] != version:
			t.Errorf("the plugin needs %s %s, and CoreDNS %s: want the version of CoreDNS", path, version, theirs[path])
		}
		compiled++
	}
	if compiled == 0 {
		t.Error("no package of another module was compiled, want those of CoreDNS")
	}
}

// TestGoInstall: "go install .../cmd/clusterset@latest" rejects a module whose go.mod replaces or excludes another.
func TestGoInstall(t *testing.T) {
	if m := readGoMod(t, "go.mod"); len(m.Replace) > 0 || len(m.Exclude) > 0 {
		t.Errorf("go.mod replaces %v and excludes %v, want neither", m.Replace, m.Exclude)
	}
}
