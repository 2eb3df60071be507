package apiserver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// checkTimeout is the least limit of a request of a server check, slowestCheck the largest: a server gives up after a
// minute. The limit is four times the time of the last answer, or doubles after a timeout.
const checkTimeout, slowestCheck = 15 * time.Second, time.Minute

// A serverCheck holds the result of the last server check, which finds what client-go does not: an etcd restored to an
// older state (kubernetes/kubernetes#107457), and another cluster behind the same address.
//
// The [checker] is the only writer of results. It checks after each interval, and when a watch requests it: before
// anything is read over a connection that no check has used, after an attempt that failed, and after a watch that
// ended. Lists and watches wait until the last check passed and covers all connections, so whatever reaches a store is
// from the right server.
//
//	            first check,     passes          ┌────────┐
//	unchecked ─────────────────────────────────► │ passed │ ◄──┐
//	    │                                        └────────┘    │ passes
//	    │ fails: unreachable, unauthorized, replaced  │ fails  │
//	    ▼                                             ▼        │
//	  failed ◄────────────────────────────────────────┴────────┘
//
// A rollback, which the [landmark] shows after an interruption, does not fail the check: all watches list anew.
type serverCheck struct {
	client *Client
	wake   chan struct{} // of the checker
	heard  Contact       // of the last list, event or bookmark of any watch
	doubt  atomic.Bool   // a request got no answer, or an error of the server, since the last check began

	mu       sync.Mutex
	uid      types.UID     // of kube-system; "" as long as it is not known
	err      error         // why the last check failed, nil if it passed; errUnchecked before the first
	dials    uint64        // connections made before the last check that passed
	finished chan struct{} // closed when the next check ends
}

func newServerCheck(client *Client, uid types.UID) *serverCheck {
	return &serverCheck{client: client, wake: make(chan struct{}, 1), uid: uid, err: errUnchecked,
		finished: make(chan struct{})}
}

// failure returns why the last check failed, nil if it passed.
func (c *serverCheck) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *serverCheck) identity() types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uid
}

func (c *serverCheck) expect(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uid = uid
}

// covers reports whether the last check passed and applies to the connections of the client. It applies until a request
// fails, or the client dials again; behind a proxy that closes each connection, until the next check. The channel is
// closed when the next check ends.
func (c *serverCheck) covers() (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && !c.doubt.Load() && (c.dials == c.client.Dials() || c.client.transport.closes.Load()), c.finished
}

// pass records a check that passed. uid is "" if it may not be read.
func (c *serverCheck) pass(uid types.UID, dials uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid == "" {
		c.uid = uid
	}
	c.err, c.dials = nil, dials
	c.finish()
}

// fail records a check that failed.
func (c *serverCheck) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.finish()
}

func (c *serverCheck) finish() {
	close(c.finished)
	c.finished = make(chan struct{})
}

// await returns once a check passed that covers all connections, or when ctx ends.
func (c *serverCheck) await(ctx context.Context) error {
	for {
		covered, finished := c.covers()
		if covered {
			return ctx.Err()
		}
		c.request()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-finished:
		}
	}
}

// request makes the next check come soon. While checks fail, their back-off counts.
func (c *serverCheck) request() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
