package controller

import (
	"context"
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
