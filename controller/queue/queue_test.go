package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

func service(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// observed is a queue under test with what it counts. Its clock is that of the synctest bubble.
type observed struct {
	*Queue
	log              logtest.Recorder
	failures, panics int // guarded by mu, as is what the work of a test records
	mu               sync.Mutex
}

var errExpected = errors.New("not leading")

func newObserved() *observed {
	o := &observed{}
	count := func(n *int) func() {
		return func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			*n++
		}
	}
	o.Queue = New(Config{
		Name: "imports", Log: &o.log, Failed: count(&o.failures), Panicked: count(&o.panics),
		Expected: func(err error) bool { return errors.Is(err, errExpected) },
	})
	return o
}

// pause lets time pass. The workers have done their work of that time before it returns.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// start runs the queue and returns a function that ends it and checks that nothing is left.
func (o *observed) start(t *testing.T, do Work) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx, do) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// checkForgotten proves that a queue without work takes no memory.
func (o *observed) checkForgotten(t *testing.T) {
	t.Helper()
	o.Queue.mu.Lock()
	defer o.Queue.mu.Unlock()
	if len(o.keys) > 0 || o.ready.Len() > 0 {
		t.Errorf("%d keys are remembered and %d queued after all work, want 0", len(o.keys), o.ready.Len())
	}
}

// The first change runs at once. Later ones run after 300 ms without a change, but after 2 s at the latest
// (docs/spec/controller.md 10.3).
func TestDebounce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		adds   []int // in ms from the start; each run takes no time
		urgent []int // those of adds that are urgent
		others []int // those of adds that another member caused
		want   string
	}{
		{name: "one change", adds: []int{0}, want: "0"},
		{name: "long apart", adds: []int{0, 300, 1000}, want: "0 300 1000"},
		{name: "a second one soon is debounced", adds: []int{0, 100}, want: "0 400"},
		{name: "each further one delays it", adds: []int{0, 100, 350, 600}, want: "0 900"},
		{name: "for at most 2 s", adds: []int{0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2100},
			want: "0 2200"},
		{name: "those of another member do not delay it", adds: []int{0, 100, 200, 300, 390}, others: []int{200, 300, 390},
			want: "0 400"},
		{name: "nor once it joins them", adds: []int{0, 100, 200, 300, 390}, others: []int{100, 300, 390}, want: "0 400"},
		{name: "an urgent one does not wait for others", adds: []int{0, 100, 150, 180}, urgent: []int{150}, want: "0 200"},
		{name: "but for those that follow at once", adds: []int{0, 100, 120, 140, 160}, urgent: []int{100, 120, 160},
			want: "0 150 210"},
		{name: "what is next is debounced again", adds: []int{0, 100, 200}, urgent: []int{100}, want: "0 150 500"},
		{name: "an urgent one just before the run has it wait for those that follow at once", adds: []int{0, 100, 390},
			urgent: []int{390}, want: "0 440"},
		{name: "an urgent one brings forward what waits for more", adds: []int{0, 200, 400, 600, 800}, urgent: []int{800},
			want: "0 850"},
		{name: "after a burst the next runs at once", adds: []int{0, 100, 800}, want: "0 400 800"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, start := newObserved(), time.Now()
				var got []string
				end := o.start(t, func(context.Context, types.NamespacedName) error {
					got = append(got, fmt.Sprint(time.Since(start).Milliseconds()))
					return nil
				})
				for _, at := range tt.adds {
					pause(time.Until(start.Add(time.Duration(at) * time.Millisecond)))
					switch {
					case slices.Contains(tt.urgent, at):
						o.AddUrgent(ownCluster, service("db"))
					case slices.Contains(tt.others, at):
						o.AddOf("west", service("db"), Live)
					default:
						o.Add(service("db"), Live)
					}
				}
				pause(10 * time.Second)
				if text := strings.Join(got, " "); text != tt.want {
					t.Errorf("changes at %v ran at %s, want %s", tt.adds, text, tt.want)
				}
				o.checkForgotten(t)
				end()
			})
		})
	}
}

// Failures back off from 50 ms to a minute, with up to half more as jitter. An event does not wait for the end of that.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, start := newObserved(), time.Now()
		var ran []time.Time
		fails := true
		end := o.start(t, func(context.Context, types.NamespacedName) error {
			if ran = append(ran, time.Now()); fails {
				return errors.New("no")
			}
			return nil
		})
		o.Add(service("db"), Live)
		pause(10 * time.Minute)
		for i, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000} {
			want *= time.Millisecond
			if got := ran[i+1].Sub(ran[i]); got < want || got > min(want*3/2, maxBackOff) {
				t.Errorf("after failure %d it waits for %s, want %s and at most half more", i+1, got, want)
			}
		}
		if depth, age := o.Waiting(); depth != 1 || age != time.Since(start) {
			t.Errorf("Waiting = %d, %s; want 1 since the change, %s", depth, age, time.Since(start))
		}
		fails = false
		pause(time.Until(ran[len(ran)-1].Add(time.Second)))
		at := time.Now()
		o.Add(service("db"), Live)
		synctest.Wait()
		if last := ran[len(ran)-1]; !last.Equal(at) {
			t.Errorf("an event during a back-off ran after %s, want at once", last.Sub(at))
		}
		pause(10 * time.Minute)
		o.checkForgotten(t)
		end()
	})
}

