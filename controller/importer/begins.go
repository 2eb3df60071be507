package importer

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The exports of a member that begin in one namespace are imported at once: twice as many as the member has records, and beginBurst more. Further ones
// wait for their turn, one in beginPeriod, and beyond maxTurns until there is one. So a member that ends and begins exports all the time has few of
// them imported again. Ends never wait.
const (
	beginBurst  = 100
	beginPeriod = time.Second
	maxTurns    = 600

	maxRemembered = 10_000 // exports that had their turn
)

// begins gives turns to exports that begin. The zero value has given none. The methods may be called by several goroutines.
type begins struct {
	records func(cluster string) int // of a member on the broker

	mu sync.Mutex
	of map[clusterNamespace]*turns
}

// turns are those of the exports of one member in one namespace.
type turns struct {
	begun   float64 // exports that began, less one for each beginPeriod since
	at      time.Time
	waiting map[types.NamespacedName]time.Time // when it is their turn
	last    map[types.NamespacedName]types.UID // of the last export that had its turn
}

// wait returns how long an export that is not imported has to wait; 0 if it has its turn, or had it.
func (b *begins) wait(svc types.NamespacedName, cluster string, uid types.UID, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := clusterNamespace{cluster, svc.Namespace}
	t := b.of[in]
	if t == nil {
		if b.of == nil {
			b.of = make(map[clusterNamespace]*turns)
		}
		maps.DeleteFunc(b.of, func(_ clusterNamespace, t *turns) bool { return t.idle(now) })
		t = &turns{at: now, waiting: make(map[types.NamespacedName]time.Time), last: make(map[types.NamespacedName]types.UID)}
		b.of[in] = t
	}
	t.begun, t.at = max(0, t.begun-float64(now.Sub(t.at))/float64(beginPeriod)), now
	wait := t.wait(svc, uid, now, func() int { return b.records(cluster) })
	if len(t.last) >= maxRemembered {
		clear(t.last)
	}
	if wait == 0 {
		t.last[svc] = uid
	}
	return wait
}

// wait is [begins.wait] for exports of one member in one namespace.
func (t *turns) wait(svc types.NamespacedName, uid types.UID, now time.Time, records func() int) time.Duration {
	turn, waits := t.waiting[svc]
	switch {
	case t.last[svc] == uid:
		return 0
	case waits && now.Before(turn):
		return turn.Sub(now)
	case waits:
		delete(t.waiting, svc)
		return 0
	}
	beyond := t.begun + 1 - beginBurst
	if beyond > 0 {
		beyond -= float64(2 * records())
	}
	if beyond > maxTurns {
		return maxTurns * beginPeriod
	}
	t.begun++
	if beyond <= 0 {
		return 0
	}
	maps.DeleteFunc(t.waiting, func(_ types.NamespacedName, turn time.Time) bool { return now.Sub(turn) > maxTurns*beginPeriod }) // ended meanwhile
	wait := time.Duration(beyond * float64(beginPeriod))
	t.waiting[svc] = now.Add(wait)
	return wait
}

// idle reports whether turns may be forgotten.
func (t *turns) idle(now time.Time) bool {
	return float64(now.Sub(t.at))/float64(beginPeriod) >= t.begun+maxTurns
}
