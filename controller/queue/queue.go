// Package queue holds the keyed queue that both reconcilers work from (docs/spec/controller.md 10.3).
//
// Client-go's workqueue does what it can: it hands each key to one worker at a time, and its rate limiter counts
// failures. Its delaying queue does not do for the rest. A delay there can be shortened but not extended, which
// debouncing needs; its Done queues a key that changed meanwhile at once, without a delay; and ShutDown does not wait
// for its goroutine. So this package keeps the time of each key, and adds a key to the workqueue only when it is due.
package queue

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// The timing of queues.
const (
	workers  = 8                      // of each queue
	debounce = 300 * time.Millisecond // after the last event of a key
	maxDelay = 2 * time.Second        // after the first event of a key that waits
	// after the first urgent event of a key that waits: others often follow it at once
	urgentDelay = 50 * time.Millisecond
	minBackOff  = 50 * time.Millisecond // after the first failure; doubled by each that follows
	maxBackOff  = time.Minute           //
	itemTimeout = 2 * time.Minute       // of one run for one key
)

// Bounds of the log of one key's failures, until it succeeds.
const (
	maxLogged  = 10   // different failures
	maxCompare = 1024 // characters by which two failures differ
)

// A Config names a queue and what observes it.
type Config struct {
	Name string // in log lines
	Log  logging.Logger
	// Failed is called after each run that failed, Panicked when it panicked. Neither may be nil.
	Failed, Panicked func()
	// Expected reports an error that does not count as a failure and is not logged, though the key is retried: work that
	// was cut off by the end of a term. nil means that no error is.
	Expected func(error) bool
}

// Work handles one key. An error has it run again after a back-off.
type Work func(context.Context, types.NamespacedName) error

// A Queue holds keys until they are due and runs the work for each, in one worker at a time. A key moves like this:
//
//	          Add, AddAfter              due                worker free
//	(absent) ───────────────▶ waiting ─────────▶ queued ─────────────────▶ running
//	   ▲                       ▲   ▲                                       │    │
//	   │ 300 ms without event  │   └── failed, or added while it ran ──────┘    │
//	   └────────────────── resting ◀────────────────── succeeded ───────────────┘
//
// An absent key is due as soon as it is added. A resting one ran less than 300 ms ago. It is due 300 ms after its last
// event by one member, if another member caused none of its events, but at most 2 s after its first and 50 ms after its
// first urgent event. A failed key is due after a back-off from 50 ms to one minute, or for an event that comes
// meanwhile. Every event is followed by a run that begins after it.
//
// Queued keys are in the workqueue, those of priority [Live] first, in turns of the members that changed them and of
// their namespaces: so the many changes of one do not delay those of another. Timers move waiting keys, workers the
// others. Its methods may be called by several goroutines, and before Run.
type Queue struct {
	cfg     Config
	ready   workqueue.TypedInterface[types.NamespacedName] // Add and Done are called with mu held
	backOff workqueue.TypedRateLimiter[types.NamespacedName]
	logged  logging.OnChangeOf[types.NamespacedName, string] // failures

	mu    sync.Mutex
	keys  map[types.NamespacedName]*entry // guarded by mu
	ended bool                            // guarded by mu
	// awaited are the keys of the last AddAll with a next run that has not ended, and whether it has begun. Guarded by
	// mu.
	awaited map[types.NamespacedName]bool
}

// A state is where a key is.
type state uint8

const (
	waiting state = iota // for its time
	queued               // in the workqueue
	running
	resting // remembered only because it ran a moment ago
)

// An entry is one key. The lock of its queue guards it.
type entry struct {
	key      types.NamespacedName
	state    state
	priority Priority // of the next run; unset if not added since it was handed out
	members  []string // that caused the changes for the next run

	started      time.Time // of the last run
	lastPriority Priority  // of that run
	lastMembers  []string  // that caused the changes for that run

	timer *time.Timer // fires at when; nil until first needed
	when  time.Time   // when a waiting key is due, or a resting one is forgotten

	first, last time.Time // events since it was handed out; zero if there was not any
	urgent      time.Time // first urgent one of them, likewise
	runAt       time.Time // by AddAfter while it runs; zero if not called
	since       time.Time // when it began to wait, failures included; zero if it does not
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	q := &Queue{
		cfg:     cfg,
		backOff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minBackOff, maxBackOff),
		keys:    make(map[types.NamespacedName]*entry),
	}
	q.logged.Limit = maxLogged
	q.ready = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{
		Queue: &priorities{causes: q.causes, queued: make(map[types.NamespacedName]Priority)},
	})
	return q
}

