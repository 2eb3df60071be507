package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

const (
	freshServices  = 1_000
	freshEndpoints = 30 // of each
	freshDuration  = 20 * time.Second
	// While queries run, the servers take turns of this length.
	freshTurn = 10 * time.Second
	// Short beside the measured times, long beside the cost of a poll.
	freshPoll = 200 * time.Microsecond

	targetFresh = 1.2
	// Where the API server is the limit ours is to be no slower than in-tree; two runs of one server differ by as much.
	targetFreshMost = 1.1
)

var freshPeers = []peer{inTreePeer, ourPeer}

// A freshResult is how long a change of a slice took from the API server's answer to the first DNS answer that shows
// it.
type freshResult struct {
	Peer    string
	Wanted  int // 0 means as many as can be under way
	Queries int // that the server was asked beside
	Rate    float64
	spans
}

// A freshPart has a result of each peer for each kind of measurement, peer by peer.
type freshPart struct {
	Delays [][]freshResult
	Loss   lossResults
}

// freshSection changes endpoints and waits for the servers to show it.
func (b *bench) freshSection(ctx context.Context) (_ part, err error) {
	services := headless("fresh", freshServices, freshEndpoints, 0)
	c, err := b.startCluster(ctx, "fresh", services)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	f := &fresh{b: b, flips: &flips{cluster: c}}
	f.next.Store(int64(freshServices * freshEndpoints))
	var stop func()
	f.servers, stop, err = b.startServers(ctx, "fresh", freshPeers, c.source, some(askHosts(services, 1), checked))
	defer stop()
	if err != nil {
		return nil, err
	}
	if !b.full {
		results, err := f.calm(ctx, freshRate)
		return &freshPart{Delays: [][]freshResult{results}}, err
	}
	return f.all(ctx)
}

// all measures each rate without queries and with them, and then what queries lose.
func (f *fresh) all(ctx context.Context) (*freshPart, error) {
	capacities, err := f.prepare(ctx)
	if err != nil {
		return nil, err
	}
	p := &freshPart{}
	for _, rate := range []int{20, freshRate, mostChanges} {
		calm, err := f.calm(ctx, rate)
		if err != nil {
			return nil, err
		}
		busy, err := f.busy(ctx, rate, capacities)
		if err != nil {
			return nil, err
		}
		p.Delays = append(p.Delays, calm, busy)
	}
	p.Loss, err = f.loss(ctx)
	return p, err
}

// prepare packs the questions and returns how many a second each server answers.
func (f *fresh) prepare(ctx context.Context) ([]float64, error) {
	heat, err := f.b.newHeat(ctx, "hosts", askUnchanged(f.cluster.services), f.servers)
	if err != nil {
		return nil, err
	}
	f.file, f.rcodes = heat[0].file, rcodeShares(heat[0].questions)
	capacities := make([]float64, len(f.servers))
	for i, s := range f.servers {
		f.b.progress.say("fresh: how much %s answers", s)
		// The first run warms up.
		for range 2 {
			got, err := f.b.ask(ctx, load{duration: f.b.duration}, s.port.Number, f.file)
			if err != nil {
				return nil, err
			}
			capacities[i] = got.qps
		}
	}
	return capacities, nil
}

// askUnchanged asks for hosts that keep their address: any but the first of each service.
func askUnchanged(services []service) []question {
	var all []question
	for _, s := range services {
		for host, addr := range s.hosts() {
			if host != s.host(0, 0) {
				all = append(all, question{owner: host, qtype: dns.TypeA, want: answer{records: 1, addr: addr}})
			}
		}
	}
	return some(all, 10_000)
}

// calm changes endpoints and waits for all servers at once.
func (f *fresh) calm(ctx context.Context, rate int) ([]freshResult, error) {
	f.b.progress.say("fresh: %s changes a second for %s", rateText(rate), freshDuration)
	w := &watch{flips: f.flips, servers: f.servers, delays: make([][]time.Duration, len(f.servers))}
	took, err := w.run(ctx, rate, freshDuration)
	if err != nil {
		return nil, err
	}
	results := make([]freshResult, len(f.servers))
	for i, s := range f.servers {
		results[i] = newFreshResult(s, w.delays[i], took)
		results[i].Wanted = rate
	}
	return results, nil
}

