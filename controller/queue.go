package controller

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/lease"
)

// The names of the two queues, which are also label values.
const (
	queueExports = "exports"
	queueImports = "imports"
)

// The timing of queues (section 10).
const (
	workers     = 8                      // of each queue
	quiet       = 300 * time.Millisecond // after the last event of a key
	patience    = 2 * time.Second        // at most, after the first event of a key that waits
	minBackOff  = 50 * time.Millisecond  // after the first failure; doubled by each that follows
	maxBackOff  = time.Minute            //
	itemTimeout = 2 * time.Minute        // for one service
)

// What is told of the failures of a key in a row, until it succeeds.
const (
	maxTells  = 10   // different ones in turn
	maxTelled = 1024 // octets by which they differ
)

// errPanic is the failure of work that panicked.
var errPanic = errors.New("panic")

// A queue hands each key to one worker at a time: at once the first time, then when its events have paused. Keys of the
// start-up backlog wait for all others. Its methods may be called from several goroutines.
type queue struct {
	name    string
	log     logging.Logger
	metrics *Metrics

	mu    sync.Mutex
	ready *sync.Cond // a key is ready, or the queue ends
	keys  schedule   // guarded by mu
	timer *time.Timer
	ended bool
}

func newQueue(name string, log logging.Logger, m *Metrics) *queue {
	q := &queue{name: name, log: log, metrics: m, keys: newSchedule()}
	q.ready = sync.NewCond(&q.mu)
	return q
}

// addBacklog says that the service has to be looked at some time soon.
func (q *queue) addBacklog(svc types.NamespacedName) { q.put(svc, backlog) }

// addIn looks at the service after d, or earlier if something changes. It counts for the next look only.
func (q *queue) addIn(svc types.NamespacedName, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys.at(svc, time.Now().Add(d))
	q.wake()
}

// put says that something about the service changed, or has to be looked at.
func (q *queue) put(svc types.NamespacedName, l lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys.add(svc, l, time.Now())
	q.wake()
}

// wake makes what is due ready, tells the workers, and sets the timer for what is due next. The caller holds the lock.
func (q *queue) wake() {
	if q.ended {
		return
	}
	now := time.Now()
	if n := q.keys.advance(now); n > 0 {
		q.ready.Broadcast()
	}
	next, some := q.keys.next()
	switch {
	case !some:
	case q.timer == nil:
		q.timer = time.AfterFunc(next.Sub(now), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.wake()
		})
	default:
		q.timer.Reset(next.Sub(now))
	}
}

// waiting returns how many services wait, and for how long the one has that waits longest.
func (q *queue) waiting() (depth int, age time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keys.waiting(time.Now())
}

// work is what is done for a service.
type work func(context.Context, types.NamespacedName) error

// run does the work for each key that is due until ctx ends, and returns when the last of it is done.
func (q *queue) run(ctx context.Context, do work) error {
	stop := context.AfterFunc(ctx, q.end)
	defer stop()
	var g errgroup.Group
	for range workers {
		g.Go(func() error {
			for {
				svc, ok := q.take()
				if !ok {
					return nil
				}
				q.finish(ctx, svc, q.try(ctx, svc, do))
			}
		})
	}
	return g.Wait()
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.ready.Broadcast()
}

// take returns a key that is ready, and waits for one. It reports false when the queue ends.
func (q *queue) take() (types.NamespacedName, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.ended {
			return types.NamespacedName{}, false
		}
		if svc, ok := q.keys.take(time.Now()); ok {
			return svc, true
		}
		q.ready.Wait()
	}
}

// try makes an error of a panic, and tells of each: where it came from is known only here.
func (q *queue) try(ctx context.Context, svc types.NamespacedName, do work) (err error) {
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			q.metrics.panicked()
			err = fmt.Errorf("%w: %v", errPanic, p)
			q.log.Errorf("%s: service %s: %v\n%s", q.name, svc, err, debug.Stack())
		}
	}()
	return do(ctx, svc)
}

