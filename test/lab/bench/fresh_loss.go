package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	lossRounds   = 5
	lossDuration = 4 * time.Second
	// Changes cost so little that it takes some to see it in ticks of CPU time.
	changeDuration = 20 * time.Second

	targetLoss = 10 // percent of the CPU time of a server at full speed
)

// noChanges is the rate of no changes.
const noChanges = -1

var lossRates = []int{noChanges, freshRate, mostChanges}

// A lossResult is what one peer answers while endpoints change. Losses are in percent of what the same round had
// without changes.
type lossResult struct {
	Peer    string
	Wanted  int // -1 means none, 0 as many as can be under way
	Changes summary
	QPS     summary // as fast as it can
	// The API server, which takes part in each change, has the same CPUs.
	QPSLoss summary
	CPU     summary // of the server, what the changes take it included
	// CPULoss is how much less a server answers that has as much CPU time with changes as without. Part of it is no loss
	// to changes: of a machine that has to do more, fewer queries come at a time, and each costs more.
	CPULoss summary
	// ChangeCPU is the server's CPU time for a change while there are no queries, ChangeLoss what so many changes take of
	// the CPU time that it has at full speed without them, in percent.
	ChangeCPU  float64
	ChangeLoss float64
	// QPSRatio is the queries a second over those of in-tree.
	QPSRatio summary
}

// lossResults has a result for each rate and peer.
type lossResults []lossResult

// A lossTrial is one peer with one rate of changes; it holds a value for each round.
type lossTrial struct {
	server            *server
	rate              int
	changes, qps, cpu []float64
}

// loss measures in turn what each server answers without changes and with them. No query asks for the changes
// meanwhile: that would cost more than they do.
func (f *fresh) loss(ctx context.Context) (lossResults, error) {
	var trials []*lossTrial
	for _, rate := range lossRates {
		for _, s := range f.servers {
			trials = append(trials, &lossTrial{server: s, rate: rate})
		}
	}
	if err := f.loseAll(ctx, trials); err != nil {
		return nil, err
	}
	cost, err := f.changeCost(ctx)
	return newLossResults(trials, cost), err
}

// loseAll measures all rounds.
func (f *fresh) loseAll(ctx context.Context, trials []*lossTrial) error {
	var done atomic.Int64
	defer f.b.progress.every(10*time.Second, func() string {
		return fmt.Sprintf("fresh: %d of %d times asked while endpoints change", done.Load(), lossRounds*len(trials))
	})()
	for round := range lossRounds {
		for i := range trials {
			t := trials[(i+round)%len(trials)]
			if err := f.loseOnce(ctx, t); err != nil {
				return fmt.Errorf("%s, %s changes a second: %w", t.server, lossText(t.rate), err)
			}
			done.Add(1)
		}
	}
	return nil
}

// changeCost returns what a change costs each server, in µs of CPU time.
func (f *fresh) changeCost(ctx context.Context) (map[string]float64, error) {
	f.b.progress.say("fresh: %d changes a second for %s, without queries", freshRate, changeDuration)
	before := make([]time.Duration, len(f.servers))
	for i, s := range f.servers {
		var err error
		if before[i], err = s.quiet(ctx); err != nil {
			return nil, err
		}
	}
	changes, _, err := f.meanwhile(ctx, freshRate, func(ctx context.Context) error { return pause(ctx, changeDuration) })
	if err != nil {
		return nil, err
	}
	cost := map[string]float64{}
	for i, s := range f.servers {
		after, err := s.quiet(ctx)
		if err != nil {
			return nil, err
		}
		cost[s.peer.name] = micros(after-before[i]) / float64(changes)
	}
	return cost, nil
}

// loseOnce measures one round of a trial.
func (f *fresh) loseOnce(ctx context.Context, t *lossTrial) error {
	before, err := t.server.quiet(ctx)
	if err != nil {
		return err
	}
	var got stats
	changes, took, err := f.meanwhile(ctx, t.rate, func(ctx context.Context) (err error) {
		got, err = f.b.ask(ctx, load{duration: lossDuration}, t.server.port.Number, f.file)
		return err
	})
	if err == nil {
		err = got.verify(f.rcodes)
	}
	if err != nil {
		return err
	}
	after, err := t.server.quiet(ctx)
	if err != nil {
		return err
	}
	t.changes = append(t.changes, float64(changes)/took.Seconds())
	t.qps = append(t.qps, got.qps)
	t.cpu = append(t.cpu, micros(after-before)/float64(got.sent))
	return nil
}

