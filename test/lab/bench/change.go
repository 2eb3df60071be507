package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	freshRate = 200
	// More changes than these are not under way at once; the API server is too slow for the rate then.
	freshOutstanding = 16
	freshPatience    = 10 * time.Second
)

// mostChanges is the rate of as many changes as can be under way.
const mostChanges = 0

// A fresh is the zone that changes and the servers that follow it.
type fresh struct {
	*flips
	b       *bench
	servers []*server
	file    string             // questions that no change makes wrong, packed
	rcodes  map[string]float64 // of their answers
}

// A pace is how often which of some things are changed.
type pace struct {
	rate        int // changes a second; 0 means as many as can be under way
	things      int
	outstanding int // changes that are under way at most
}

// run changes things, given by their index, until stop is closed, and returns how many. Each comes once before any
// comes again: no change is to overtake another of the same thing.
func (p pace) run(ctx context.Context, stop <-chan struct{}, change func(context.Context, int) error) (int, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.outstanding)
	order := rand.Perm(p.things)
	due, quit := p.due()
	defer quit()
	for n := 0; ; {
		i := order[n%len(order)]
		g.Go(func() error { return change(ctx, i) })
		n++
		select {
		case <-due:
		case <-stop:
			return n, g.Wait()
		case <-ctx.Done():
			return n, cmp.Or(g.Wait(), context.Cause(ctx))
		}
	}
}

// due sends the time of each next change until quit is called.
func (p pace) due() (due <-chan time.Time, quit func()) {
	if p.rate == mostChanges {
		always := make(chan time.Time)
		close(always)
		return always, func() {}
	}
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	return tick.C, tick.Stop
}

// flips gives hosts new addresses.
type flips struct {
	cluster *cluster
	next    atomic.Int64 // the number of the next address
}

// at returns the pace of so many changes a second.
func (f *flips) at(rate int) pace {
	return pace{rate: rate, things: len(f.cluster.services), outstanding: freshOutstanding}
}

// flip changes the address of the first endpoint of the i-th service.
func (f *flips) flip(ctx context.Context, i int) (host string, addr netip.Addr, err error) {
	s := f.cluster.services[i]
	host, addr = s.host(0, 0), endpointAddr(int(f.next.Add(1)))
	slice := s.slice(clusters[0], 0, s.start(1))
	slice.Endpoints[0].Addresses = []string{addr.String()}
	_, err = f.cluster.kube.DiscoveryV1().EndpointSlices(s.namespace).Update(ctx, slice, metav1.UpdateOptions{})
	if err != nil {
		err = fmt.Errorf("change of %s: %w", host, err)
	}
	return host, addr, err
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

func rateText(rate int) string {
	if rate == mostChanges {
		return "as many as possible"
	}
	return fmt.Sprint(rate)
}
