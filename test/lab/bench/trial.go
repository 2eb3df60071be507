package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// A trial is one kind of question for one server, asked in every round.
type trial struct {
	name      string // of the kind, for the reader
	server    *server
	file      string // the packed questions
	questions []question
	halfLoad  bool // measure latencies at half load too
	samples
}

// samples holds a value for each round.
type samples struct {
	cpu     []float64 // of the server, µs a query
	qps     []float64
	latency []float64 // in the mean, µs
	octets  []float64 // of an answer, in the mean

	// At half load, µs; of every other round.
	p50, p99 []float64
}

// halfLoadMost is the most queries a second at half load: beyond that the measuring is the load, and its record long.
const halfLoadMost = 20_000

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

// runRounds measures all heats, several rounds. The order within a heat moves from round to round, so that none always
// comes after the same other.
func (b *bench) runRounds(ctx context.Context, section string, heats []heat, rounds int) error {
	for round := range rounds {
		for _, h := range heats {
			b.progress.say("%s: round %d of %d: %s", section, round+1, rounds, h[0].name)
			for i := range h {
				t := h[(i+round)%len(h)]
				if err := b.measureRound(ctx, t, round); err != nil {
					return fmt.Errorf("%s: %s: %w", t.name, t.server, err)
				}
			}
		}
	}
	return nil
}

func (b *bench) measureRound(ctx context.Context, t *trial, round int) error {
	if round == 0 {
		warmup := load{duration: b.duration / 4, tcp: t.questions[0].tcp}
		if _, err := b.ask(ctx, warmup, t.server.port.Number, t.file); err != nil {
			return err
		}
	}
	if err := b.measure(ctx, t); err != nil {
		return err
	}
	if t.halfLoad && round%2 == 0 {
		return b.measureHalfLoad(ctx, t)
	}
	return nil
}

// askTrial asks the questions of t and verifies the answers.
func (b *bench) askTrial(ctx context.Context, t *trial, l load) (stats, error) {
	l.tcp = t.questions[0].tcp
	s, err := b.ask(ctx, l, t.server.port.Number, t.file)
	if err != nil {
		return stats{}, err
	}
	return s, s.verify(rcodeShares(t.questions))
}

// longest is how many times b.duration a measurement may last that is repeated for lack of CPU time.
const longest = 4

func (b *bench) measure(ctx context.Context, t *trial) error {
	var used time.Duration
	for times := 1; times <= longest; times *= 2 {
		before, err := t.server.quiet(ctx)
		if err != nil {
			return err
		}
		s, err := b.askTrial(ctx, t, load{duration: time.Duration(times) * b.duration})
		if err != nil {
			return err
		}
		after, err := t.server.quiet(ctx)
		if err != nil {
			return err
		}
		if used = after - before; used >= leastCPU {
			t.add(s, used)
			return nil
		}
	}
	return fmt.Errorf("CPU time %s: want at least %s, by a longer duration", used, leastCPU)
}

func (s *samples) add(got stats, used time.Duration) {
	// Those that dnsperf no longer waited for were paid for too.
	s.cpu = append(s.cpu, micros(used)/float64(got.sent))
	s.qps = append(s.qps, got.qps)
	s.latency = append(s.latency, micros(got.latency))
	s.octets = append(s.octets, float64(got.octets))
}

// measureHalfLoad takes half of the queries a second that t just reached.
func (b *bench) measureHalfLoad(ctx context.Context, t *trial) error {
	half := halfRate(t.qps[len(t.qps)-1])
	s, err := b.askTrial(ctx, t, load{duration: b.duration, rate: half, each: true})
	if err != nil {
		return fmt.Errorf("half load: %w", err)
	}
	t.p50 = append(t.p50, percentile(s.latencies, 50))
	t.p99 = append(t.p99, percentile(s.latencies, 99))
	return nil
}

func halfRate(qps float64) int { return min(max(int(qps/2), 1), halfLoadMost) }

// of returns the trial of the peer.
func (h heat) of(p peer) *trial {
	i := slices.IndexFunc(h, func(t *trial) bool { return t.server.peer.name == p.name })
	if i < 0 {
		return nil
	}
	return h[i]
}
