package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
)

const (
	// checkTimeout is the least limit of a request of a server check, slowestCheck the largest: a server gives up after a minute.
	// The limit is four times the time of the last answer, or doubles after a timeout.
	checkTimeout, slowestCheck = 15 * time.Second, time.Minute

	// checkGap is the least time between two checks: a server that ends each watch at once would be asked without a pause.
	checkGap = 250 * time.Millisecond

	// askInterval is the most time between two requests of checks while events come: they say nothing about the credential.
	askInterval = time.Minute
)

// A serverCheck holds the result of the last server check, which finds what client-go does not: an etcd restored to an older
// state (kubernetes/kubernetes#107457), and another cluster behind the same address.
//
// Set.runChecks is the only writer. It checks after each interval, and when a watch requests it: before anything is read
// over a connection that no check has used, after an attempt that failed, and after a watch that ended. Lists and watches
// wait in Set.awaitCheck until the last check passed and covers all connections, so whatever reaches a store is from the
// right server.
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
	logged logging.Failure[Class] // the normal state is passed

	mu       sync.Mutex
	uid      types.UID // of kube-system; "" as long as it is not known
	passed   bool
	err      error // why the last check failed; errUnchecked before the first
	since    time.Time
	dials    uint64        // connections made before the last check that passed
	finished chan struct{} // closed when the next check ends
}

func newServerCheck(uid types.UID) *serverCheck {
	return &serverCheck{uid: uid, err: errUnchecked, finished: make(chan struct{})}
}

// failure returns why the last check failed, nil if it passed, and since when that is so.
func (c *serverCheck) failure() (since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.err
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

// covers reports whether the last check passed and applies to the connections of client. It applies until the client dials
// again; behind a proxy that closes each connection, until the next check. The channel is closed when the next check ends.
func (c *serverCheck) covers(client *Client) (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed && (c.dials == client.Dials() || client.transport.closes.Load()), c.finished
}

// next returns a channel that is closed when the next check ends.
func (c *serverCheck) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finished
}

// pass records a check that passed. uid is "" if it may not be read.
func (c *serverCheck) pass(uid types.UID, dials uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid == "" {
		c.uid = uid
	}
	if !c.passed {
		c.since = time.Now()
	}
	c.passed, c.err, c.dials = true, nil, dials
	c.finish()
}

// fail records a check that failed.
func (c *serverCheck) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.passed || Classify(c.err) != Classify(err) {
		c.since = time.Now()
	}
	c.passed, c.err = false, err
	c.finish()
}

func (c *serverCheck) finish() {
	close(c.finished)
	c.finished = make(chan struct{})
}

// awaitCheck returns once a check passed that covers all connections, or when ctx ends.
func (s *Set) awaitCheck(ctx context.Context) error {
	for {
		covered, finished := s.check.covers(s.cfg.Client)
		if covered {
			return ctx.Err()
		}
		s.requestCheck()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-finished:
		}
	}
}

