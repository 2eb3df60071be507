package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
)

const (
	// checkGap is the least time between two checks: a server that ends each watch at once would be asked without a pause.
	checkGap = 250 * time.Millisecond

	// startingAnswers is the number of checks in a row that fail with a 403 where kube-system could be read before: for
	// some seconds after its start, a server has no rights loaded.
	startingAnswers = 5

	// askInterval bounds the time between two requests of checks while events come: events do not test the credential.
	askInterval = time.Minute
)

// A checker checks the server of a [Set] and makes watches list anew after a rollback. Only the goroutines of
// [checker.run] use it.
type checker struct {
	cfg     SetConfig
	check   *serverCheck
	watches []*listWatch
	limit   time.Duration          // of a request
	began   time.Time              // when the last check began
	asked   time.Time              // when the last check began that asked the server
	logged  logging.Failure[Class] // the normal state is passed

	readable int // the number of further answers 403 that do not prove a missing right, see startingAnswers

	group     sync.WaitGroup // of the goroutine that verifies
	mu        sync.Mutex     // guards what follows
	pending   map[schema.GroupResource]*history
	verifying bool
}

// run checks the server at once, then after each interval or on request, until ctx ends. While checks fail, it pauses
// with back-off.
func (c *checker) run(ctx context.Context) {
	defer c.group.Wait()
	backoff := NewBackoff()
	for ctx.Err() == nil {
		begin, pause, wake := time.Now(), c.cfg.Interval, c.check.wake
		if c.checkServer(ctx) {
			backoff = NewBackoff()
		} else {
			pause, wake = backoff.After(c.check.failure()), nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wake:
		}
		timer.Stop()
		if Sleep(ctx, checkGap-time.Since(begin)) != nil {
			return
		}
	}
}

// checkServer reports whether the right server answers. An event since the last check counts as an answer: its
// connection was checked.
func (c *checker) checkServer(ctx context.Context) bool {
	heard := c.check.heard.Last().After(c.began)
	c.began = time.Now()
	covered, _ := c.check.covers()
	if !covered { // events from now on are not verified
		c.interrupted()
		c.check.doubt.Store(false)
	}
	if !covered || !heard || time.Since(c.asked) > askInterval {
		c.asked = c.began
		uid, err := c.askServer(ctx)
		c.fitLimit(time.Since(c.began), err)
		if err != nil {
			return c.fail(ctx, err)
		}
		dials := c.cfg.Client.Dials()
		if covered, _ = c.check.covers(); !covered { // the request may have made a connection
			c.interrupted()
		}
		c.pass(uid, dials)
		c.startVerify(ctx)
	}
	for _, w := range c.watches {
		if stalled := w.markChecked(); stalled != nil {
			stalled.Stop()
		}
		w.askProgress(ctx)
	}
	return true
}

// askServer asks for the UID of kube-system, "" if it may not be read. Without it the history decides.
func (c *checker) askServer(ctx context.Context) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	uid, err := c.cfg.Client.SystemUID(ctx)
	known := c.check.identity()
	switch class := Classify(err); {
	case class == Forbidden && c.readable > 0:
		c.readable--
		return "", apierrors.NewServiceUnavailable(err.Error()) // no right is missing
	case class == Forbidden, class == Absent && known == "":
		return "", nil
	case err != nil:
		return "", err
	case known != "" && known != uid && !c.adoptCluster(uid):
		return "", fmt.Errorf("%w: %s, want %s", ErrReplaced, uid, known)
	}
	c.readable = startingAnswers
	return uid, nil
}

// fitLimit derives the limit of later requests from the time of a check.
func (c *checker) fitLimit(took time.Duration, err error) {
	limit := 4 * took
	if hasNoAnswer(err) {
		limit = 2 * took
	}
	c.limit = min(max(limit, checkTimeout), slowestCheck)
}

