package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// runEnv makes this program the command, which starts itself for each build.
const runEnv = "CLUSTERSET_TEST_RELEASE"

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A product is as small as can be released: one program of Go, and a chart.
type product struct {
	program []byte
	chart   fs.FS
}

func newProduct(t *testing.T) product {
	t.Helper()
	chart, err := filepath.Abs(filepath.Join("..", chartFolder))
	must(t, err)
	dir := t.TempDir()
	must(t, write(filepath.Join(dir, "go.mod"), []byte("module example.org/a\n")))
	must(t, write(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n")))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "program", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	must(t, err)
	return product{program, os.DirFS(chart)}
}

// commit makes a repository, with a command in the place of go build, and makes its folder the working directory.
func (p product) commit(t *testing.T, compiler string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, chartFolder), p.chart))
	for name, content := range map[string]string{
		"LICENSE": "license", "corefile.example": "corefile", "bin/clusterset": string(p.program), "bin/coredns": string(p.program),
		"Dockerfile": "FROM golang AS build\nRUN : go build ; " + compiler + "\nFROM scratch\nCOPY --from=build /out/coredns /coredns\nCOPY corefile.example /etc/coredns/Corefile\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755))
	}
	t.Chdir(dir)
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "a"}} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	t.Setenv(runEnv, "1")
}

// TestTwice builds releases of a small product: one that is the same each time, whatever is not committed, and one that is not.
func TestTwice(t *testing.T) {
	p := newProduct(t)
	p.commit(t, `cp -r bin/. /out/`)
	must(t, os.WriteFile("LICENSE", []byte("changed, and not committed"), 0o600))
	must(t, run(t.Context(), []string{"-version", "v1.2.3"}))
	all, err := sums("dist")
	must(t, err)
	listed, err := os.ReadFile("dist/" + sumsFile)
	must(t, err)
	for _, name := range []string{
		"clusterset_v1.2.3_linux_amd64.tar.gz", "coredns_v1.2.3_darwin_arm64.tar.gz", "clusterset-1.2.3.tgz", "krew.yaml", "clusterset_v1.2.3_sbom.cdx.json", "image/index.json",
	} {
		if !strings.Contains(string(listed), all[name]+"  "+name+"\n") || all[name] == "" {
			t.Errorf("%s has\n%s\nwant %s", sumsFile, listed, name)
		}
	}
	if _, err := layout.FromPath("dist/image"); err != nil {
		t.Error(err)
	}
	info, err := os.Stat("dist/krew.yaml")
	must(t, err)
	if info.Mode().Perm() != 0o644 {
		t.Errorf("mode of krew.yaml = %s, want that all may read it", info.Mode())
	}

	p.commit(t, `o=/out/; cp -r bin/. "$o"; pwd >>"$o"clusterset; umask >>"$o"coredns`)
	err = run(t.Context(), []string{"-version", "v1.2.3"})
	for _, name := range []string{"clusterset_v1.2.3_linux_amd64.tar.gz: sha256", "coredns_v1.2.3_linux_amd64.tar.gz: sha256"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("programs that depend on the folder and on the umask: %v, want an error that names %s", err, name)
		}
	}
	if _, err := os.Stat("dist"); err == nil {
		t.Error("there is a folder dist, want none after an error")
	}
}
