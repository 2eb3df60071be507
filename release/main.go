// Command release builds what a release consists of, from what is committed:
//
//	release -version v1.2.3 [-out dist]                     builds HEAD twice, and fails if the two results differ
//	release -version v1.2.3 -out DIR -source DIR -time T    builds the source once; T in seconds since 1970
//
// docs/releasing.md lists the files. The second of the two builds has another folder, umask, time zone and cache of compiled packages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"
)

// module is the path of the product, and the address of its repository.
const module = "github.com/clusterset-dns/clusterset"

// platforms are those of the programs; the image has those of linux.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// programs are those of each platform.
var programs = []string{"clusterset", "coredns"}

// A release is what one build works with.
type release struct {
	source  string // folder with the committed files
	out     string // folder for the results
	version string // with v, such as v1.2.3
	time    time.Time
	image   string // registry and name of the image, without tag
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	var r release
	flags.StringVar(&r.version, "version", "", "version, such as v1.2.3")
	flags.StringVar(&r.out, "out", "dist", "folder for the results; what it has is removed")
	flags.StringVar(&r.source, "source", "", "folder to build once; by default HEAD is built twice")
	flags.StringVar(&r.image, "image", "ghcr.io/clusterset-dns/clusterset", "where the image will be published")
	seconds := flags.Int64("time", 0, "time of the commit, in seconds since 1970, for -source")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := checkVersion(r.version); err != nil {
		return err
	}
	if r.source == "" {
		return r.twice(ctx)
	}
	r.time = time.Unix(*seconds, 0).UTC()
	return r.build(ctx)
}

// checkVersion: the version names a tag, an image and, without v, a chart.
func checkVersion(v string) error {
	if !semver.IsValid(v) || semver.Canonical(v) != v {
		return fmt.Errorf("version %q: want one such as v1.2.3 or v1.2.3-rc.1, without +", v)
	}
	return nil
}

// build builds everything once.
func (r release) build(ctx context.Context) error {
	d, err := readDockerfile(filepath.Join(r.source, "Dockerfile"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "clusterset-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	built := make(map[platform]string) // folders
	for i, p := range platforms {
		done := step("%s (%d of %d)", p, i+1, len(platforms))
		built[p] = filepath.Join(work, p.os+"-"+p.arch)
		if err := d.compile(ctx, r, p, built[p]); err != nil {
			return err
		}
		if err := r.archives(p, built[p]); err != nil {
			return err
		}
		done()
	}
	done := step("image, chart, krew manifest, SBOM")
	digest, err := r.writeImage(d, built)
	if err != nil {
		return err
	}
	err = errors.Join(r.writeChart(digest), r.writeKrew(), r.writeSBOM(built))
	if err != nil {
		return err
	}
	done()
	return r.writeSums()
}

// step prints what begins; the function that it returns prints how long it took.
func step(format string, args ...any) (done func()) {
	what, start := fmt.Sprintf(format, args...), time.Now()
	fmt.Printf("building %s\n", what)
	return func() { fmt.Printf("building %s: %s\n", what, time.Since(start).Round(time.Second)) }
}

// name is the file name of a result: PROGRAM_VERSION_OS_ARCH.tar.gz and so on.
func (r release) name(parts ...string) string {
	return filepath.Join(r.out, strings.Join(parts, "_"))
}
