package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// A trial is one kind of question for one server, asked in every round.
type trial struct {
	name      string // of the kind, for the reader
	server    *server
	file      string // the packed questions
	questions []question
	samples
}

// samples holds a value for each round.
type samples struct {
	cpu     []float64 // of the server, µs a query
	qps     []float64
	latency []float64 // in the mean, µs
	octets  []float64 // of an answer, in the mean
}

// How many questions of each kind are checked one by one before a server is measured.
const checked = 16

// leastCPU is what a server has to use in one measurement, so that it does not matter that time comes in ticks.
const leastCPU = 20 * tick

// A heat is the trials that are compared with each other: they run one right after the other.
type heat []*trial

// newHeat prepares one kind of question for each of the servers.
func (b *bench) newHeat(ctx context.Context, name string, questions []question, servers []*server) (heat, error) {
	packed, err := pack(questions)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(b.dir, "questions-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Write(packed); err != nil {
		return nil, err
	}
	var h heat
	for _, s := range servers {
		if err := check(ctx, s.port.String(), some(questions, checked)); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, s, err)
		}
		h = append(h, &trial{name: name, server: s, file: f.Name(), questions: questions})
	}
	return h, nil
}

// run measures all heats, several rounds. The order within a heat moves from round to round, so that none always comes
// after the same other.
func (b *bench) run(ctx context.Context, section string, heats []heat) error {
	warmup := load{duration: b.duration / 4, rate: b.rate}
	for round := range b.rounds {
		for _, h := range heats {
			b.progress.say("%s: round %d of %d: %s", section, round+1, b.rounds, h[0].name)
			for i := range h {
				t := h[(i+round)%len(h)]
				if round == 0 {
					if _, err := b.ask(ctx, warmup, t.server.port.Number, t.file); err != nil {
						return err
					}
				}
				if err := b.measure(ctx, t); err != nil {
					return fmt.Errorf("%s: %s: %w", t.name, t.server, err)
				}
			}
		}
	}
	return nil
}

func (b *bench) measure(ctx context.Context, t *trial) error {
	before, err := t.server.quiet(ctx)
	if err != nil {
		return err
	}
	s, err := b.ask(ctx, load{duration: b.duration, rate: b.rate}, t.server.port.Number, t.file)
	if err != nil {
		return err
	}
	if err := s.verify(dns.RcodeToString[t.questions[0].want.rcode]); err != nil {
		return err
	}
	after, err := t.server.quiet(ctx)
	if err != nil {
		return err
	}
	used := after - before
	if used < leastCPU {
		return fmt.Errorf("CPU time %s: want at least %s, by a longer duration or a higher rate", used, leastCPU)
	}
	// Those that dnsperf no longer waited for were paid for too.
	t.cpu = append(t.cpu, micros(used)/float64(s.sent))
	t.qps = append(t.qps, s.qps)
	t.latency = append(t.latency, micros(s.latency))
	t.octets = append(t.octets, float64(s.octets))
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// of returns the trial of the peer.
func (h heat) of(p peer) *trial {
	i := slices.IndexFunc(h, func(t *trial) bool { return t.server.peer.name == p.name })
	if i < 0 {
		return nil
	}
	return h[i]
}
