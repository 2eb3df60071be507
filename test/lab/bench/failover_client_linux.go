package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/netns"
)

// clientPause is between two connections of a client, and between two looks at something.
const clientPause = 10 * time.Millisecond

// A clientGroup is clients that end together.
type clientGroup struct {
	running sync.WaitGroup
	cancels []context.CancelFunc
}

// A client connects from a node to an address, one connection after the other, and remembers where they landed.
type client struct {
	proxy string // how kube-proxy of the node is set
	node  *netns.Node
	to    netip.AddrPort

	mu       sync.Mutex
	landings []landing
}

// A landing is one connection.
type landing struct {
	begun, ended time.Time
	cluster      string // that accepted it
	err          error
}

func (c *clientGroup) start(ctx context.Context, node *netns.Node, proxy string, to netip.AddrPort) *client {
	ctx, cancel := context.WithCancel(ctx)
	c.cancels = append(c.cancels, cancel)
	one := &client{proxy: proxy, node: node, to: to}
	c.running.Go(func() { one.run(ctx) })
	return one
}

func (c *clientGroup) stop() {
	for _, cancel := range c.cancels {
		cancel()
	}
	c.running.Wait()
}

func (c *client) run(ctx context.Context) {
	for pause(ctx, clientPause) == nil {
		l := landing{begun: time.Now()}
		reply, err := c.node.Connect(ctx, c.to)
		l.ended, l.cluster, l.err = time.Now(), reply.Cluster, err
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.landings = append(c.landings, l)
		c.mu.Unlock()
	}
}

// forget leaves out of count and landed what was so far.
func (c *client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.landings = nil
}

// count returns how many connections there were, and how many of them failed.
func (c *client) count() (made, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.landings {
		if l.err != nil {
			failed++
		}
	}
	return len(c.landings), failed
}

// landed waits for the first connection that began at that time or later and landed in the cluster, and returns when
// that was.
func (c *client) landed(ctx context.Context, cluster string, since time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, crossPatience)
	defer cancel()
	for {
		at, last := c.find(cluster, since)
		if !at.IsZero() {
			return at, nil
		}
		if err := pause(ctx, clientPause); err != nil {
			return at, fmt.Errorf("connection from %s to %s: want one in %s, the last was in %q (%w): %w",
				c.node.Cluster, c.to, cluster, last.cluster, last.err, err)
		}
	}
}

// find returns when the first such connection landed, zero if there is none, and the last connection.
func (c *client) find(cluster string, since time.Time) (at time.Time, last landing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.landings {
		if at.IsZero() && l.err == nil && l.cluster == cluster && !l.begun.Before(since) {
			at = l.ended
		}
		last = l
	}
	return at, last
}
