package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func service(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// A day is a schedule and the time in it.
type day struct {
	schedule
	start, now time.Time
}

func newDay() *day {
	start := time.Unix(1_700_000_000, 0)
	return &day{newSchedule(), start, start}
}

// Section 10: the first change at once, then when there was none for 300 ms, but after 2 s at the latest.
func TestScheduleTiming(t *testing.T) {
	for _, tt := range []struct {
		name string
		adds []int // in ms from the start; each run takes no time
		want string
	}{
		{name: "one change", adds: []int{0}, want: "0"},
		{name: "long apart", adds: []int{0, 300, 1000}, want: "0 300 1000"},
		{name: "a second one soon waits for quiet", adds: []int{0, 100}, want: "0 400"},
		{name: "each further one puts it off", adds: []int{0, 100, 350, 600}, want: "0 900"},
		{name: "but not for ever", adds: []int{0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2200}, want: "0 2200"},
		{name: "after a burst it is quiet again", adds: []int{0, 100, 800}, want: "0 400 800"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDay()
			var got []string
			for ms := 0; ms <= 10_000; ms++ {
				d.now = d.start.Add(time.Duration(ms) * time.Millisecond)
				for _, at := range tt.adds {
					if at == ms {
						d.add(service("db"), live, d.now)
					}
				}
				d.advance(d.now)
				if svc, ok := d.take(d.now); ok {
					got = append(got, fmt.Sprint(ms))
					d.done(svc, false, d.now, 0)
				}
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("changes at %v ran at %s, want %s", tt.adds, text, tt.want)
			}
			if len(d.entries) > 0 || len(d.waits) > 0 {
				t.Errorf("%d keys are remembered after 10 s, want none", len(d.entries))
			}
		})
	}
}

func TestScheduleFailures(t *testing.T) {
	d := newDay()
	d.add(service("db"), live, d.now)
	d.advance(d.now)
	for i, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000} {
		if _, ok := d.take(d.now); !ok {
			t.Fatalf("failure %d: nothing is due", i)
		}
		if fails := d.done(service("db"), true, d.now, 0); fails != i+1 {
			t.Errorf("failures in a row = %d, want %d", fails, i+1)
		}
		if next, _ := d.next(); next.Sub(d.now) != want*time.Millisecond {
			t.Errorf("failure %d: waits for %s, want %s", i+1, next.Sub(d.now), want*time.Millisecond)
		}
		d.now, _ = d.next()
		d.advance(d.now)
	}
	if depth, age := d.waiting(d.now); depth != 1 || age != d.now.Sub(d.start) {
		t.Errorf("waiting = %d for %s, want 1 since the change, for %s", depth, age, d.now.Sub(d.start))
	}

	// A change during the back-off does not have to wait for its end, and success ends the row.
	d.take(d.now)
	d.done(service("db"), true, d.now, 0)
	d.now = d.now.Add(time.Second)
	d.add(service("db"), live, d.now)
	if next, _ := d.next(); next.After(d.now) {
		t.Errorf("a change while a key backs off waits for %s, want 0", next.Sub(d.now))
	}
	d.advance(d.now)
	d.take(d.now)
	if fails := d.done(service("db"), false, d.now, 0); fails != 0 {
		t.Errorf("failures in a row = %d after success, want 0", fails)
	}
}

// What differs each time is told no more after a while, until the key has succeeded.
func TestScheduleNews(t *testing.T) {
	d := newDay()
	fail := func(text string) bool {
		d.add(service("a"), live, d.now)
		d.advance(d.now)
		d.take(d.now)
		tell := d.news(service("a"), text)
		d.done(service("a"), true, d.now, 0)
		d.now = d.now.Add(2 * maxBackOff)
		return tell
	}
	for n := range maxTells + 3 {
		if got, want := fail(fmt.Sprint(n)), n < maxTells; got != want {
			t.Errorf("failure %d: told = %t, want %t", n, got, want)
		}
	}
	d.advance(d.now)
	d.take(d.now)
	d.done(service("a"), false, d.now, 0)
	d.now = d.now.Add(maxBackOff)
	if first, again := fail("x"), fail("x"); !first || again {
		t.Errorf("told = %t, again %t after a success, want it once", first, again)
	}
}

func TestBackOffJitter(t *testing.T) {
	for _, fails := range []int{1, 3, 11, 12, 100} {
		low, high := backOff(fails, 0), backOff(fails, 1)
		if high < low || high > low*3/2 || high > maxBackOff || low < minBackOff {
			t.Errorf("back-off after %d failures = %s to %s, want at most half more, from %s to %s", fails, low, high, minBackOff, maxBackOff)
		}
	}
}

// Section 10: live changes are not kept waiting by the start-up backlog.
func TestScheduleLanes(t *testing.T) {
	d := newDay()
	for i := range 5000 {
		d.add(service(fmt.Sprint("old-", i)), backlog, d.now)
	}
	d.advance(d.now)
	d.add(service("new"), live, d.now)
	d.advance(d.now)
	d.add(service("old-4999"), live, d.now) // is in the backlog already
	for _, want := range []string{"new", "old-4999", "old-0"} {
		if got, ok := d.take(d.now); !ok || got.Name != want {
			t.Errorf("next = %v, want %s", got, want)
		}
	}
	seen := map[types.NamespacedName]bool{}
	for svc, ok := d.take(d.now); ok; svc, ok = d.take(d.now) {
		if seen[svc] {
			t.Fatalf("%s is handed out twice", svc)
		}
		seen[svc] = true
	}
	if len(seen) != 4998 {
		t.Errorf("%d more keys, want 4998", len(seen))
	}

	// What fails is tried again in the lane where it was.
	d.done(service("old-0"), true, d.now, 0)
	d.now = d.now.Add(time.Second)
	d.advance(d.now)
	d.add(service("newer"), live, d.now)
	d.advance(d.now)
	if got, _ := d.take(d.now); got.Name != "newer" {
		t.Errorf("next = %s, want newer before a failure of the backlog", got)
	}
}

