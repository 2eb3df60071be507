// Command bench measures our plugin beside its peers, on Linux: CoreDNS's plugin kubernetes with its option
// multicluster ("in-tree"), the baseline (package test/lab/baseline), which serves prepared answers, and NSD for some
// questions.
//
//	                        writes objects
//	bench ------------------------------------------> kube-apiserver
//	  |  starts one CoreDNS per peer                        | watch
//	  |  CPU time, memory: /proc; live heap: pprof          v
//	  +-------------------------------------------> CoreDNS with one peer
//	  |  starts                          UDP, TCP           ^
//	  +-------------> dnsperf ------------------------------+
//
// Each section measures one subject (rows, memory, fresh, ...; see sections). All peers serve the same objects: those
// that can watch get them from the same API server, the others as a master file. The server of each peer is a process
// of its own, so that its CPU time and its memory are what the kernel accounts to that process, without the load
// generator.
//
// Other load on the machine changes every figure. So a measurement is repeated in rounds, and each round measures all
// peers one after the other, in another order each time. A ratio is taken within its round, where both sides had the
// same load. The report has the median over the rounds and, in parentheses, the range of the rounds as a part of the
// median. Before a measurement bench checks the answers of each peer: a wrong answer is an error.
//
// The report is Markdown on the standard output, and with its plots in the folder of -out; progress goes to the
// standard error. Without a section bench runs those that take a few minutes together; -full runs all of them, and more
// of each. -help lists them.
//
// The exit status is 1 if an answer is wrong or missing, or if anything else fails. A missed target is marked in the
// report and leaves the exit status 0: figures of a busy machine are rough.
//
// The files use each other in one direction: main.go (sections, flags) uses the rest; cluster.go and zone.go (objects),
// server.go (peers), question.go and dnsperf.go (load), trial.go and summary.go (rounds), proc.go (readings), rows.go,
// modes.go, rowtables.go, memory.go, fresh*.go, cross.go, failover*.go, together*.go, slicewatch.go, scale*.go,
// heartbeats*.go, growth.go, profile.go and tune.go (the sections), report.go, table.go and plot.go (output).
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
	"slices"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// A section is one subject that is measured.
type section struct {
	name, usage string
	quick       bool // runs by default
	root        bool // makes network namespaces
	alone       bool // needs neither dnsperf nor the servers of the peers
	run         func(*bench, context.Context) (part, error)
}

var sections = []section{
	{"rows", "compare CPU time per query, by kind of question, under dnsperf", true, false, false, (*bench).rowsSection},
	{"memory", "compare live heap and resident memory with 280,000 endpoints", true, false, false, (*bench).memorySection},
	{"fresh", "compare the time from a change to its answer", true, false, false, (*bench).freshSection},
	{"cross", "measure the time from a change in one cluster to its answer in another, through a broker", true, false,
		false, (*bench).crossSection},
	{"import", "measure the time in which a new member imports 5,000 services with 20,000 slices", false, false, false,
		(*bench).importSection},
	{"failover", "measure how connections move between clusters, by way of kube-proxy in network namespaces; as root",
		true, true, true, (*bench).failoverSection},
	{"together", "measure how -services change their clusters together; as root", false, true, true,
		(*bench).togetherSection},
	{"scale", "measure one member of a clusterset of 100, with 5,000 services and 100,000 endpoints", false, false, false,
		(*bench).scaleSection},
	{"heartbeats", "measure idle clustersets of 10, 100 and 1,000 members", true, false, true, (*bench).heartbeatSection},
	{"growth",
		"compare CPU time, memory and the cost of a change from 1,000 to 1,000,000 endpoints and to 100,000 services", false,
		false, false, (*bench).growthSection},
	{"profile", "take profiles of our server while it loads, answers and follows changes", false, false, false,
		(*bench).profileSection},
	{"tune", "compare ways to build and to run our server", false, false, false, (*bench).tuneSection},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the program at once.
	context.AfterFunc(ctx, stop)
	b := &bench{progress: &progress{w: os.Stderr, began: time.Now()}}
	b.flags(flag.CommandLine)
	flag.Parse()
	// Failures are returned as errors; at Ctrl-C klog would write a line for each open request.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := b.main(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) flags(f *flag.FlagSet) {
	b.sections = map[string]*bool{}
	for _, section := range sections {
		b.sections[section.name] = f.Bool(section.name, false, section.usage)
	}
	f.BoolVar(&b.full, "full", false, "all sections, and more of each; takes long and some gigabytes")
	f.IntVar(&b.rounds, "rounds", 7, "`times` that each kind of question is measured")
	f.DurationVar(&b.duration, "duration", time.Second, "`time` of one measurement")
	f.IntVar(&b.services, "services", 5000, "`number` of services that change their clusters together")
	f.StringVar(&b.out, "out", "bin", "`folder` for the report, bench.md, and its plots")
}

func (b *bench) main(ctx context.Context) (err error) {
	if b.rounds < 1 {
		return fmt.Errorf("rounds %d: want at least 1", b.rounds)
	}
	if b.duration < 500*time.Millisecond {
		return fmt.Errorf("duration %s: want at least 500ms", b.duration)
	}
	if b.services < 1 {
		return fmt.Errorf("services %d: want at least 1", b.services)
	}
	b.choose()
	if b.dir, err = os.MkdirTemp("", "clusterset-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	r := b.newReport()
	err = b.measureAll(ctx, r)
	if len(r.parts) > 0 {
		// The results before a failure have taken minutes.
		err = errors.Join(err, r.write(os.Stdout, b.out))
	}
	return err
}

// choose selects the default sections if no section is selected, but for those that are not possible here.
func (b *bench) choose() {
	for _, on := range b.sections {
		if *on {
			return
		}
	}
	impossible := namespacesPossible()
	for _, s := range sections {
		on := s.quick || b.full
		if on && s.root && impossible != nil {
			b.progress.say("%s: left out: %v", s.name, impossible)
			on = false
		}
		*b.sections[s.name] = on
	}
}

// prepare finds and builds the programs that the chosen sections need.
func (b *bench) prepare(ctx context.Context) (err error) {
	if !slices.ContainsFunc(sections, func(s section) bool { return *b.sections[s.name] && !s.alone }) {
		return nil
	}
	if b.dnsperf, err = findDnsperf(); err != nil {
		return err
	}
	b.progress.say("building CoreDNS with all peers")
	b.coredns = filepath.Join(b.dir, "coredns")
	return goBuild(ctx, "-o", b.coredns, coreDNS)
}

// measureAll continues after a section that fails: the results of the others take long, too.
func (b *bench) measureAll(ctx context.Context, r *report) (failed error) {
	for _, s := range sections {
		if !*b.sections[s.name] {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
		found, err := s.run(b, ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		if found != nil { // a section may fail after its first results
			r.parts = append(r.parts, found)
		}
	}
	return failed
}
