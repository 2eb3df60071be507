package docs

import (
	"archive/zip"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

const installed = "github.com/clusterset-dns/clusterset/cmd/clusterset"

// TestGoInstall installs the command line from a module proxy that has this checkout as a release, as
// docs/controller.md says. It would fail with a replace directive in go.mod, with a name that a module may not have, or
// with a file that is needed and that belongs to another module.
func TestGoInstall(t *testing.T) {
	tier.All(t)
	const line = "go install " + installed + "@latest"
	if !strings.Contains(read(t, controllerDoc), line) {
		t.Fatalf("%s: want %q", controllerDoc, line)
	}
	module, _, _ := strings.Cut(installed, "/cmd/")
	files := moduleFiles(t)
	// A version of this run alone: the module cache keeps what it has of one.
	version := "v0.0.1-t" + strings.ToLower(rand.Text())
	proxy := filepath.Join(t.TempDir(), "proxy")
	serve(t, proxy, module, version, files)

	var env struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal([]byte(goList(t, "env", "-json", "GOMODCACHE", "GOPROXY")), &env); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all, _ := filepath.Glob(filepath.Join(env.GOMODCACHE, "cache", "download", filepath.FromSlash(module), "@v",
			version+"*"))
		for _, name := range append(all, filepath.Join(env.GOMODCACHE, filepath.FromSlash(module)+"@"+version)) {
			if err := os.RemoveAll(name); err != nil {
				t.Error(err)
			}
		}
	})
	bin := t.TempDir()
	// The flags are those of test/harness/gobuild, so that compiled packages count. Only the order of the flags is
	// not that of the document.
	words := strings.Fields(line)
	cmd := exec.CommandContext(t.Context(), words[0], slices.Concat(words[1:2],
		[]string{"-trimpath", "-pgo=off", "-buildvcs=false", "-ldflags=-s -w"}, words[2:])...)
	cmd.Dir = bin // no module's
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOBIN="+bin, "GOFLAGS=-mod=mod -modcacherw",
		"GOTOOLCHAIN=local",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+env.GOPROXY, "GONOPROXY=none", "GOPRIVATE=", "GOSUMDB=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "clusterset"), "version").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != version {
		t.Errorf("clusterset version: error %v, printed %q, want %q", err, got, version)
	}
}

// moduleFiles returns the files of the module, without those of modules below it.
func moduleFiles(t *testing.T) (all []string) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Fatalf("the files of a checkout are what git says: %v", err)
	}
	listed := strings.Split(strings.TrimSpace(string(out)), "\n")
	var others []string
	for _, name := range listed {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			others = append(others, path.Dir(name)+"/")
		}
	}
	for _, name := range listed {
		inOther := slices.ContainsFunc(others, func(dir string) bool { return strings.HasPrefix(name, dir) })
		if i, err := os.Lstat(filepath.Join(root, name)); err == nil && i.Mode().IsRegular() && !inOther {
			all = append(all, name)
		}
	}
	return all
}

// serve writes a folder that is a module proxy with one version of one module.
func serve(t *testing.T, proxy, module, version string, files []string) {
	t.Helper()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": version + "\n", version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version), version + ".mod": read(t, "go.mod"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for _, name := range files {
		w, err := z.Create(module + "@" + version + "/" + name)
		if err == nil {
			_, err = io.WriteString(w, read(t, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}