// adoptCluster follows another cluster from now on, if the owner of the set agrees. All watches list anew.
func (c *checker) adoptCluster(uid types.UID) bool {
	if c.cfg.Adopt == nil || !c.cfg.Adopt() {
		return false
	}
	c.check.expect(uid)
	rollBack(c.watches, nil)
	return true
}

// pass records a check that passed, and notifies the owner of a change.
func (c *checker) pass(uid types.UID, dials uint64) {
	err := c.check.failure()
	if err != nil && c.cfg.Checked != nil {
		c.cfg.Checked(nil)
	}
	c.check.pass(uid, dials)
	if c.logged.Changed(OK, nil) || errors.Is(err, errUnchecked) {
		c.cfg.Log.Infof("%s: reached %s", c.cfg.Name, c.cfg.Client.Host())
	}
}

// fail records a check that failed, and notifies the owner of a change. It returns false.
func (c *checker) fail(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	class := Classify(err)
	if slow := c.check.heard.Last().After(c.began); hasNoAnswer(err) && !slow || class == Replaced {
		// Without an answer, an open watch may be all that keeps an old server from ending, and no event comes from it any
		// longer; but a server that is only slow sends some meanwhile. A connection to another cluster could last while the
		// address leads to the right one again. A server that answers with an error keeps its open watches: it may just be
		// overloaded.
		c.cfg.Client.Drop()
	}
	before := c.check.failure()
	c.check.fail(err)
	if c.cfg.Checked != nil && (Classify(before) != class || errors.Is(before, errUnchecked)) {
		c.cfg.Checked(err)
	}
	if c.logged.Changed(class, err) {
		class.log(c.cfg.Log, c.cfg.Name, err)
	}
	return false
}

// interrupted saves the present state of the watches, to be verified. A state that is already pending stays.
func (c *checker) interrupted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource, h := range histories(c.watches) {
		switch earlier := c.pending[resource]; {
		case earlier == nil:
			c.pending[resource] = h
		case earlier.version != h.version || earlier.landmark != h.landmark: // the watches went on meanwhile
			earlier.again = true
		}
	}
}

// startVerify verifies the pending histories while checks and watches go on.
func (c *checker) startVerify(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verifying || len(c.pending) == 0 {
		return
	}
	c.verifying = true
	c.group.Go(func() { c.verify(ctx) })
}

// verify makes watches list anew unless the server has their history. It retries until all are known, or ctx ends.
func (c *checker) verify(ctx context.Context) {
	for backoff := NewBackoff(); ; {
		c.mu.Lock()
		all := maps.Clone(c.pending)
		ends := len(all) == 0 || ctx.Err() != nil
		c.verifying = !ends
		c.mu.Unlock()
		if ends {
			return
		}
		if c.verifyOnce(ctx, all) > 0 {
			_ = Sleep(ctx, backoff.After(nil)) // The loop looks at ctx.
		}
	}
}

// verifyOnce asks for all resources at once, and returns the number of unknown ones: the server may be overloaded, or
// may have no rights loaded yet.
func (c *checker) verifyOnce(ctx context.Context, all map[schema.GroupResource]*history) (rest int) {
	var asking sync.WaitGroup
	lost := make(chan error, len(all))
	for resource, h := range all {
		asking.Go(func() {
			err := h.verify(ctx)
			switch class := Classify(err); class {
			case RolledBack:
				lost <- err
			case OK, Absent, Expired:
				c.verified(resource, h, class == Expired)
			}
		})
	}
	asking.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case why := <-lost: // other resources may have lost as much
		clear(c.pending)
		rollBack(c.watches, why)
		c.cfg.RolledBack()
	default:
	}
	return len(c.pending)
}

// verified ends the verification of a history. If the answer is unknown, or the watches were interrupted again, they
// list anew.
func (c *checker) verified(resource schema.GroupResource, h *history, unknown bool) {
	c.mu.Lock()
	unknown = unknown || h.again
	delete(c.pending, resource)
	c.mu.Unlock()
	if unknown {
		rollBack(h.watches, nil)
	}
}
