package broker

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heartbeats records when the Leases of the members were seen to change, by the clock of this process. The times in the Leases
// are not used: the clocks of other clusters may be wrong.
type heartbeats struct {
	mu   sync.Mutex
	seen map[string]renewal // by broker namespace

	// echoMissing is since when renewals of this member's own Lease have not come back by the watch, zero if they have. If
	// writes succeed and the watch is silent, the link is not healthy.
	echoMissing time.Time
}

// A renewal is one Lease as it was last seen to change.
type renewal struct {
	renewed time.Time
	at      time.Time
}

// observe records a Lease and reports whether it changed. own says that it is the Lease of this member.
func (h *heartbeats) observe(l *coordinationv1.Lease, own bool) bool {
	var renewed time.Time
	if l.Spec.RenewTime != nil {
		renewed = l.Spec.RenewTime.Time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, ok := h.seen[l.Namespace]; ok && last.renewed.Equal(renewed) {
		return false
	}
	h.seen[l.Namespace] = renewal{renewed, time.Now()}
	if own {
		h.echoMissing = time.Time{}
	}
	return true
}

func (h *heartbeats) forget(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, namespace)
}

// wrote records that this member renewed its own Lease in namespace. The watch may have delivered that already.
func (h *heartbeats) wrote(namespace string, at metav1.MicroTime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The server keeps microseconds.
	seen := h.seen[namespace].renewed
	if h.echoMissing.IsZero() && seen.Before(at.Truncate(time.Microsecond)) {
		h.echoMissing = time.Now()
	}
}

// withdrawn records that this member deleted its own Lease.
func (h *heartbeats) withdrawn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.echoMissing = time.Time{}
}

// silence returns for how long renewals of this member's own Lease have not come back, 0 if they have.
func (h *heartbeats) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.echoMissing.IsZero() {
		return 0
	}
	return time.Since(h.echoMissing)
}