// busy changes endpoints and waits for the one server that is asked meanwhile half of what it answers at most. The
// servers take turns, so that none is always the first.
func (f *fresh) busy(ctx context.Context, rate int, capacities []float64) ([]freshResult, error) {
	delays, took := make([][]time.Duration, len(f.servers)), make([]time.Duration, len(f.servers))
	for _, i := range []int{0, 1, 1, 0} {
		s, queries := f.servers[i], int(capacities[i]/2)
		f.b.progress.say("fresh: %s changes a second for %s, while %s is asked %d queries a second", rateText(rate),
			freshTurn, s, queries)
		w := &watch{flips: f.flips, servers: f.servers[i : i+1], delays: make([][]time.Duration, 1)}
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error {
			got, err := f.b.ask(ctx, load{duration: freshTurn, rate: queries}, s.port.Number, f.file)
			if err != nil {
				return err
			}
			return got.verify(f.rcodes)
		})
		g.Go(func() error {
			turn, err := w.run(ctx, rate, freshTurn)
			took[i] += turn
			return err
		})
		if err := g.Wait(); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		delays[i] = append(delays[i], w.delays[0]...)
	}
	results := make([]freshResult, len(f.servers))
	for i, s := range f.servers {
		results[i] = newFreshResult(s, delays[i], took[i])
		results[i].Wanted, results[i].Queries = rate, int(capacities[i]/2)
	}
	return results, nil
}

func newFreshResult(s *server, delays []time.Duration, took time.Duration) freshResult {
	return freshResult{Peer: s.peer.name, Rate: float64(len(delays)) / took.Seconds(), spans: newSpans(delays)}
}

// A watch looks for changes in the answers of servers.
type watch struct {
	*flips
	servers []*server

	mu     sync.Mutex
	delays [][]time.Duration // by server
}

// run changes endpoints for some time and returns how long it was until all changes were seen.
func (w *watch) run(ctx context.Context, rate int, duration time.Duration) (time.Duration, error) {
	limited, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	began := time.Now()
	_, err := w.at(rate).run(ctx, limited.Done(), w.change)
	return time.Since(began), cmp.Or(err, context.Cause(ctx))
}

// change changes one service and waits until every server shows it.
func (w *watch) change(ctx context.Context, i int) error {
	host, addr, err := w.flip(ctx, i)
	if err != nil {
		return err
	}
	written := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i, server := range w.servers {
		g.Go(func() error {
			shown, err := awaitAddr(ctx, server.port.String(), host, addr, freshPoll)
			if err != nil {
				return fmt.Errorf("%s: %w", server, err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.delays[i] = append(w.delays[i], shown.Sub(written))
			return nil
		})
	}
	return g.Wait()
}

func (p *freshPart) markdown() string {
	text := heading("From a change to its answer", freshTable(p.Delays))
	if p.Loss != nil {
		text += "\n" + heading("What changes cost the queries", lossTable(p.Loss))
	}
	return text
}

func (p *freshPart) goals() []goal {
	var all []goal
	for _, results := range p.Delays {
		p50, p99 := freshGoals(results)
		all = append(all, p50, p99)
	}
	return append(all, p.Loss.goals()...)
}

func freshGoals(all []freshResult) (p50, p99 goal) {
	their, our := freshOf(all, inTreePeer), freshOf(all, ourPeer)
	what, target := " from change to answer over in-tree, "+rateText(our.Wanted)+" changes/s", targetFresh
	if our.Wanted == mostChanges {
		target = targetFreshMost
	}
	if our.Queries > 0 {
		what += ", with queries"
	}
	return newGoal("p50"+what, our.P50/their.P50, target), newGoal("p99"+what, our.P99/their.P99, target)
}

func freshOf(all []freshResult, p peer) freshResult {
	i := slices.IndexFunc(all, func(f freshResult) bool { return f.Peer == p.name })
	if i < 0 {
		panic("bench: freshness of " + p.name + " was not measured")
	}
	return all[i]
}

func freshTable(all [][]freshResult) string {
	lines := [][]string{{"peer", "queries/s", "changes/s wanted", "changes", "changes/s", "p50, ms", "p99, ms", "max, ms"}}
	for _, results := range all {
		for _, f := range results {
			lines = append(lines, []string{
				f.Peer, fmt.Sprint(f.Queries), rateText(f.Wanted), fmt.Sprint(f.Number), fmt.Sprintf("%.0f", f.Rate),
				fmt.Sprintf("%.2f", f.P50), fmt.Sprintf("%.2f", f.P99), fmt.Sprintf("%.2f", f.Max),
			})
		}
		p50, p99 := freshGoals(results)
		ratio := freshOf(results, ourPeer).Max / freshOf(results, inTreePeer).Max
		lines = append(lines,
			[]string{
				ourPeer.name + " / " + inTreePeer.name, "", "", "", "",
				fmt.Sprintf("%.2f", p50.Got), fmt.Sprintf("%.2f", p99.Got), fmt.Sprintf("%.2f", ratio),
			},
			[]string{"target", "", "", "", "", p50.cell("%.2f"), p99.cell("%.2f"), ""},
		)
	}
	return table(lines)
}
