package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/test/harness/gobuild"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// BinEnv names the environment variable with a folder of ready-made binaries: etcd and kube-apiserver, and
// kube-controller-manager and kube-proxy for the tests that need them; in its folders oldest and newest the kube-proxy
// of those versions, in etcdutl that program. With it the harness builds no program.
const BinEnv = "CLUSTERSET_TEST_BIN"

// assetsEnv names the variable in which setup-envtest has the folder of etcd and kube-apiserver. They are used
// instead of building both; other programs are built all the same.
const assetsEnv = "KUBEBUILDER_ASSETS"

// Paths are the absolute file names of the two programs of a control plane.
type Paths struct {
	Etcd      string
	APIServer string
}

// FurtherPaths are the absolute file names of two programs of a cluster that few tests need.
type FurtherPaths struct {
	ControllerManager string
	Proxy             string
}

// module is the path of the product's module; the programs are pinned by others in the folder below it.
const (
	module       = "github.com/clusterset-dns/clusterset"
	binaryModule = "test/harness/kubernetes"
)

// A program is one main package that is built here.
type program struct{ file, pkg, ldflags string }

// A set is programs that are built together, into a folder of their own: a test waits only for the sets that it needs.
type set struct {
	programs []program
	takes    string // how long a first build takes, in words
}

// Binaries returns the kube-apiserver and etcd that test/harness/kubernetes pins, and builds them from Go modules if
// the user's cache folder does not have them yet; that takes a few minutes on a small machine. It writes to progress
// what is built, every ten seconds how far it is, and what comes next.
//
// Any number of processes may call it at once: one builds, the others wait. The working directory must be inside the
// repository.
func Binaries(ctx context.Context, progress io.Writer) (Paths, error) {
	dir, err := folder(ctx, ".", recipe.controlPlane, progress)
	if err != nil {
		return Paths{}, err
	}
	return Paths{Etcd: filepath.Join(dir, etcd), APIServer: filepath.Join(dir, apiServer)}, nil
}

// FurtherBinaries is like [Binaries] for kube-controller-manager and kube-proxy. In make test, which compiles nothing
// inside of a test, it returns an error.
func FurtherBinaries(ctx context.Context, progress io.Writer) (FurtherPaths, error) {
	dir, err := forAll(ctx, ".", recipe.further, progress)
	if err != nil {
		return FurtherPaths{}, err
	}
	return FurtherPaths{ControllerManager: filepath.Join(dir, controllerManager), Proxy: filepath.Join(dir, proxy)}, nil
}

// EtcdUtl is like [FurtherBinaries] for the etcdutl that a folder of test/harness/kubernetes pins.
func EtcdUtl(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := forAll(ctx, etcdUtl, recipe.etcdUtl, progress)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, etcdUtl), nil
}

// forAll is [folder] for programs that make test does without.
func forAll(ctx context.Context, pins string, of func(recipe) set, progress io.Writer) (string, error) {
	if tier.Size(0, 1) == 0 {
		return "", fmt.Errorf("%s: built for make test-all: begin the test with tier.All(t)", of(recipe{}))
	}
	return folder(ctx, pins, of, progress)
}

// KubeProxy is like [Binaries] for a kube-proxy of another version, which a folder of test/harness/kubernetes pins:
// "oldest" or "newest".
func KubeProxy(ctx context.Context, version string, progress io.Writer) (string, error) {
	dir, err := folder(ctx, version, recipe.proxyAlone, progress)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, proxy), nil
}

// The file names of the programs.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	proxy             = "kube-proxy"
	etcdUtl           = "etcdutl"
)

// folder returns the absolute path of a folder that has all programs of a set, of the versions that the module in this
// folder of test/harness/kubernetes pins.
func folder(ctx context.Context, pins string, of func(recipe) set, progress io.Writer) (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		return readyMade(BinEnv, filepath.Join(dir, pins), of(recipe{}))
	}
	if dir := os.Getenv(assetsEnv); dir != "" && pins == "." && of(recipe{}).has(apiServer) {
		return readyMade(assetsEnv, dir, of(recipe{}))
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	src := filepath.Join(root, filepath.FromSlash(binaryModule), pins)
	r, err := readRecipe(src)
	if err != nil {
		return "", err
	}
	s := of(r)
	dir, err := cacheDir(src, r.of+"-"+r.version, s)
	if err != nil {
		return "", err
	}
	return dir, ensure(ctx, src, dir, s, progress)
}

// ensure builds the programs into dir, unless they are there. If another process builds them, it waits for that.
func ensure(ctx context.Context, src, dir string, s set, progress io.Writer) error {
	if s.missing(dir) == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("control plane binaries: %w", err)
	}
	unlock, err := gobuild.Lock(ctx, dir+".lock", progress)
	if err != nil {
		return fmt.Errorf("control plane binaries: %w", err)
	}
	defer unlock()
	if s.missing(dir) == nil {
		return nil
	}
	if err := build(ctx, src, dir, s, progress); err != nil {
		return err
	}
	return s.missing(dir)
}

