// Command bench measures our plugin beside the in-tree plugin kubernetes with its option multicluster and beside the floor
// (package test/floor), over real API servers, on Linux. It writes one report, as Markdown to the standard output and as
// Markdown and JSON to a folder; progress goes to the standard error.
//
// Without a section it runs rows, memory, fresh and cross, which takes some minutes:
//
//	-rows    CPU time of the server per query, by kind of question, under dnsperf
//	-memory  live heap and resident memory with 280,000 endpoints
//	-fresh   time from a change to the first answer that shows it
//	-cross   time from a change in one cluster to the first answer in another, through controllers and a broker
//	-growth  CPU time per query with 1,000 and with 1,000,000 endpoints
//	-import  time in which a new member imports 5,000 services with 20,000 slices
//
// The exit status is 1 if an answer is wrong or missing, or if anything else fails. A missed target is marked in the
// report and leaves the exit status 0: on a busy machine figures are rough.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/test/child"
)

// coreDNS is the package of the server that is measured.
const coreDNS = "github.com/clusterset-dns/clusterset/test/bench/coredns"

// A bench is one run.
type bench struct {
	sections map[string]*bool
	rounds   int
	duration time.Duration // of one measurement
	rate     int           // see [load]
	out      string
	profile  string // file for a CPU profile of this process, which also runs the controllers

	dir              string // removed at the end
	coredns, dnsperf string // programs
	progress         *progress
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Whoever asks a second time does not want to wait for the end of what runs.
	context.AfterFunc(ctx, stop)
	b := &bench{progress: &progress{w: os.Stderr, began: time.Now()}}
	b.flags(flag.CommandLine)
	flag.Parse()
	// What fails is returned too; at Ctrl-C there would be a line for each request that is under way.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := b.main(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) flags(f *flag.FlagSet) {
	b.sections = map[string]*bool{
		"rows":   f.Bool("rows", false, "compare CPU time per query"),
		"memory": f.Bool("memory", false, "compare memory"),
		"fresh":  f.Bool("fresh", false, "compare the time from a change to its answer"),
		"cross":  f.Bool("cross", false, "measure the time from a change in one cluster to its answer in another"),
		"import": f.Bool("import", false, "measure the first import of a new member; takes some minutes"),
		"growth": f.Bool("growth", false, "compare a small with a large zone; takes long and some gigabytes"),
	}
	f.IntVar(&b.rounds, "rounds", 7, "`times` that each kind of question is measured")
	f.DurationVar(&b.duration, "duration", time.Second, "`time` of one measurement")
	f.IntVar(&b.rate, "rate", 0, "queries a `second` at most; 0 means as many as the server answers")
	f.StringVar(&b.profile, "cpuprofile", "", "`file` for a CPU profile of the controllers, and of what measures them")
	f.StringVar(&b.out, "out", "bin", "`folder` for the report, bench.md and bench.json")
}

func (b *bench) main(ctx context.Context) (err error) {
	if b.rounds < 1 {
		return fmt.Errorf("rounds %d: want at least 1", b.rounds)
	}
	if b.duration < 500*time.Millisecond {
		return fmt.Errorf("duration %s: want at least 500ms", b.duration)
	}
	if b.rate < 0 {
		return fmt.Errorf("rate %d: want at least 0", b.rate)
	}
	if !b.anySection() {
		for _, name := range []string{"rows", "memory", "fresh", "cross"} {
			*b.sections[name] = true
		}
	}
	if b.dnsperf, err = findDnsperf(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "clusterset-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.build(ctx); err != nil {
		return err
	}
	if b.profile != "" {
		stop, err := startProfile(b.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	r := b.newReport()
	err = b.measureAll(ctx, r)
	if !r.empty() {
		// What was measured before a failure has cost minutes.
		err = errors.Join(err, r.write(os.Stdout, b.out))
	}
	return err
}

// startProfile writes a CPU profile until stop is called.
func startProfile(name string) (stop func() error, err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func (b *bench) anySection() bool {
	for _, on := range b.sections {
		if *on {
			return true
		}
	}
	return false
}

func (b *bench) build(ctx context.Context) error {
	b.progress.say("building CoreDNS with all peers")
	b.coredns = filepath.Join(b.dir, "coredns")
	c, err := child.Start(child.Command{Bin: "go", Args: []string{"build", "-o", b.coredns, coreDNS}})
	if err != nil {
		return err
	}
	return c.Wait(ctx)
}

func (b *bench) measureAll(ctx context.Context, r *report) error {
	for _, section := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"rows", func(ctx context.Context) (err error) { r.Rows, err = b.rowsSection(ctx); return err }},
		{"memory", func(ctx context.Context) (err error) { r.Memory, err = b.memorySection(ctx); return err }},
		{"fresh", func(ctx context.Context) (err error) { r.Fresh, err = b.freshSection(ctx); return err }},
		{"cross", func(ctx context.Context) (err error) { r.Cross, err = b.crossSection(ctx); return err }},
		{"import", func(ctx context.Context) (err error) { r.Import, err = b.importSection(ctx); return err }},
		{"growth", func(ctx context.Context) (err error) { r.Growth, err = b.growthSection(ctx); return err }},
	} {
		if !*b.sections[section.name] {
			continue
		}
		if err := section.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", section.name, err)
		}
	}
	return nil
}
