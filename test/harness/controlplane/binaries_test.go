package controlplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/discovery"

	"github.com/clusterset-dns/clusterset/test/harness/gobuild"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

func TestVersion(t *testing.T) {
	tier.All(t)
	root, err := repository()
	must(t, err)
	r, err := readRecipe(filepath.Join(root, binaryModule))
	must(t, err)
	want := r.version
	disco, err := discovery.NewDiscoveryClientForConfig(shared(t).Config())
	must(t, err)
	got, err := disco.ServerVersion()
	must(t, err)
	if got.GitVersion != want || want != "v"+got.Major+"."+got.Minor+want[strings.LastIndex(want, "."):] {
		t.Errorf("the server says it is %s (%s.%s), want %s", got.GitVersion, got.Major, got.Minor, want)
	}
}

func TestReadyMade(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(BinEnv, dir)
	if _, err := Binaries(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), BinEnv) {
		t.Errorf("Binaries with an empty %s = %v, want an error that names it", BinEnv, err)
	}
	want := Paths{Etcd: filepath.Join(dir, "etcd"), APIServer: filepath.Join(dir, "kube-apiserver")}
	for _, name := range []string{want.Etcd, want.APIServer} {
		must(t, os.WriteFile(name, nil, 0o700))
	}
	if got, err := Binaries(t.Context(), io.Discard); err != nil || got != want {
		t.Errorf("Binaries = %v, %v, want %v", got, err, want)
	}
	if _, err := FurtherBinaries(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "kube-proxy") {
		t.Errorf("FurtherBinaries with a %s without them = %v, want an error that names them", BinEnv, err)
	}
	t.Setenv(BinEnv, "")
	t.Setenv(assetsEnv, dir)
	if got, err := Binaries(t.Context(), io.Discard); err != nil || got != want {
		t.Errorf("Binaries with %s = %v, %v, want %v", assetsEnv, got, err, want)
	}
	t.Setenv(BinEnv, dir)
	must(t, os.WriteFile(filepath.Join(dir, "kube-proxy"), nil, 0o700))
	if _, err := KubeProxy(t.Context(), "oldest", io.Discard); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(dir, "oldest")) {
		t.Errorf("KubeProxy with a %s that has another version = %v, want an error with the folder of this one", BinEnv, err)
	}
}

// Each kube-proxy is of the version that its folder's name promises.
func TestKubeProxies(t *testing.T) {
	root, err := repository()
	must(t, err)
	minor := func(folder string) int {
		r, err := readRecipe(filepath.Join(root, binaryModule, folder))
		must(t, err)
		n, err := strconv.Atoi(strings.Split(r.version, ".")[1])
		must(t, err)
		return n
	}
	if oldest, own, newest := minor("oldest"), minor("."), minor("newest"); oldest >= own || own > newest {
		t.Errorf("minor versions %d, %d, %d: want them in order", oldest, own, newest)
	}
}

func TestRepositoryIsFoundOnlyFromWithin(t *testing.T) {
	t.Chdir(t.TempDir())
	if dir, err := repository(); err == nil {
		t.Errorf("repository() = %s outside of it, want an error", dir)
	}
}

// smallModule stands in for Kubernetes: how programs are built does not depend on how long it takes.
func smallModule(t *testing.T, source string) (src string, programs set) {
	t.Helper()
	src = t.TempDir()
	must(t, os.WriteFile(filepath.Join(src, "go.mod"), []byte("module example.org/small\n\ngo 1.26\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(src, "main.go"), []byte(source), 0o600))
	const stamp = "-X main.version=v1.2.3"
	return src, set{programs: []program{{file: etcd, pkg: ".", ldflags: stamp},
		{file: apiServer, pkg: ".", ldflags: stamp}}}
}

func TestEnsureBuildsOnce(t *testing.T) {
	tier.All(t)
	src, programs := smallModule(t, "package main\n\nvar version string\n\nfunc main() { print(version) }\n")
	dir := filepath.Join(t.TempDir(), "cache", "bin")
	// What an earlier build left that was killed half way.
	must(t, os.MkdirAll(dir+".building", 0o700))
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "etcd"), []byte("half"), 0o600))

	var progress lockedBuffer
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := ensure(t.Context(), src, dir, programs, &progress); err != nil {
				t.Error(err)
				return
			}
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, etcd)).CombinedOutput()
			if err != nil || string(out) != "v1.2.3" {
				t.Errorf("the program says %q, %v, want v1.2.3", out, err)
			}
		})
	}
	all.Wait()
	for _, line := range []string{"building etcd\n", "building kube-apiserver\n"} {
		if n := strings.Count(progress.String(), line); n != 1 {
			t.Errorf("%d lines %q, want 1, in:\n%s", n, line, &progress)
		}
	}
	wantNames(t, filepath.Dir(dir), "bin", "bin.lock")
}

func TestEnsureReportsErrorsOfTheCompiler(t *testing.T) {
	tier.All(t)
	src, programs := smallModule(t, "package main\n\nfunc main() { undefinedName() }\n")
	dir := filepath.Join(t.TempDir(), "bin")
	err := ensure(t.Context(), src, dir, programs, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefinedName") {
		t.Errorf("ensure = %v, want the error of the compiler", err)
	}
	wantNames(t, filepath.Dir(dir), "bin.lock")
}

func TestEnsureWaitsOnlyAsLongAsItsContext(t *testing.T) {
	src, programs := smallModule(t, "package main\n\nfunc main() {}\n")
	dir := filepath.Join(t.TempDir(), "bin")
	unlock, err := gobuild.Lock(t.Context(), dir+".lock", io.Discard)
	must(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	waiting := writerFunc(func(p []byte) {
		if bytes.HasPrefix(p, []byte("waiting for another process")) {
			cancel()
		}
	})
	if err := ensure(ctx, src, dir, programs, waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("ensure while another builds = %v, want %v", err, context.Canceled)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}
