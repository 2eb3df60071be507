package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Changes of ClusterProperties that each other member may make take effect at once for as many as propertyBurst, then one in propertyPeriod: each has all
// services reconciled, and may have them written.
const (
	propertyBurst  = 10
	propertyPeriod = 30 * time.Second
)

// Changes of its records and claims take effect at once for as many as twice its records and changeBurst, then one in changePeriod: each may have an
// import and the status of exports written.
const (
	changeBurst  = 100
	changePeriod = time.Second
)

// A throttle bounds how often each member has something done. The last of its calls for a service always counts, if late.
type throttle struct {
	ctx    context.Context // of the term: nothing is done after it
	burst  func(member string) int
	period time.Duration

	mu sync.Mutex
	of map[string]*allowance // by member
}

// An allowance bounds one member.
type allowance struct {
	taken float64 // less one for each period until at
	at    time.Time
	later map[types.NamespacedName]bool // those that wait
}

func newThrottle(ctx context.Context, burst func(member string) int, period time.Duration) *throttle {
	return &throttle{ctx: ctx, burst: burst, period: period, of: make(map[string]*allowance)}
}

// call does something for a service, or with the zero name for all, at once or later.
func (t *throttle) call(member string, svc types.NamespacedName, do func()) {
	switch delay, waits := t.take(member, svc); {
	case waits:
	case delay == 0:
		do()
	default:
		time.AfterFunc(delay, func() {
			t.mu.Lock()
			delete(t.of[member].later, svc)
			t.mu.Unlock()
			if t.ctx.Err() == nil {
				do()
			}
		})
	}
}

// take returns how long a call has to wait, or that an earlier one of the service waits already.
func (t *throttle) take(member string, svc types.NamespacedName) (delay time.Duration, waits bool) {
	burst, now := float64(t.burst(member)), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[member]
	if a == nil {
		a = &allowance{at: now, later: make(map[types.NamespacedName]bool)}
		t.of[member] = a
	}
	if a.later[svc] {
		return 0, true
	}
	a.taken = max(0, a.taken-now.Sub(a.at).Seconds()/t.period.Seconds())
	a.taken = min(a.taken, burst+float64(len(a.later))) + 1 // the burst may have been larger
	a.at = now
	if a.taken <= burst {
		return 0, false
	}
	a.later[svc] = true
	return time.Duration((a.taken - burst) * float64(t.period)), false
}
