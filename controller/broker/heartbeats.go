package broker

import (
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// Heartbeats renews the Lease of this member on the broker, and records when this process saw each member renew its
// own. The times in the Leases give the order of renewals. They do not give their age, since the clocks of other
// clusters may be wrong.
type Heartbeats struct {
	link
	client    *apiserver.Client
	namespace string // of this member
	self      string // this process, which renews the heartbeat
	members   *Members
	stamps    *stamps
	lists     []listed // of what a member publishes beside its heartbeat

	mu   sync.Mutex
	seen map[string]renewal // by broker namespace

	// stored holds UID and version of the own Lease as last written or read; zero if it was absent. The next renewal
	// replaces this Lease only. Renew and Last alone use it.
	stored metav1.ObjectMeta
	// written are the newest renewals of this process's own Lease that have not come back by the watch, oldest first.
	written []renewal
	// echo is the send time of this process's newest renewal that came back; zero before the first.
	echo time.Time
}

// A listed kind has a cache, which is compared with a new list.
type listed struct {
	id       apiserver.WatchID
	example  apiserver.Object
	labels   string
	informer cache.SharedIndexInformer
}

// maxWritten bounds the renewals that are remembered.
const maxWritten = 16

// A renewal is the newest Lease that was seen of a member.
type renewal struct {
	protocol.Heartbeat
	at   time.Time     // when it was seen, or sent
	ttl  time.Duration // asked for by the member, within the bound; 0 if not set
	gone bool          // the Lease is not there, or does not decode; the rest is of the last one
}

// HeartbeatOf decodes a Lease.
func HeartbeatOf(l *coordinationv1.Lease) (h protocol.Heartbeat) {
	if l.Spec.RenewTime != nil {
		h.Stamp = protocol.Stamp(l.Spec.RenewTime.UnixMicro())
	}
	if complete, err := strconv.ParseInt(l.Annotations[broker.AnnotationComplete], 10, 64); err == nil {
		h.Complete = protocol.Stamp(complete)
	}
	h.Blind = l.Annotations[broker.AnnotationBlind] != ""
	return h
}

// observe records a Lease if it is a renewal. An old copy, as after a restore of the broker, is ignored. own marks this
// member's Lease.
func (h *Heartbeats) observe(l *coordinationv1.Lease, own bool) {
	r := renewal{Heartbeat: HeartbeatOf(l), at: time.Now(), ttl: broker.HeartbeatTTL(&l.Spec, 0)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if own {
		h.recordEcho(r.Stamp)
	}
	last, known := h.seen[l.Namespace]
	if known && last.Stamp >= r.Stamp {
		last.gone = false
		r = last
	}
	h.seen[l.Namespace] = r
}

// recordEcho records the echo of an own renewal. The caller holds h.mu.
func (h *Heartbeats) recordEcho(stamp protocol.Stamp) {
	if i := slices.IndexFunc(h.written, func(w renewal) bool { return w.Stamp == stamp }); i >= 0 {
		h.echo, h.written = h.written[i].at, h.written[i+1:]
	}
}

// recordLoss records that the Lease of a namespace, or a Member that named the namespace, is gone. If only the Lease is
// gone, the member keeps the rest of its TTL. Without Lease and Member the namespace is forgotten.
//
// It looks for the Member under the lock, so that of two events at a time the later one sees both.
func (h *Heartbeats) recordLoss(namespace string, lease bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, known := h.seen[namespace]
	r.gone = r.gone || lease
	switch {
	case !known:
	case r.gone && !h.members.names(namespace):
		delete(h.seen, namespace)
	default:
		h.seen[namespace] = r
	}
}

// recordSending records that this member is about to renew its own Lease. Whether the broker confirms the write does
// not matter: if it comes back by the watch, it was written.
func (h *Heartbeats) recordSending(at protocol.Stamp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = append(h.written[max(0, len(h.written)-maxWritten+1):len(h.written):len(h.written)],
		renewal{Heartbeat: protocol.Heartbeat{Stamp: at}, at: time.Now()})
}
