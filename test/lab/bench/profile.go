package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"
)

// How long each profile is.
const (
	profileLoad   = 5 * time.Second // the server has read all before it ends
	profileAnswer = 5 * time.Second // of each kind of question
	profileChange = 15 * time.Second
)

// A profilePhase is where the CPU time of our server goes in one phase.
type profilePhase struct {
	Phase   string
	Seconds float64
	Shares  map[string]float64 // of the CPU time, by whose code it is; they sum up to 1
}

// A profilePart has a result for each phase, and the profiles.
type profilePart struct {
	Phases []profilePhase
	kept   map[string][]byte
}

// profileSection takes profiles of our server while it loads, answers and follows changes.
func (b *bench) profileSection(ctx context.Context) (_ part, err error) {
	z := b.newRowZone()
	z.small = headless("headless", memoryHeadless, memoryThirties, 0)
	z.large = headless("large", 1, rowLarge, memoryHeadless*memoryThirties)[0]
	z.wide, z.whole = nil, service{}
	c, err := b.startCluster(ctx, "profile", z.services())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	s, err := b.launch(ourPeer, c.source)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	p := &profilePart{kept: make(map[string][]byte)}
	rows := newRows(z)
	if err := p.take(ctx, s, "load", profileLoad, func(ctx context.Context) error {
		return s.awaitAnswers(ctx, fewOf(rows))
	}); err != nil {
		return nil, err
	}
	for _, r := range rows {
		b.progress.say("profile: %s", r.name)
		err := p.take(ctx, s, r.name, profileAnswer, func(ctx context.Context) error {
			return b.askEach(ctx, s, []row{r}, profileAnswer)
		})
		if err != nil {
			return nil, err
		}
	}
	b.progress.say("profile: %d changes a second", freshRate)
	changed := *c
	changed.services = z.small
	f := &flips{cluster: &changed}
	f.next.Store(memoryHeadless*memoryThirties + rowLarge)
	return p, p.take(ctx, s, "changes", profileChange, func(ctx context.Context) error {
		ending, cancel := context.WithTimeout(ctx, profileChange)
		defer cancel()
		_, err := f.at(freshRate).run(ctx, ending.Done(), func(ctx context.Context, i int) error {
			_, _, err := f.flip(ctx, i)
			return err
		})
		return err
	})
}

// take takes a CPU profile of the server while do runs, and a heap profile after it.
func (p *profilePart) take(ctx context.Context, s *server, phase string, d time.Duration,
	do func(context.Context) error) error {
	cpu, err := s.profileWhile(ctx, d, do)
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	heap, err := s.fetch(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	name := strings.Join(strings.FieldsFunc(phase, func(r rune) bool { return r == ' ' || r == ',' }), "-")
	p.kept["profile-"+name+"-cpu.pprof"], p.kept["profile-"+name+"-heap.pprof"] = cpu, heap
	parsed, err := profile.Parse(bytes.NewReader(cpu))
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	p.Phases = append(p.Phases, sharesOf(phase, parsed))
	return nil
}

// profileWhile takes a CPU profile of the server while do runs. A server that has just been started is waited for.
func (s *server) profileWhile(ctx context.Context, d time.Duration, do func(context.Context) error) ([]byte, error) {
	g, ctx := errgroup.WithContext(ctx)
	var cpu []byte
	g.Go(func() (err error) {
		for {
			cpu, err = s.fetch(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(d.Seconds())))
			if err == nil || s.ended() != nil {
				return err
			}
			if pause(ctx, 5*time.Millisecond) != nil {
				return err
			}
		}
	})
	g.Go(func() error { return do(ctx) })
	err := g.Wait()
	return cpu, err
}

// Whose code a sample is of.
const (
	ofKernel    = "kernel"
	ofGC        = "garbage collection"
	ofScheduler = "Go scheduler"
	ofOurs      = "ours"
	ofMiekg     = "miekg/dns"
	ofCoreDNS   = "CoreDNS"
	ofClient    = "client-go, decoding"
	ofNetwork   = "HTTP, TLS, net"
	ofRest      = "rest"
)