// Add notes an event of key: something about it changed in this cluster, or has to be checked.
func (q *Queue) Add(key types.NamespacedName, p Priority) { q.AddOf(ownCluster, key, p) }

// ownCluster stands for this cluster among the members.
const ownCluster = ""

// AddOf notes an event of key that a member caused, "" for this cluster.
func (q *Queue) AddOf(member string, key types.NamespacedName, p Priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(q.entry(key), member, p, time.Now())
}

// AddAll notes an event of each of the keys, behind all that changed. The function that it returns reports, until the
// next AddAll, whether each was run since. A run may have failed.
func (q *Queue) AddAll(keys []types.NamespacedName) (tried func() bool) {
	awaited := make(map[types.NamespacedName]bool, len(keys))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.awaited = awaited
	for _, key := range keys {
		awaited[key] = false
		q.add(q.entry(key), ownCluster, Backlog, time.Now())
	}
	return func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(awaited) == 0
	}
}

// AddUrgent is AddOf for a change that must not wait for those that still follow. The key is not handed out before
// others that are queued.
func (q *Queue) AddUrgent(member string, key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, now := q.entry(key), time.Now()
	if e.urgent.IsZero() {
		e.urgent = now
	}
	q.add(e, member, Live, now)
}

// add notes an event of now.
func (q *Queue) add(e *entry, member string, p Priority, now time.Time) {
	key := e.key
	// those of others do not prolong the wait
	if e.first.IsZero() || len(e.members) == 0 || slices.Equal(e.members, []string{member}) {
		e.last = now
	}
	if e.first.IsZero() {
		e.first = now
	}
	if e.since.IsZero() {
		e.since = now
	}
	if p < e.priority {
		e.members = nil // of its earlier line: the run is for all reasons
	}
	raised := p < e.priority || !slices.Contains(e.members, member)
	if !slices.Contains(e.members, member) {
		e.members = append(e.members, member)
	}
	e.priority = min(e.priority, p)
	switch e.state {
	case running: // finish sees the event
	case queued:
		if raised {
			q.ready.Add(key)
		}
	case waiting:
		// During a back-off an event does not delay the key, but may bring it forward.
		if due := e.due(); q.backOff.NumRequeues(key) == 0 || due.Before(e.when) {
			q.wait(e, due)
		}
	case resting:
		q.wait(e, e.due())
	}
}

// AddAfter runs key after d, or earlier if an event comes first. It counts for the next run only.
func (q *Queue) AddAfter(key types.NamespacedName, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, at := q.entry(key), time.Now().Add(d)
	if e.priority == priorityCount {
		e.priority = Live
	}
	switch e.state {
	case running:
		if e.runAt.IsZero() || at.Before(e.runAt) {
			e.runAt = at
		}
	case waiting:
		if at.Before(e.when) {
			q.wait(e, at)
		}
	case resting:
		q.wait(e, at)
	case queued:
	}
}

// Waiting returns how many keys wait for a run that an event or a failure asks for, and for how long the oldest has
// waited.
func (q *Queue) Waiting() (depth int, age time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, e := range q.keys {
		if (e.state == waiting || e.state == queued) && !e.since.IsZero() {
			depth++
			age = max(age, now.Sub(e.since))
		}
	}
	return depth, age
}

// Run does the work for each key that is due until ctx ends. It returns nil when the last worker is done. It is called
// once.
func (q *Queue) Run(ctx context.Context, do Work) error {
	stop := context.AfterFunc(ctx, q.ready.ShutDown)
	defer stop()
	var g sync.WaitGroup
	for range workers {
		g.Go(func() {
			for q.next(ctx, do) {
			}
		})
	}
	g.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	for _, e := range q.keys {
		if e.timer != nil {
			e.timer.Stop()
		}
	}
	return nil
}

// next runs the work for one key. It reports false when the queue has ended.
func (q *Queue) next(ctx context.Context, do Work) bool {
	key, ended := q.ready.Get()
	if ended {
		return false
	}
	if q.start(ctx, key) {
		q.finish(key, q.try(ctx, key, do) != nil)
	}
	return true
}