// A key that fails in a different way each time is logged ten times, until it has succeeded.
func TestFailuresAreLoggedWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, n := newObserved(), 0
		end := o.start(t, func(context.Context, types.NamespacedName) error {
			switch n++; {
			case n <= 15:
				return fmt.Errorf("failure %d", n)
			case n == 17, n == 18:
				return errors.New("same")
			case n == 19:
				return errExpected
			}
			return nil
		})
		o.Add(service("db"), Live)
		pause(time.Hour)
		if got := o.log.Count("failure "); got != maxLogged {
			t.Errorf("%d of 15 different failures are logged, want %d", got, maxLogged)
		}
		o.Add(service("db"), Live)
		pause(time.Hour)
		if same, expected := o.log.Count("same"), o.log.Count(errExpected.Error()); same != 1 || expected != 0 {
			t.Errorf("a repeated failure is logged %d times and an expected one %d, want 1 and 0", same, expected)
		}
		if n != 20 || o.failures != 17 {
			t.Errorf("%d runs and %d failures, want 20 and 17", n, o.failures)
		}
		end()
	})
}

// Live changes do not wait behind the backlog of a start (docs/spec/controller.md 10.3): they are among the first that
// are handed out.
func TestPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserved()
		for i := range 5000 {
			o.Add(service(fmt.Sprint("old-", i)), Backlog)
		}
		o.Add(service("new"), Live)
		o.Add(service("old-4999"), Live) // is in the backlog already
		ran, goOn := map[string]bool{}, make(chan struct{})
		end := o.start(t, func(_ context.Context, key types.NamespacedName) error {
			o.mu.Lock()
			if ran[key.Name] {
				t.Errorf("%s ran twice", key)
			}
			ran[key.Name] = true
			o.mu.Unlock()
			<-goOn
			return nil
		})
		synctest.Wait() // each worker has one
		if len(ran) != workers || !ran["new"] || !ran["old-4999"] {
			t.Errorf("%v run first, want %d with new and old-4999", ran, workers)
		}
		close(goOn)
		synctest.Wait()
		if len(ran) != 5001 {
			t.Errorf("%d keys ran, want 5001", len(ran))
		}
		end()
	})
}

// A key of the backlog that fails stays behind live changes.
func TestFailureKeepsPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserved()
		end := o.start(t, func(context.Context, types.NamespacedName) error { return errors.New("no") })
		o.Add(service("old"), Backlog)
		synctest.Wait()
		o.Queue.mu.Lock()
		if p := o.keys[service("old")].priority; p != Backlog {
			t.Errorf("priority = %d, want Backlog", p)
		}
		o.Queue.mu.Unlock()
		end()
	})
}

func TestAddAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, start := newObserved(), time.Now()
		var got []time.Duration
		end := o.start(t, func(_ context.Context, key types.NamespacedName) error {
			if got = append(got, time.Since(start)); len(got) == 1 {
				o.AddAfter(key, time.Hour) // while it runs, as reconcilers do
			}
			return nil
		})
		o.AddAfter(service("db"), time.Minute)
		o.AddAfter(service("db"), time.Hour)
		if depth, _ := o.Waiting(); depth != 0 {
			t.Errorf("depth = %d before its time, want 0", depth)
		}
		pause(24 * time.Hour)
		if len(got) != 2 || got[0] != time.Minute || got[1] != time.Minute+time.Hour {
			t.Errorf("ran after %v, want after the earlier time, and an hour later", got)
		}
		o.checkForgotten(t)
		end()
	})
}