// finish tells of a failure that is another than the one before. Failing is how work ends when ctx does, or the leadership.
func (q *queue) finish(ctx context.Context, svc types.NamespacedName, err error) {
	ending := ctx.Err() != nil || errors.Is(err, lease.ErrNotHeld)
	if err != nil && !ending {
		q.metrics.failed(q.name)
	}
	q.mu.Lock()
	tell := err != nil && !ending && !errors.Is(err, errPanic) && q.keys.news(svc, cutText(err.Error(), maxTelled))
	q.keys.done(svc, err != nil, time.Now(), rand.Float64())
	q.wake()
	q.mu.Unlock()
	if tell {
		q.log.Errorf("%s: service %s: %v", q.name, svc, err)
	}
}

// A lane says who goes first.
type lane uint8

const (
	live    lane = iota // something changed
	backlog             // the initial list, and whatever concerns all services
	lanes
)

// A phase is where a key is.
type phase uint8

const (
	resting phase = iota // done; remembered only to know that it ran a moment ago
	pending              // waits for its time
	due                  // waits for a worker
	running
)

// A schedule decides which key is handed out when. It has no clock and no goroutine; time only goes forward. At any moment a
// key is in at most one worker, and one that was added since it was last handed out is pending, due, or running and to run
// again.
type schedule struct {
	entries map[types.NamespacedName]*entry
	waits   waits           // pending, and resting ones to forget
	ready   [lanes][]*entry // due, first come first served; entries that changed lanes are in the wrong one too
}

// An entry is the state of one key.
type entry struct {
	svc   types.NamespacedName
	phase phase
	lane  lane      // it waits in; lanes if it has not been added since it was handed out
	took  lane      // it was handed out from
	index int       // in waits, -1 if not there
	when  time.Time // at which a pending one is due, or a resting one forgotten
	ran   time.Time // when it was last handed out

	again       bool      // added while running
	first, last time.Time // events since it was last handed out; zero if none
	wish        time.Time // at which it is to run at the latest, zero if not said; counts while running
	since       time.Time // when it began to wait, failures included; zero if it does not
	fails       int       // in a row
	told        string    // the last of them that was told
	tells       int       // how many of them were
}

func newSchedule() schedule { return schedule{entries: make(map[types.NamespacedName]*entry)} }

func (s *schedule) entry(svc types.NamespacedName) *entry {
	e := s.entries[svc]
	if e == nil {
		e = &entry{svc: svc, index: -1, lane: lanes}
		s.entries[svc] = e
	}
	return e
}

// add notes an event.
func (s *schedule) add(svc types.NamespacedName, l lane, now time.Time) {
	e := s.entry(svc)
	if e.first.IsZero() {
		e.first = now
	}
	if e.since.IsZero() {
		e.since = now
	}
	e.last = now
	raised := l < e.lane
	if raised {
		e.lane = l
	}
	switch e.phase {
	case running:
		e.again = true
	case due:
		if raised {
			s.ready[l] = append(s.ready[l], e)
		}
	case pending:
		// While it backs off from a failure an event does not put it off, but may bring it forward.
		if next := e.coalesced(); e.fails == 0 || next.Before(e.when) {
			s.wait(e, next)
		}
	default:
		e.phase = pending
		s.wait(e, e.coalesced())
	}
}

// coalesced returns when a key is due for its events: at once if it did not run a moment ago.
func (e *entry) coalesced() time.Time {
	if e.ran.IsZero() || e.first.Sub(e.ran) >= quiet {
		return e.first
	}
	at, limit := e.last.Add(quiet), e.first.Add(patience)
	if limit.Before(at) {
		return limit
	}
	return at
}

// at has the key run at the given time, if nothing makes it run earlier.
func (s *schedule) at(svc types.NamespacedName, when time.Time) {
	e := s.entry(svc)
	if e.lane == lanes {
		e.lane = live
	}
	switch e.phase {
	case running:
		if e.wish.IsZero() || when.Before(e.wish) {
			e.wish = when
		}
	case pending:
		if when.Before(e.when) {
			s.wait(e, when)
		}
	case resting:
		e.phase = pending
		s.wait(e, when)
	}
}

