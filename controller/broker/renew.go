package broker

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/shorten"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

const maxBlind = 300 // octets

// Renew renews the heartbeat of this member with a new stamp; others wait for ttl. complete is the
// stamp at which the last pass over all exports began. blind names what this member cannot see of its own cluster, or
// is "". If the Lease changed since the last Renew or Last, Renew returns a conflict ([apierrors.IsConflict]). One
// goroutine calls both.
func (h *Heartbeats) Renew(ctx context.Context, stamp protocol.Stamp, ttl time.Duration, complete protocol.Stamp,
	blind string) error {
	seconds := int32(math.Ceil(ttl.Seconds()))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, Name: broker.HeartbeatName, UID: h.stored.UID, ResourceVersion: h.stored.ResourceVersion,
			Labels:      map[string]string{broker.LabelManagedBy: broker.ManagedBy},
			Annotations: map[string]string{broker.AnnotationComplete: complete.String()},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &h.self,
			RenewTime:      &metav1.MicroTime{Time: time.UnixMicro(int64(stamp))}, LeaseDurationSeconds: &seconds,
		},
	}
	if blind != "" {
		lease.Annotations[broker.AnnotationBlind] = shorten.Text(blind, maxBlind)
	}
	h.recordSending(stamp)
	if err := h.client.Apply(ctx, lease, wellknown.ManagerExporter); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	h.stored = lease.ObjectMeta
	return nil
}

// A StoredHeartbeat is the own heartbeat on the broker; zero without a Lease.
type StoredHeartbeat struct {
	protocol.Heartbeat
	TTL  time.Duration
	Ours bool // of this process
}

// Last reads this member's heartbeat from the broker. Later stamps of this process are higher.
func (h *Heartbeats) Last(ctx context.Context) (last StoredHeartbeat, err error) {
	lease := &coordinationv1.Lease{}
	switch err := h.client.Get(ctx, lease, h.namespace, broker.HeartbeatName); {
	case apierrors.IsNotFound(err):
		h.stored = metav1.ObjectMeta{}
		return last, nil
	case err != nil:
		return last, fmt.Errorf("broker: %w", err)
	}
	h.stored = lease.ObjectMeta
	holder := lease.Spec.HolderIdentity
	last = StoredHeartbeat{HeartbeatOf(lease), broker.HeartbeatTTL(&lease.Spec, 0), holder != nil && *holder == h.self}
	h.stamps.clock.See(max(last.Stamp, last.Complete))
	return last, nil
}

// Liveness returns the known heartbeats of all members, sorted by id, for package liveness.
func (h *Heartbeats) Liveness() []liveness.Member {
	stored := h.members.stored()
	members := make([]liveness.Member, len(stored))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range stored {
		r := h.seen[m.Spec.Namespace]
		members[i] = liveness.Member{Cluster: m.Name, Seen: r.at, Heartbeat: r.Heartbeat, TTL: r.ttl}
	}
	slices.SortFunc(members, func(a, b liveness.Member) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return members
}

// Echo returns the send time, by the monotonic clock, of this process's newest heartbeat that the broker's watch
// brought back; zero before the first. Until then, and long after it, the broker may take no writes, or pass none on.
func (h *Heartbeats) Echo() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.echo
}