// The laws of a queue, under any interleaving: each event is followed by a run that begins after it, at most 2 s later
// if a worker is free; a key is in one worker at a time; and in the end nothing is left.
func TestLaws(t *testing.T) {
	const longest = 100 * time.Millisecond // run
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			o, r := newObserved(), rand.New(rand.NewPCG(seed, 1))
			running := map[types.NamespacedName]bool{}
			changed := map[types.NamespacedName]time.Time{} // the first event that no run has begun after
			end := o.start(t, func(_ context.Context, key types.NamespacedName) error {
				o.mu.Lock()
				if running[key] {
					t.Errorf("seed %d: %s is in two workers", seed, key)
				}
				if at, ok := changed[key]; ok && time.Since(at) > maxDelay+longest {
					t.Errorf("seed %d: a change of %s waited for %s, want at most %s", seed, key, time.Since(at), maxDelay)
				}
				running[key] = true
				delete(changed, key)
				takes, fails := time.Duration(r.Int64N(int64(longest))), r.IntN(5) == 0
				o.mu.Unlock()
				time.Sleep(takes)
				o.mu.Lock()
				defer o.mu.Unlock()
				delete(running, key)
				if fails {
					return errors.New("no")
				}
				return nil
			})
			for range 1000 {
				o.mu.Lock()
				key, p, pause := service(fmt.Sprint(r.IntN(workers))), Priority(r.IntN(2)), r.IntN(3)*r.IntN(50)
				if _, waits := changed[key]; !waits {
					changed[key] = time.Now()
				}
				o.mu.Unlock()
				o.Add(key, p)
				time.Sleep(time.Duration(pause) * time.Millisecond)
			}
			pause(time.Hour)
			for key := range changed {
				t.Errorf("seed %d: a change of %s is lost", seed, key)
			}
			o.checkForgotten(t)
			end()
		})
	}
}

// A panic is one failed run of one key.
func TestPanicsAreRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserved()
		runs := map[string]int{}
		end := o.start(t, func(_ context.Context, key types.NamespacedName) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if runs[key.Name]++; key.Name == "panics" && runs[key.Name] < 3 {
				panic("out of order")
			}
			return nil
		})
		o.Add(service("panics"), Live)
		o.Add(service("works"), Live)
		pause(time.Hour)
		if runs["panics"] != 3 || runs["works"] != 1 || o.panics != 2 || o.failures != 2 {
			t.Errorf("runs %v, %d panics, %d failures; want 3 and 1, 2, 2", runs, o.panics, o.failures)
		}
		if got := o.log.Count("panic: out of order\ngoroutine"); got != 1 {
			t.Errorf("%d panics are logged with their stack, want 1: the key panicked twice for one reason: %s", got, &o.log)
		}
		o.checkForgotten(t)
		end()
	})
}

// Run returns when the last work is done, and leaves the queued keys.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Name: "imports", Log: logging.Discard, Failed: func() {}, Panicked: func() {}})
		var mu sync.Mutex
		var begun, done int
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 100 {
			q.Add(service(fmt.Sprint(i)), Live)
		}
		q.AddAfter(service("later"), time.Hour)
		time.AfterFunc(time.Second, cancel)
		err := q.Run(ctx, func(ctx context.Context, _ types.NamespacedName) error {
			mu.Lock()
			begun++
			mu.Unlock()
			<-ctx.Done()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			done++
			return ctx.Err()
		})
		if err != nil || begun != workers || done != workers {
			t.Errorf("Run = %v with %d begun and %d done, want nil and %d of each", err, begun, done, workers)
		}
	})
}

// A key of AddAll has been tried once a run that began later has ended, even if it failed: a run that is under way does
// not count, nor does a run of a key that is added later. Keys in a back-off run at once.
func TestAddAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserved()
		begun, goOn := make(chan types.NamespacedName), map[string]chan error{"failing": make(chan error),
			"running": make(chan error)}
		end := o.start(t, func(_ context.Context, svc types.NamespacedName) error {
			begun <- svc
			return <-goOn[svc.Name]
		})
		run := func(want string, err error) {
			t.Helper()
			if svc := <-begun; svc != service(want) {
				t.Fatalf("%s runs, want %s", svc, want)
			}
			goOn[want] <- err
			synctest.Wait()
		}
		if tried := o.AddAll(nil); !tried() {
			t.Error("nothing is not tried")
		}
		o.Add(service("failing"), Live)
		for range 10 {
			run("failing", errors.New("no"))
		}
		o.Add(service("running"), Live)
		<-begun
		tried := o.AddAll([]types.NamespacedName{service("running"), service("failing")})
		check := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := tried(); got != want {
				t.Errorf("%s: tried = %t, want %t", what, got, want)
			}
		}
		at := time.Now()
		run("failing", errors.New("no"))
		if took := time.Since(at); took > debounce {
			t.Errorf("what had failed ran after %s, want no longer back-off than %s", took, debounce)
		}
		check("one runs since before", false)
		goOn["running"] <- nil
		check("it waits for its next run", false)
		if svc := <-begun; svc != service("running") {
			t.Fatalf("%s runs, want the one that is awaited", svc)
		}
		check("that run has begun", false)
		o.Add(service("running"), Live)
		goOn["running"] <- nil
		check("that run has ended, and it was added again", true)
		run("running", nil)
		run("failing", nil)
		pause(10 * time.Second)
		o.checkForgotten(t)
		end()
	})
}