func (s *schedule) wait(e *entry, when time.Time) {
	e.when = when
	if e.index >= 0 {
		heap.Fix(&s.waits, e.index)
		return
	}
	heap.Push(&s.waits, e)
}

// next returns the time of the next [schedule.advance] that changes anything.
func (s *schedule) next() (time.Time, bool) {
	if len(s.waits) == 0 {
		return time.Time{}, false
	}
	return s.waits[0].when, true
}

// advance makes keys due whose time has come, and returns how many.
func (s *schedule) advance(now time.Time) (n int) {
	for len(s.waits) > 0 && !s.waits[0].when.After(now) {
		e := heap.Pop(&s.waits).(*entry)
		if e.phase == resting {
			delete(s.entries, e.svc)
			continue
		}
		e.phase = due
		if e.since.IsZero() {
			e.since = now
		}
		s.ready[e.lane] = append(s.ready[e.lane], e)
		n++
	}
	return n
}

// take hands out a key that is due.
func (s *schedule) take(now time.Time) (types.NamespacedName, bool) {
	for l := range s.ready {
		for len(s.ready[l]) > 0 {
			e := s.ready[l][0]
			s.ready[l][0] = nil
			s.ready[l] = s.ready[l][1:]
			if e.phase != due || e.lane != lane(l) {
				continue
			}
			e.phase, e.ran = running, now
			e.first, e.last, e.took, e.lane, e.again = time.Time{}, time.Time{}, e.lane, lanes, false
			return e.svc, true
		}
	}
	return types.NamespacedName{}, false
}

// done takes back a key that was handed out, and returns how often in a row it failed. jitter is from 0 to 1.
func (s *schedule) done(svc types.NamespacedName, failed bool, now time.Time, jitter float64) int {
	e := s.entries[svc]
	if e == nil || e.phase != running {
		panic("queue: a key that nobody works on is done")
	}
	var times []time.Time
	if e.again {
		times = append(times, e.coalesced())
	}
	if !e.wish.IsZero() {
		times = append(times, e.wish)
	}
	if failed {
		e.fails++
		times = append(times, now.Add(backOff(e.fails, jitter)))
	} else {
		e.fails, e.since = 0, e.first
		e.told, e.tells = "", 0
	}
	e.wish, e.again = time.Time{}, false
	if len(times) == 0 {
		e.phase = resting
		s.wait(e, e.ran.Add(quiet))
		return e.fails
	}
	e.phase, e.lane = pending, min(e.lane, e.took)
	s.wait(e, slices.MinFunc(times, time.Time.Compare))
	return e.fails
}

// news reports whether to tell of a failure of a key that was handed out.
func (s *schedule) news(svc types.NamespacedName, failure string) bool {
	e := s.entries[svc]
	if e == nil || e.told == failure || e.tells >= maxTells {
		return false
	}
	e.told = failure
	e.tells++
	return true
}

// backOff returns how long a key waits that failed so often in a row; jitter adds up to a half.
func backOff(fails int, jitter float64) time.Duration {
	d := maxBackOff
	if fails < 16 {
		d = min(d, minBackOff<<(fails-1))
	}
	return min(maxBackOff, d+time.Duration(jitter*float64(d)/2))
}

func (s *schedule) waiting(now time.Time) (depth int, age time.Duration) {
	for _, e := range s.entries {
		if e.phase != pending && e.phase != due || e.since.IsZero() {
			continue
		}
		depth++
		age = max(age, now.Sub(e.since))
	}
	return depth, age
}

// waits is a heap of entries, the earliest first.
type waits []*entry

func (w waits) Len() int           { return len(w) }
func (w waits) Less(i, j int) bool { return w[i].when.Before(w[j].when) }
func (w waits) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

// Push implements [heap.Interface].
func (w *waits) Push(x any) {
	e := x.(*entry)
	e.index = len(*w)
	*w = append(*w, e)
}

// Pop implements [heap.Interface].
func (w *waits) Pop() any {
	last := len(*w) - 1
	e := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	e.index = -1
	return e
}