// try runs the work and returns a panic as an error. It counts a failure, and logs it if it differs from the key's last
// one; a panic with its stack.
func (q *Queue) try(ctx context.Context, key types.NamespacedName, do Work) (err error) {
	limited, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	defer func() {
		p, stack := recover(), ""
		switch {
		case p != nil:
			q.cfg.Panicked()
			err, stack = fmt.Errorf("panic: %v", p), "\n"+string(debug.Stack())
		case err == nil:
			q.logged.Clear(key)
			return
		case ctx.Err() != nil, q.cfg.Expected != nil && q.cfg.Expected(err):
			return
		}
		q.cfg.Failed()
		if q.logged.Changed(key, fmt.Sprintf("%.*s", maxCompare, err)) {
			q.cfg.Log.Errorf("%s: service %s: %v%s", q.cfg.Name, key, err, stack)
		}
	}()
	return do(limited, key)
}

// start moves a key from queued to running. It reports false, and gives the key back, when ctx has ended and for a key
// that the workqueue handed out twice: raising the priority of one that was just taken queues it again.
func (q *Queue) start(ctx context.Context, key types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.keys[key]
	if ctx.Err() != nil || e == nil || e.state != queued {
		q.ready.Done(key)
		return false
	}
	e.state, e.started = running, time.Now()
	if _, ok := q.awaited[key]; ok {
		q.awaited[key] = true
	}
	e.first, e.last, e.urgent = time.Time{}, time.Time{}, time.Time{}
	e.lastPriority, e.priority, e.lastMembers, e.members = e.priority, priorityCount, e.members, nil
	return true
}

// finish moves a key from running to waiting or resting.
func (q *Queue) finish(key types.NamespacedName, failed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.keys[key]
	q.ready.Done(key)
	if q.awaited[key] {
		delete(q.awaited, key)
	}
	var next time.Time
	earliest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	earliest(e.runAt)
	e.runAt = time.Time{}
	if !e.first.IsZero() {
		earliest(e.due())
	}
	if failed {
		// Keys that failed together are not retried together.
		earliest(time.Now().Add(min(maxBackOff, wait.Jitter(q.backOff.When(key), 0.5))))
	} else {
		q.backOff.Forget(key)
		e.since = e.first
	}
	if next.IsZero() {
		e.state = resting
		q.arm(e, e.started.Add(debounce))
		return
	}
	e.priority = min(e.priority, e.lastPriority)
	if len(e.members) == 0 {
		e.members = e.lastMembers
	}
	q.wait(e, next)
}

// entry returns the entry of key. A new one waits for nothing yet.
func (q *Queue) entry(key types.NamespacedName) *entry {
	e := q.keys[key]
	if e == nil {
		e = &entry{key: key, state: resting, priority: priorityCount}
		q.keys[key] = e
	}
	return e
}

// due returns when a key with events is due for them.
func (e *entry) due() time.Time {
	if e.started.IsZero() || e.first.Sub(e.started) >= debounce {
		return e.first
	}
	at, limit := e.last.Add(debounce), e.first.Add(maxDelay)
	if limit.Before(at) {
		at = limit
	}
	if soon := e.urgent.Add(urgentDelay); !e.urgent.IsZero() && soon.Before(at) {
		return soon
	}
	return at
}

// wait has a key wait until when, or queues it if that is not in the future.
func (q *Queue) wait(e *entry, when time.Time) {
	e.state = waiting
	q.arm(e, when)
}

// arm moves a waiting or resting key on at when. The timer of a key may have fired already and wait for the lock: fire
// compares the clock with e.when again.
func (q *Queue) arm(e *entry, when time.Time) {
	e.when = when
	d := time.Until(when)
	switch {
	case d <= 0:
		q.moveOn(e)
	case q.ended:
	case e.timer == nil:
		e.timer = time.AfterFunc(d, func() { q.fire(e) })
	default:
		e.timer.Reset(d)
	}
}

func (q *Queue) fire(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys[e.key] == e && !q.ended && !time.Now().Before(e.when) {
		q.moveOn(e)
	}
}

// moveOn queues a key that waited and forgets one that rested.
func (q *Queue) moveOn(e *entry) {
	switch e.state {
	case waiting:
		e.state = queued
		if e.since.IsZero() {
			e.since = time.Now()
		}
		q.ready.Add(e.key)
	case resting:
		delete(q.keys, e.key)
	case queued, running:
	}
}

// causes returns the priority and the causing members of a key that is being queued. The caller holds the lock.
func (q *Queue) causes(key types.NamespacedName) (Priority, []string) {
	e := q.keys[key]
	if len(e.members) == 0 {
		return min(e.priority, Backlog), []string{ownCluster}
	}
	return min(e.priority, Backlog), e.members
}
