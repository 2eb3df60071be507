package broker

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// heartbeats records when the Leases of the members were seen to change, by the clock of this process. The times in the Leases
// are not used: the clocks of other clusters may be wrong.
type heartbeats struct {
	mu   sync.Mutex
	seen map[string]renewal // by broker namespace

	// written are the newest renewals of this process's own Lease that have not come back by the watch, oldest first.
	written []renewal
	// echo is when the newest renewal of this process was sent that came back; zero if none did.
	echo time.Time
}

// maxWritten bounds the renewals that are remembered.
const maxWritten = 16

// A renewal is one Lease as it was last seen to change.
type renewal struct {
	renewed time.Time
	at      time.Time
	ttl     time.Duration // that the member asks for, within the bound; 0 if it asks for none
	changed time.Time     // when it was seen to change; zero if it has been as it was at the first sight
}

// observe records a Lease and reports whether it changed. own says that it is the Lease of this member, initial that it is of
// the first list: how long it has been there is not known.
func (h *heartbeats) observe(l *coordinationv1.Lease, own, initial bool) bool {
	var renewed time.Time
	if l.Spec.RenewTime != nil {
		renewed = l.Spec.RenewTime.Time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last, known := h.seen[l.Namespace]
	if known && last.renewed.Equal(renewed) {
		return false
	}
	r := renewal{renewed: renewed, at: time.Now(), ttl: broker.HeartbeatTTL(&l.Spec, 0)}
	if known || !initial {
		r.changed = r.at
	}
	h.seen[l.Namespace] = r
	if own {
		h.came(renewed)
	}
	return true
}

// came takes a renewal of the own Lease that the watch delivered. The caller holds h.mu.
func (h *heartbeats) came(renewed time.Time) {
	for i, w := range h.written {
		if w.renewed.Equal(renewed) {
			h.echo, h.written = w.at, h.written[i+1:]
			return
		}
	}
}

func (h *heartbeats) forget(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, namespace)
}

// writing records that this member is about to renew its own Lease. Whether the broker confirms the write does not matter: if
// it comes back by the watch, it was written.
func (h *heartbeats) writing(at metav1.MicroTime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The server keeps microseconds.
	h.written = append(h.written[max(0, len(h.written)-maxWritten+1):len(h.written):len(h.written)],
		renewal{renewed: at.Truncate(time.Microsecond), at: time.Now()})
}

// lastEcho returns when the newest renewal of this process was sent that came back by the watch; zero if none did.
func (h *heartbeats) lastEcho() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.echo
}
