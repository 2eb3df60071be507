package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	freshServices  = 1_000
	freshEndpoints = 30 // of each
	freshRate      = 200
	freshDuration  = 20 * time.Second
	// More changes than these are not under way at once; the API server is too slow for the rate then.
	freshOutstanding = 16
	// Short beside what is measured, long beside what a poll costs.
	freshPoll     = 200 * time.Microsecond
	freshPatience = 10 * time.Second

	targetFresh = 1.5
)

var freshPeers = []peer{inTreePeer, ourPeer}

// A freshResult is how long a change of a slice took from the API server's answer to the first DNS answer that shows it,
// in milliseconds.
type freshResult struct {
	Peer    string  `json:"peer"`
	Changes int     `json:"changes"`
	Rate    float64 `json:"changesPerSecond"`
	P50     float64 `json:"p50Milliseconds"`
	P99     float64 `json:"p99Milliseconds"`
	Max     float64 `json:"maxMilliseconds"`
}

// freshPart has a result for each peer.
type freshPart []freshResult

// freshSection changes endpoints and waits for all servers at once to show it.
func (b *bench) freshSection(ctx context.Context) (_ part, err error) {
	services := headless("fresh", freshServices, freshEndpoints, 0)
	c, err := b.startCluster(ctx, "fresh", services)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	servers, stop, err := b.startServers(ctx, "fresh", freshPeers, c.source, some(askHosts(services, 1), checked))
	defer stop()
	if err != nil {
		return nil, err
	}
	f := &flips{cluster: c, servers: servers, delays: make([][]time.Duration, len(servers))}
	f.next.Store(int64(freshServices * freshEndpoints))
	b.progress.say("fresh: %d changes a second for %s", freshRate, freshDuration)
	began := time.Now()
	if err := f.run(ctx); err != nil {
		return nil, err
	}
	return f.results(time.Since(began)), nil
}

// flips gives hosts new addresses.
type flips struct {
	cluster *cluster
	servers []*server
	next    atomic.Int64 // the number of the next address

	mu     sync.Mutex
	delays [][]time.Duration // by server
}

func (f *flips) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(freshOutstanding)
	tick := time.NewTicker(time.Second / freshRate)
	defer tick.Stop()
	// Each service comes once before any comes again, so that no change overtakes another of the same slice.
	order := rand.Perm(len(f.cluster.services))
	end := time.After(freshDuration)
	for i := 0; ; i++ {
		s := f.cluster.services[order[i%len(order)]]
		g.Go(func() error { return f.flip(ctx, s) })
		select {
		case <-tick.C:
		case <-end:
			return g.Wait()
		case <-ctx.Done():
			return errors.Join(g.Wait(), context.Cause(ctx))
		}
	}
}

// flip changes the address of the service's first endpoint and waits until every server shows it.
func (f *flips) flip(ctx context.Context, s service) error {
	host, addr := s.host(0, 0), endpointAddr(int(f.next.Add(1)))
	slice := s.slice(clusters[0], 0, s.start(1))
	slice.Endpoints[0].Addresses = []string{addr.String()}
	_, err := f.cluster.kube.DiscoveryV1().EndpointSlices(s.namespace).Update(ctx, slice, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("change of %s: %w", host, err)
	}
	written := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i, server := range f.servers {
		g.Go(func() error {
			shown, err := awaitAddr(ctx, server.port.String(), host, addr, freshPoll)
			if err != nil {
				return fmt.Errorf("%s: %w", server, err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.delays[i] = append(f.delays[i], shown.Sub(written))
			return nil
		})
	}
	return g.Wait()
}

// awaitAddr asks for the host, every so often, until its address is the one wanted, and returns when that was.
func awaitAddr(ctx context.Context, server, host string, want netip.Addr, every time.Duration) (time.Time, error) {
	conn, err := net.Dial("udp", server)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = conn.Close() }()
	q := question{owner: host, qtype: dns.TypeA, want: answer{records: 1, addr: want}}
	client, patience := &dns.Client{Timeout: time.Second}, time.Now().Add(freshPatience)
	for {
		m, _, wrong := client.ExchangeWithConnContext(ctx, q.message(), &dns.Conn{Conn: conn})
		if wrong == nil {
			wrong = q.compare(m)
		}
		if wrong == nil {
			return time.Now(), nil
		}
		// A datagram may be lost, as any may; it is asked again.
		if time.Now().After(patience) {
			return time.Time{}, fmt.Errorf("question %s: after %s: %w", q, freshPatience, wrong)
		}
		if err := pause(ctx, every); err != nil {
			return time.Time{}, err
		}
	}
}

func (f *flips) results(took time.Duration) freshPart {
	var results freshPart
	for i, s := range f.servers {
		delays := f.delays[i]
		millis := func(percent float64) float64 { return micros(percentile(delays, percent)) / 1000 }
		results = append(results, freshResult{
			Peer: s.peer.name, Changes: len(delays), Rate: float64(len(delays)) / took.Seconds(),
			P50: millis(50), P99: millis(99), Max: millis(100),
		})
	}
	return results
}

func (all freshPart) markdown() string {
	return heading("From a change to its answer", freshTable(all))
}

func (all freshPart) goals() []goal {
	p50, p99 := freshGoals(all)
	return []goal{p50, p99}
}

func freshGoals(all []freshResult) (p50, p99 goal) {
	their, our := freshOf(all, inTreePeer), freshOf(all, ourPeer)
	return newGoal("p50 from change to answer over in-tree", our.P50/their.P50, targetFresh),
		newGoal("p99 from change to answer over in-tree", our.P99/their.P99, targetFresh)
}

func freshOf(all []freshResult, p peer) freshResult {
	for _, f := range all {
		if f.Peer == p.name {
			return f
		}
	}
	panic("bench: freshness of " + p.name + " was not measured")
}

func freshTable(all []freshResult) string {
	lines := [][]string{{"peer", "changes", "changes/s", "p50, ms", "p99, ms", "max, ms"}}
	for _, f := range all {
		lines = append(lines, []string{
			f.Peer, fmt.Sprint(f.Changes), fmt.Sprintf("%.0f", f.Rate),
			fmt.Sprintf("%.2f", f.P50), fmt.Sprintf("%.2f", f.P99), fmt.Sprintf("%.2f", f.Max),
		})
	}
	p50, p99 := freshGoals(all)
	ratio := freshOf(all, ourPeer).Max / freshOf(all, inTreePeer).Max
	return table(append(lines,
		[]string{
			ourPeer.name + " / " + inTreePeer.name, "", "",
			fmt.Sprintf("%.2f", p50.Got), fmt.Sprintf("%.2f", p99.Got), fmt.Sprintf("%.2f", ratio),
		},
		[]string{"target", "", "", p50.cell("%.2f"), p99.cell("%.2f"), ""},
	))
}
