package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Changes of ClusterProperties that each other member may make take effect at once for as many as propertyBurst, then
// one in propertyPeriod: each has all services reconciled, and may have them written.
const (
	propertyBurst  = 10
	propertyPeriod = 30 * time.Second
)

// Changes of its records and of the entries of its inventory take effect at once for as many as four times its records
// and changeBurst, then one in changePeriod: each may have an import and the status of exports written. So an edit of
// all exports and its revert do not wait.
const (
	changeBurst  = 100
	changePeriod = time.Second
)

// A throttle bounds how often each member has something done. The last of its calls for a service always counts, if
// late.
type throttle struct {
	burst  func(member string) int
	period time.Duration

	mu         sync.Mutex
	ended      bool                  // the term has
	allowances map[string]*allowance // by member
}

// An allowance bounds one member.
type allowance struct {
	used  float64 // less one for each period until at
	at    time.Time
	later map[types.NamespacedName]*time.Timer // those that wait
}

// newThrottle returns a throttle that does nothing after ctx, and lets go of what waits then.
func newThrottle(ctx context.Context, burst func(member string) int, period time.Duration) *throttle {
	t := &throttle{burst: burst, period: period, allowances: make(map[string]*allowance)}
	context.AfterFunc(ctx, t.end)
	return t
}

func (t *throttle) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, a := range t.allowances {
		for _, timer := range a.later {
			timer.Stop()
		}
	}
	t.allowances = nil
}

// call does something for a service, or with the zero name for all, at once or later.
func (t *throttle) call(member string, svc types.NamespacedName, do func()) {
	if t.take(member, svc, do) {
		do()
	}
}

// take reports whether a call is allowed now. Otherwise it waits, or an earlier one of the service does.
func (t *throttle) take(member string, svc types.NamespacedName, do func()) bool {
	burst, now := float64(t.burst(member)), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	a := t.allowances[member]
	if a == nil {
		a = &allowance{at: now, later: make(map[types.NamespacedName]*time.Timer)}
		t.allowances[member] = a
	}
	a.used = max(0, a.used-now.Sub(a.at).Seconds()/t.period.Seconds())
	a.used = min(a.used, burst+float64(len(a.later))) // the burst may have been larger
	a.at = now
	if a.used+1 <= burst {
		a.used++
		return true
	}
	if a.later[svc] == nil {
		a.used++
		a.later[svc] = time.AfterFunc(time.Duration((a.used-burst)*float64(t.period)), func() { t.fire(a, svc, do) })
	}
	return false
}

func (t *throttle) fire(a *allowance, svc types.NamespacedName, do func()) {
	t.mu.Lock()
	delete(a.later, svc)
	ended := t.ended
	t.mu.Unlock()
	if !ended {
		do()
	}
}