// readyMade returns the folder that the environment variable env names.
func readyMade(env, dir string, s set) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", env, err)
	}
	if err := s.missing(dir); err != nil {
		return "", fmt.Errorf("%s: want a folder with %s: %w", env, s, err)
	}
	return dir, nil
}

// missing returns an error unless dir has all programs of the set.
func (s set) missing(dir string) error {
	for _, p := range s.programs {
		if _, err := os.Stat(filepath.Join(dir, p.file)); err != nil {
			return err
		}
	}
	return nil
}

func (s set) has(file string) bool {
	return slices.ContainsFunc(s.programs, func(p program) bool { return p.file == file })
}

func (s set) String() string {
	var files []string
	for _, p := range s.programs {
		files = append(files, p.file)
	}
	return strings.Join(files, " and ")
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
	moduleLine  = regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(module) + `$`)
	versionLine = regexp.MustCompile(`(?m)^\s*(?:k8s\.io|go\.etcd\.io/etcd)/(kubernetes|etcdutl)(?:/v3)? (v(\d+)\.(\d+)\.\S+)`)
)

// A recipe describes one build.
type recipe struct {
	of      string // "kubernetes" or "etcdutl"
	version string
	stamp   string // linker flags that put the version into a program
}

func (r recipe) controlPlane() set {
	return set{takes: "about 4 minutes on 2 cores", programs: []program{
		{file: etcd, pkg: "go.etcd.io/etcd/server/v3", ldflags: "-s -w"}, r.kubernetes(apiServer),
	}}
}

func (r recipe) further() set {
	return set{takes: "about 2 minutes on 2 cores, after those of the control plane", programs: []program{
		r.kubernetes(controllerManager), r.kubernetes(proxy),
	}}
}

func (r recipe) proxyAlone() set {
	return set{takes: "1 to 3 minutes on 2 cores", programs: []program{r.kubernetes(proxy)}}
}

func (r recipe) etcdUtl() set {
	return set{takes: "less than a minute, after those of the control plane", programs: []program{
		{file: etcdUtl, pkg: "go.etcd.io/etcd/etcdutl/v3", ldflags: "-s -w"},
	}}
}

func (r recipe) kubernetes(name string) program {
	return program{file: name, pkg: "k8s.io/kubernetes/cmd/" + name, ldflags: r.stamp}
}

// readRecipe makes a recipe of the version that the module in src pins.
func readRecipe(src string) (recipe, error) {
	mod, err := os.ReadFile(filepath.Join(src, "go.mod"))
	if err != nil {
		return recipe{}, fmt.Errorf("control plane binaries: %w", err)
	}
	m := versionLine.FindStringSubmatch(string(mod))
	if m == nil {
		return recipe{}, fmt.Errorf("%s/go.mod: want a requirement of k8s.io/kubernetes or go.etcd.io/etcd/etcdutl/v3", src)
	}
	// Clients refuse the version that a build without these flags reports.
	const v = "-X k8s.io/component-base/version."
	return recipe{of: m[1], version: m[2], stamp: strings.Join([]string{
		"-s -w", v + "gitVersion=" + m[2], v + "gitMajor=" + m[3], v + "gitMinor=" + m[4], v + "gitTreeState=clean",
	}, " ")}, nil
}

// cacheDir names the folder after everything that the programs in it are made from.
func cacheDir(src, name string, s set) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("control plane binaries: %w", err)
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, s.programs)
	for _, file := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(src, file))
		if err != nil {
			return "", fmt.Errorf("control plane binaries: %w", err)
		}
		h.Write(b)
	}
	return filepath.Join(user, "clusterset", name+"-"+hex.EncodeToString(h.Sum(nil))[:12]), nil
}

// build makes the programs in a folder beside dir and renames it, so that a killed build leaves no half of one. The
// caller holds the lock.
func build(ctx context.Context, src, dir string, s set, progress io.Writer) error {
	tmp := dir + ".building"
	defer os.RemoveAll(tmp)
	// A build that was killed may have left the one; the other was found to lack a program.
	if err := errors.Join(os.RemoveAll(tmp), os.RemoveAll(dir), os.Mkdir(tmp, 0o755)); err != nil {
		return fmt.Errorf("control plane binaries: %w", err)
	}
	fmt.Fprintf(progress, "%s: compiled once, into %s; %s\n", s, dir, s.takes)
	for i, p := range s.programs {
		c := gobuild.Command{
			Dir: src, Output: filepath.Join(tmp, p.file), Ldflags: p.ldflags, Packages: []string{p.pkg}, What: p.file,
			Next: set{programs: s.programs[i+1:]}.String(),
		}
		if err := gobuild.Build(ctx, c, progress); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("control plane binaries: %w", err)
	}
	return nil
}