// requestCheck makes the next check come soon. While checks fail, their back-off counts.
func (s *Set) requestCheck() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// runChecks checks the server at once, then after each interval or on request, until ctx ends. While checks fail, or the history is
// in doubt, it pauses with back-off.
func (s *Set) runChecks(ctx context.Context) {
	backoff := NewBackoff()
	for ctx.Err() == nil {
		begin, pause, wake := time.Now(), s.cfg.Interval, s.wake
		switch passed := s.checkServer(ctx); {
		case !passed:
			_, err := s.check.failure()
			pause, wake = backoff.After(err), nil
		case s.doubt.Load():
			pause = min(pause, backoff.After(nil))
		default:
			backoff = NewBackoff()
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

// checkServer checks whether the server is the one that is followed and still has what it sent, and reports whether so. An event since the
// last check is as good as an answer: it came over a connection that is checked.
func (s *Set) checkServer(ctx context.Context) bool {
	heard := s.heard.Last().After(s.began)
	s.began = time.Now()
	if covered, _ := s.check.covers(s.cfg.Client); !covered || s.doubt.Load() || !heard || time.Since(s.asked) > askInterval {
		s.asked = s.began
		uid, dials, err := s.askServer(ctx)
		s.fitLimit(time.Since(s.began), err)
		if err != nil {
			return s.failCheck(ctx, err)
		}
		s.passCheck(uid, dials)
	}
	for _, w := range s.watches {
		if stalled := w.markChecked(); stalled != nil {
			stalled.Stop()
		}
	}
	return true
}

// askServer asks for the UID of kube-system and, after an interruption, for the history. uid is "" if it may not be read.
func (s *Set) askServer(ctx context.Context) (uid types.UID, dials uint64, err error) {
	err = s.ask(ctx, func(ctx context.Context) (err error) {
		uid, err = s.cfg.Client.SystemUID(ctx)
		return err
	})
	known := s.check.identity()
	switch class := Classify(err); {
	case class == Forbidden, class == Absent && known == "": // without a UID the history decides
	case err != nil:
		return "", 0, err
	case known != "" && known != uid && !s.adopt(uid):
		return "", 0, fmt.Errorf("%w: %s, want %s", ErrReplaced, uid, known)
	}
	dials = s.cfg.Client.Dials()
	if covered, _ := s.check.covers(s.cfg.Client); s.doubt.Swap(false) || !covered {
		err = s.verify(ctx)
	}
	return uid, dials, err
}

// ask sends one request of a check with the limit that fits the server.
func (s *Set) ask(ctx context.Context, send func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, max(checkTimeout, s.limit))
	defer cancel()
	return send(limited)
}

// fitLimit makes the limit of later requests fit what a check took.
func (s *Set) fitLimit(took time.Duration, err error) {
	if s.limit = 4 * took; unanswered(err) {
		s.limit = 2 * took
	}
	s.limit = min(s.limit, slowestCheck)
}

// adopt makes another cluster the one that is followed, if the owner of the set wants that. All watches list anew.
func (s *Set) adopt(uid types.UID) bool {
	if s.cfg.Adopt == nil || !s.cfg.Adopt() {
		return false
	}
	s.check.expect(uid)
	s.rollBack(s.watches, nil)
	return true
}

// passCheck records a check that passed, and notifies of what is new.
func (s *Set) passCheck(uid types.UID, dials uint64) {
	_, err := s.check.failure()
	if err != nil && s.cfg.Checked != nil {
		s.cfg.Checked(nil)
	}
	s.check.pass(uid, dials)
	if s.check.logged.Changed(OK, nil) || errors.Is(err, errUnchecked) {
		s.cfg.Log.Infof("%s: reached %s", s.cfg.Name, s.cfg.Client.Host())
	}
}

// failCheck records a check that failed, and notifies of what is new. It reports false.
func (s *Set) failCheck(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	class := Classify(err)
	if slow := s.heard.Last().After(s.began); unanswered(err) && !slow || class == Replaced {
		// Without an answer, an open watch may be all that keeps an old server from ending, and no event comes from it any
		// longer; but a server that is only slow sends some meanwhile. A connection to another cluster could last while the address
		// leads to the right one again. A server that answers with an error keeps its open watches: it may just be overloaded.
		s.cfg.Client.Drop()
	}
	_, before := s.check.failure()
	s.check.fail(err)
	if Classify(before) != class || errors.Is(before, errUnchecked) {
		if s.cfg.Checked != nil {
			s.cfg.Checked(err)
		}
	}
	if s.check.logged.Changed(class, err) {
		class.log(s.cfg.Log, s.cfg.Name, err)
	}
	return false
}

// ListAnew restarts all watches with a list from no version. Call it when something else shows that the server was restored from
// a backup.
func (s *Set) ListAnew() {
	s.rollBack(s.watches, errRolledBack)
	s.cfg.RolledBack()
}

// rollBack makes watches list anew, all of them before the first can. A reason of nil means that it is no failure.
func (s *Set) rollBack(watches []*listWatch, why error) {
	var open []*watchProxy
	for _, w := range watches {
		open = append(open, w.rollBack(why))
	}
	for _, p := range open {
		if p != nil {
			p.Stop()
		}
	}
}

// unanswered reports whether err means that no API server answered: the connection was refused or broke, or the time was over.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return Classify(err) == Unreachable && !errors.As(err, &status)
}
