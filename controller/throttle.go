package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The changes of ClusterProperties that each other member may make take effect at once for as many as propertyBurst, then one in propertyPeriod:
// each has all services reconciled, and may have them written.
const (
	propertyBurst  = 10
	propertyPeriod = 30 * time.Second
)

// A throttle bounds how often each cluster has something done. The last of its calls always counts, if late.
type throttle struct {
	ctx context.Context // of the term: nothing is done after it
	do  func()

	mu    sync.Mutex
	of    map[string]*rate.Limiter // by cluster
	later map[string]bool          // the clusters that wait
}

func newThrottle(ctx context.Context, do func()) *throttle {
	return &throttle{ctx: ctx, do: do, of: make(map[string]*rate.Limiter), later: make(map[string]bool)}
}

// call does it, at once or later.
func (t *throttle) call(cluster string) {
	if t.wait(cluster) {
		return
	}
	t.do()
}

// wait reports whether it is done later.
func (t *throttle) wait(cluster string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.later[cluster] {
		return true
	}
	if t.of[cluster] == nil {
		t.of[cluster] = rate.NewLimiter(rate.Every(propertyPeriod), propertyBurst)
	}
	delay := t.of[cluster].Reserve().Delay()
	if delay == 0 {
		return false
	}
	t.later[cluster] = true
	time.AfterFunc(delay, func() {
		t.mu.Lock()
		delete(t.later, cluster)
		t.mu.Unlock()
		if t.ctx.Err() == nil {
			t.do()
		}
	})
	return true
}

// The exports that a member ends in one namespace end here at once, in as many seconds as unexportBurst, and in ten more of a minute; else after
// unexportDelay, so that exports that begin and end all the time cost less.
const (
	unexportBurst  = 10
	unexportPeriod = 6 * time.Second
	unexportDelay  = 900 * time.Millisecond
)

// unexports decides which exports end at once. The zero value has seen none. The methods may be called by several goroutines.
type unexports struct {
	mu sync.Mutex
	of map[flow]*ending
}

// A flow is what one member changes in one namespace.
type flow struct{ member, namespace string }

type ending struct {
	seconds *rate.Limiter // in which they end at once
	until   time.Time     // the end of such a second
}

// maxFlows bounds how many are remembered that did nothing lately.
const maxFlows = 1000

// atOnce reports whether an export ends at once.
func (u *unexports) atOnce(member, namespace string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := flow{member, namespace}
	if u.of[of] == nil {
		if len(u.of) >= maxFlows {
			maps.DeleteFunc(u.of, func(_ flow, e *ending) bool { return e.seconds.TokensAt(now) >= unexportBurst })
		}
		if u.of == nil {
			u.of = make(map[flow]*ending)
		}
		u.of[of] = &ending{seconds: rate.NewLimiter(rate.Every(unexportPeriod), unexportBurst)}
	}
	e := u.of[of]
	if now.Before(e.until) {
		return true
	}
	if !e.seconds.AllowN(now, 1) {
		return false
	}
	e.until = now.Add(time.Second)
	return true
}