// meanwhile changes endpoints while do runs, and returns how many and for how long.
func (f *fresh) meanwhile(ctx context.Context, rate int, do func(context.Context) error) (int, time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	stop, changes, began := make(chan struct{}), 0, time.Now()
	g.Go(func() error {
		defer close(stop)
		return do(ctx)
	})
	if rate != noChanges {
		g.Go(func() (err error) {
			changes, err = f.at(rate).run(ctx, stop, func(ctx context.Context, i int) error {
				_, _, err := f.flip(ctx, i)
				return err
			})
			return err
		})
	}
	err := g.Wait()
	return changes, time.Since(began), err
}

// newLossResults takes what a change costs each peer, in µs of CPU time.
func newLossResults(trials []*lossTrial, changeCost map[string]float64) lossResults {
	find := func(p string, rate int) *lossTrial {
		return trials[slices.IndexFunc(trials, func(t *lossTrial) bool { return t.server.peer.name == p && t.rate == rate })]
	}
	var all lossResults
	for _, t := range trials {
		name := t.server.peer.name
		without := find(name, noChanges)
		r := lossResult{
			Peer: name, Wanted: t.rate, Changes: summarize(t.changes), QPS: summarize(t.qps), CPU: summarize(t.cpu),
			QPSRatio: summarize(ratios(t.qps, find(inTreePeer.name, t.rate).qps)), ChangeCPU: changeCost[name],
		}
		r.ChangeLoss = 100 * r.Changes.Median * r.ChangeCPU / (summarize(without.qps).Median * summarize(without.cpu).Median)
		if t.rate != noChanges {
			r.QPSLoss = summarize(lost(ratios(t.qps, without.qps)))
			// As many queries cost more, so the same time is enough for fewer.
			r.CPULoss = summarize(lost(ratios(without.cpu, t.cpu)))
		}
		all = append(all, r)
	}
	return all
}

// lost turns the part that is left into the part that was lost, in percent.
func lost(left []float64) []float64 {
	percent := make([]float64, len(left))
	for i, part := range left {
		percent[i] = 100 * (1 - part)
	}
	return percent
}

func lossText(rate int) string {
	if rate == noChanges {
		return "no"
	}
	return rateText(rate)
}

func (all lossResults) goals() []goal {
	var goals []goal
	for _, r := range all {
		if r.Peer == ourPeer.name && r.Wanted != noChanges {
			goals = append(goals, r.goal())
		}
	}
	return goals
}

func (r lossResult) goal() goal {
	return newGoal("CPU time that changes take, %, "+rateText(r.Wanted)+" changes/s", r.ChangeLoss, targetLoss)
}

func lossTable(all lossResults) string {
	lines := [][]string{{
		"peer", "changes/s wanted", "changes/s", "queries/s", "over in-tree", "lost, %", "CPU, µs a query", "lost by CPU, %",
		"CPU, µs a change", "for changes, %", "target",
	}}
	for _, r := range all {
		line := []string{
			r.Peer, lossText(r.Wanted), fmt.Sprintf("%.0f", r.Changes.Median), figure("%.0f", r.QPS),
			fmt.Sprintf("%.2f", r.QPSRatio.Median), "", figure("%.1f", r.CPU), "", "", "", "",
		}
		if r.Wanted != noChanges {
			line[5], line[7] = between(r.QPSLoss), between(r.CPULoss)
			line[8], line[9] = fmt.Sprintf("%.0f", r.ChangeCPU), fmt.Sprintf("%.1f", r.ChangeLoss)
		}
		if r.Peer == ourPeer.name && r.Wanted != noChanges {
			line[10] = r.goal().cell("%.0f")
		}
		lines = append(lines, line)
	}
	return table(lines)
}

// between shows a median that may be near zero, and the range itself.
func between(s summary) string { return fmt.Sprintf("%.1f (%.1f to %.1f)", s.Median, s.Min, s.Max) }