// owners are the columns of the table.
var owners = []string{ofOurs, ofMiekg, ofCoreDNS, ofClient, ofNetwork, ofKernel, ofGC, ofScheduler, ofRest}

// prefixes say whose a function is by its name.
var prefixes = []struct{ prefix, owner string }{
	{"github.com/clusterset-dns/clusterset", ofOurs}, {"github.com/miekg/dns", ofMiekg},
	{"github.com/coredns/", ofCoreDNS},
	{"k8s.io/", ofClient}, {"sigs.k8s.io/", ofClient}, {"encoding/json", ofClient},
	{"google.golang.org/protobuf", ofClient},
	{"net.", ofNetwork}, {"net/", ofNetwork}, {"crypto/", ofNetwork}, {"internal/poll", ofNetwork},
	{"golang.org/x/net", ofNetwork},
	{"internal/runtime/syscall", ofKernel}, {"syscall.", ofKernel}, {"runtime/internal/syscall", ofKernel},
	{"runtime.gcBgMarkWorker", ofGC}, {"runtime.bgsweep", ofGC}, {"runtime.bgscavenge", ofGC},
	{"runtime.gcAssistAlloc", ofGC},
	{"runtime.gcStart", ofGC}, {"runtime.schedule", ofScheduler}, {"runtime.mcall", ofScheduler},
	{"runtime.mstart", ofScheduler},
	{"runtime.futex", ofKernel}, {"runtime.epollwait", ofKernel},
}

// owner returns the column to which a stack is charged: that of the innermost function that belongs to one. Work of
// the runtime and the standard library, such as allocation and sorting, counts for its caller.
func owner(stack []string) string {
	for _, function := range stack {
		for _, p := range prefixes {
			if strings.HasPrefix(function, p.prefix) {
				return p.owner
			}
		}
	}
	return ofRest
}

func sharesOf(phase string, p *profile.Profile) profilePhase {
	values := len(p.SampleType) - 1 // CPU time is the last
	total, by := int64(0), map[string]int64{}
	for _, sample := range p.Sample {
		by[owner(stackOf(sample))] += sample.Value[values]
		total += sample.Value[values]
	}
	result := profilePhase{Phase: phase, Seconds: float64(total) / 1e9, Shares: map[string]float64{}}
	for of, value := range by {
		result.Shares[of] = float64(value) / float64(max(total, 1))
	}
	return result
}

func stackOf(sample *profile.Sample) []string {
	var stack []string
	for _, at := range sample.Location {
		for _, line := range at.Line {
			stack = append(stack, line.Function.Name)
		}
	}
	return stack
}

func (p *profilePart) markdown() string {
	lines := [][]string{append([]string{"phase", "CPU, s"}, owners...)}
	for _, phase := range p.Phases {
		line := []string{phase.Phase, fmt.Sprintf("%.1f", phase.Seconds)}
		for _, of := range owners {
			line = append(line, fmt.Sprintf("%.0f %%", 100*phase.Shares[of]))
		}
		lines = append(lines, line)
	}
	return heading("Whose code takes the CPU time of our server", table(lines))
}

func (p *profilePart) goals() []goal { return nil }

func (p *profilePart) files() map[string][]byte { return maps.Clone(p.kept) }

// askEach asks each kind of question in turn, all of them within d.
func (b *bench) askEach(ctx context.Context, s *server, rows []row, d time.Duration) error {
	for _, r := range rows {
		h, err := b.newHeat(ctx, r.name, r.questions, []*server{s})
		if err != nil {
			return err
		}
		if _, err := b.askTrial(ctx, h[0], load{duration: d / time.Duration(len(rows))}); err != nil {
			return err
		}
	}
	return nil
}
