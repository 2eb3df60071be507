package broker

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heartbeats is when the Leases were seen to change, by the clock of this process. What they say about time is not believed.
type heartbeats struct {
	mu   sync.Mutex
	seen map[string]beat // by broker namespace

	// unheard is since when renewals of this member's own Lease have not been seen, zero if they have: while writes succeed
	// and the watch is silent, the link is no good.
	unheard time.Time
}

// A beat is one Lease as it was last seen to change.
type beat struct {
	renewed time.Time
	at      time.Time
}

// take notes a Lease, be it this member's own, and reports whether it changed.
func (h *heartbeats) take(l *coordinationv1.Lease, own bool) bool {
	var renewed time.Time
	if l.Spec.RenewTime != nil {
		renewed = l.Spec.RenewTime.Time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, ok := h.seen[l.Namespace]; ok && last.renewed.Equal(renewed) {
		return false
	}
	h.seen[l.Namespace] = beat{renewed, time.Now()}
	if own {
		h.unheard = time.Time{}
	}
	return true
}

func (h *heartbeats) forget(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, namespace)
}

// renewed notes that this member's own Lease, in namespace, was renewed. Its watch may have been faster.
func (h *heartbeats) renewed(namespace string, at metav1.MicroTime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The server keeps microseconds.
	seen := h.seen[namespace].renewed
	if h.unheard.IsZero() && seen.Before(at.Truncate(time.Microsecond)) {
		h.unheard = time.Now()
	}
}

// withdrawn notes that this member's own Lease is gone.
func (h *heartbeats) withdrawn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unheard = time.Time{}
}

// silence is for how long this member's own renewals have not been seen, 0 if they have.
func (h *heartbeats) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unheard.IsZero() {
		return 0
	}
	return time.Since(h.unheard)
}

// Heartbeats returns for every member when its Lease was last seen to change, by the clock of this process. It is zero for a
// member without a Lease. The first sight of a Lease counts as a change.
func (b *Broker) Heartbeats() map[string]time.Time {
	at := make(map[string]time.Time)
	for _, m := range b.Members() {
		b.heartbeats.mu.Lock()
		at[m.Name] = b.heartbeats.seen[m.Spec.Namespace].at
		b.heartbeats.mu.Unlock()
	}
	return at
}