func TestScheduleWishes(t *testing.T) {
	d := newDay()
	at := func(d2 time.Duration) time.Time { return d.start.Add(d2) }
	d.at(service("db"), at(time.Minute))
	d.at(service("db"), at(time.Hour))
	if next, _ := d.next(); !next.Equal(at(time.Minute)) {
		t.Errorf("due at %s, want the earlier wish", next.Sub(d.start))
	}
	if depth, _ := d.waiting(at(time.Second)); depth != 0 {
		t.Errorf("depth = %d, want 0: nothing waits before its time", depth)
	}
	d.now = at(time.Minute)
	d.advance(d.now)
	d.take(d.now)
	d.at(service("db"), at(time.Hour)) // said while it runs, as reconcilers do
	d.done(service("db"), false, d.now, 0)
	if next, ok := d.next(); !ok || !next.Equal(at(time.Hour)) {
		t.Errorf("due at %s, want an hour", next.Sub(d.start))
	}
}

// The laws of a schedule, under any interleaving: what was added is handed out after that, to one worker at a time, and never
// later than 2 s after the change if a worker is free and it does not fail.
func TestScheduleLaws(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDay()
		running := map[types.NamespacedName]bool{}
		changed := map[types.NamespacedName]time.Time{} // since when a change waits to be seen
		failed := map[types.NamespacedName]bool{}
		take := func() {
			d.advance(d.now)
			svc, ok := d.take(d.now)
			if !ok {
				return
			}
			if running[svc] {
				t.Fatalf("seed %d: %s is handed out twice", seed, svc)
			}
			running[svc] = true
			delete(changed, svc)
		}
		done := func(svc types.NamespacedName, fails bool) {
			delete(running, svc)
			failed[svc] = fails
			d.done(svc, fails, d.now, r.Float64())
		}
		for range 2000 {
			svc := service(fmt.Sprint(r.IntN(10)))
			switch r.IntN(4) {
			case 0:
				d.add(svc, lane(r.IntN(2)), d.now)
				if _, waits := changed[svc]; !waits {
					changed[svc] = d.now
				}
			case 1:
				take()
			case 2:
				if running[svc] {
					done(svc, r.IntN(5) == 0)
				}
			case 3:
				d.now = d.now.Add(time.Duration(r.IntN(100)) * time.Millisecond)
			}
		}
		for svc := range running {
			done(svc, false)
		}
		d.now = d.now.Add(patience)
		for range 20 {
			take()
		}
		for svc := range changed {
			t.Errorf("seed %d: a change of %s is lost (%+v)", seed, svc, d.entries[svc])
		}
		for svc := range running {
			done(svc, false)
		}
		d.now = d.now.Add(2 * maxBackOff)
		for range 20 {
			d.advance(d.now)
			if svc, ok := d.take(d.now); ok {
				if !failed[svc] {
					t.Errorf("seed %d: %s runs, and neither changed nor failed", seed, svc)
				}
				done(svc, false)
			}
		}
		if d.now = d.now.Add(time.Minute); d.advance(d.now) > 0 || len(d.entries) > 0 {
			t.Errorf("seed %d: %d keys are left, want none", seed, len(d.entries))
		}
	}
}

// A panic is one failed attempt of one key; whatever happens, run returns only when its workers have.
func TestQueueRecoversPanics(t *testing.T) {
	m := NewMetrics(nil)
	log := &journal{}
	q := newQueue(queueImports, log, m)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	attempts := map[string]int{}
	ended := make(chan error, 1)
	go func() {
		ended <- q.run(ctx, func(_ context.Context, svc types.NamespacedName) error {
			mu.Lock()
			defer mu.Unlock()
			attempts[svc.Name]++
			switch {
			case svc.Name == "panics" && attempts[svc.Name] < 3:
				panic("out of order")
			case svc.Name == "fails" && attempts[svc.Name] < 3:
				return errors.New("no such luck")
			case svc.Name == "fails" && attempts[svc.Name] < 4:
				return errors.New("another trouble")
			}
			return nil
		})
	}()
	for _, name := range []string{"panics", "fails", "works"} {
		q.put(service(name), live)
	}
	await(t, "all keys are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return attempts["panics"] == 3 && attempts["fails"] == 4 && attempts["works"] == 1
	})
	await(t, "the queue is empty", func() bool { depth, age := q.waiting(); return depth == 0 && age == 0 })
	if got := testutil.ToFloat64(m.panics); got != 2 {
		t.Errorf("panics = %v, want 2", got)
	}
	if got := testutil.ToFloat64(m.errors.WithLabelValues(queueImports)); got != 5 {
		t.Errorf("errors = %v, want 5", got)
	}
	for text, want := range map[string]int{
		"panic: out of order\ngoroutine": 2, "TestQueueRecoversPanics": 2, "no such luck": 1, "another trouble": 1,
	} {
		if got := log.count(text); got != want {
			t.Errorf("%q is told %d times, want %d: %s", text, got, want, log)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

// await waits until ok returns true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	until.True(t, what, ok)
}

// A journal is a Logger that remembers.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) Infof(format string, args ...any)    { j.add("info: "+format, args...) }
func (j *journal) Warningf(format string, args ...any) { j.add("warning: "+format, args...) }
func (j *journal) Errorf(format string, args ...any)   { j.add("error: "+format, args...) }

func (j *journal) count(part string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}
