package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// BinEnv names the environment variable with a folder that holds ready-made etcd and kube-apiserver binaries. If it is
// set, [Binaries] builds nothing.
const BinEnv = "CLUSTERSET_TEST_BIN"

// Paths are the absolute file names of the two programs of a control plane.
type Paths struct {
	Etcd      string
	APIServer string
}

// module is the path of the product's module; the programs are pinned by another one in the folder below it.
const (
	module       = "github.com/clusterset-dns/clusterset"
	binaryModule = "test/kubernetes"
)

// A program is one main package that Binaries builds.
type program struct{ file, pkg, ldflags string }

// Binaries returns the kube-apiserver and etcd that test/kubernetes pins, and builds them from Go modules if the user's
// cache folder does not have them yet; that takes a few minutes on a small machine. What it does, and every ten seconds
// for how long, goes to progress.
//
// Any number of processes may call it at once: one builds, the others wait. The working directory must be inside the
// repository.
func Binaries(ctx context.Context, progress io.Writer) (Paths, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		return readyMade(dir)
	}
	root, err := repository()
	if err != nil {
		return Paths{}, err
	}
	src := filepath.Join(root, filepath.FromSlash(binaryModule))
	version, programs, err := recipe(src)
	if err != nil {
		return Paths{}, err
	}
	dir, err := cacheDir(src, version, programs)
	if err != nil {
		return Paths{}, err
	}
	return ensure(ctx, src, dir, programs, progress)
}

// ensure builds the programs into dir, unless they are there or another process is at it.
func ensure(ctx context.Context, src, dir string, programs []program, progress io.Writer) (Paths, error) {
	if paths, err := present(dir); err == nil {
		return paths, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Paths{}, fmt.Errorf("control plane binaries: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock", progress)
	if err != nil {
		return Paths{}, fmt.Errorf("control plane binaries: %w", err)
	}
	defer unlock()
	if paths, err := present(dir); err == nil {
		return paths, nil
	}
	if err := build(ctx, src, dir, programs, progress); err != nil {
		return Paths{}, err
	}
	return present(dir)
}

func readyMade(dir string) (Paths, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Paths{}, fmt.Errorf("%s: %w", BinEnv, err)
	}
	paths, err := present(dir)
	if err != nil {
		return Paths{}, fmt.Errorf("%s: want a folder with etcd and kube-apiserver: %w", BinEnv, err)
	}
	return paths, nil
}

func present(dir string) (Paths, error) {
	paths := Paths{Etcd: filepath.Join(dir, "etcd"), APIServer: filepath.Join(dir, "kube-apiserver")}
	for _, p := range []string{paths.Etcd, paths.APIServer} {
		if _, err := os.Stat(p); err != nil {
			return Paths{}, err
		}
	}
	return paths, nil
}

// repository returns the folder of the product's go.mod, at or above the working directory.
func repository() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("repository: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleLine.Match(mod) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("folder %q: want one inside the repository of %s", wd, module)
		}
	}
}

var (
	moduleLine     = regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(module) + `$`)
	kubernetesLine = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`)
)

// recipe returns the version of Kubernetes that the module in src pins, and what to build.
func recipe(src string) (string, []program, error) {
	mod, err := os.ReadFile(filepath.Join(src, "go.mod"))
	if err != nil {
		return "", nil, fmt.Errorf("control plane binaries: %w", err)
	}
	m := kubernetesLine.FindStringSubmatch(string(mod))
	if m == nil {
		return "", nil, fmt.Errorf("%s/go.mod: want a requirement of k8s.io/kubernetes", binaryModule)
	}
	// Clients refuse the version that a build without these flags reports.
	const v = "-X k8s.io/component-base/version."
	stamp := strings.Join([]string{
		"-s -w", v + "gitVersion=" + m[1], v + "gitMajor=" + m[2], v + "gitMinor=" + m[3], v + "gitTreeState=clean",
	}, " ")
	return m[1], []program{
		{file: "etcd", pkg: "go.etcd.io/etcd/server/v3", ldflags: "-s -w"},
		{file: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", ldflags: stamp},
	}, nil
}

// cacheDir names the folder after everything that the programs in it are made from.
func cacheDir(src, version string, programs []program) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("control plane binaries: %w", err)
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, programs)
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", fmt.Errorf("control plane binaries: %w", err)
		}
		h.Write(b)
	}
	return filepath.Join(user, "clusterset", "kubernetes-"+version+"-"+hex.EncodeToString(h.Sum(nil))[:12]), nil
}

// build makes the programs in a folder beside dir and renames it, so that a killed build leaves no half of one. The caller
// holds the lock.
func build(ctx context.Context, src, dir string, programs []program, progress io.Writer) error {
	tmp := dir + ".building"
	defer os.RemoveAll(tmp)
	// A build that was killed may have left the one; the other was found to lack a program.
	if err := errors.Join(os.RemoveAll(tmp), os.RemoveAll(dir), os.Mkdir(tmp, 0o755)); err != nil {
		return fmt.Errorf("control plane binaries: %w", err)
	}
	fmt.Fprintf(progress, "building kube-apiserver and etcd into %s (once; about 4 minutes on 2 cores)\n", dir)
	for _, p := range programs {
		if err := buildOne(ctx, src, tmp, p, progress); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("control plane binaries: %w", err)
	}
	return nil
}

func buildOne(ctx context.Context, src, tmp string, p program, progress io.Writer) error {
	done := report(progress, "building "+p.file)
	defer done()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", p.ldflags,
		"-o", filepath.Join(tmp, p.file), p.pkg)
	cmd.Dir = src
	// A workspace or a flag such as -race, meant for the product, must not reach this module.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.pkg, err, out)
	}
	return nil
}

// report writes at once, and then every ten seconds until the returned function is called, what goes on and for how
// long.
func report(w io.Writer, what string) func() {
	start, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	line := func(end string) {
		fmt.Fprintf(w, "%s: %d s%s\n", what, int(time.Since(start).Seconds()), end)
	}
	go func() {
		defer close(stopped)
		line("")
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				line("")
			case <-stop:
				line(", done")
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// lock takes the lock on file, which the kernel frees when its holder dies.
func lock(ctx context.Context, file string, progress io.Writer) (func(), error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	waiting := func() {}
	for first := true; ; first = false {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			waiting()
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			break
		}
		if first {
			waiting = report(progress, "waiting for another process that builds the control plane")
		}
		if err = pause(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	waiting()
	f.Close()
	return nil, fmt.Errorf("lock %s: %w", file, err)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
