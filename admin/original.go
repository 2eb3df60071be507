package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// errCopy is the error of a command in a cluster that may be a copy of the member.
var errCopy = errors.New("another cluster renews the heartbeat of this one, and may be the original: this one may be a copy of its etcd, which has to be made anew. " +
	"\"clusterset leave --force\" without a broker cleans up this cluster alone; --take-over lets this cluster act for the member")

// The bounds of how long a command looks on, which otherwise is the TTL of the heartbeat. With "lease 0" a controller renews it every 5 minutes.
const (
	shortestLook = 10 * time.Second
	longestLook  = 6 * time.Minute
)

// An originalCheck finds out whether this cluster is the member, or a copy of it (docs/spec/controller.md 7.8).
type originalCheck struct {
	member, broker             *cluster
	namespace, brokerNamespace string
	takeOver                   bool // whatever it is
}

// run returns the heartbeat on the broker, if the cluster did not note it: its controller would look on. It returns [errCopy] if another cluster renews it, or
// did so as the controller looked on, unless this one shall take over.
func (o originalCheck) run(ctx context.Context) (unnoted *coordinationv1.LeaseSpec, err error) {
	first, copied, err := o.look(ctx)
	switch {
	case err != nil || first == nil || o.takeOver:
		return first, err
	case copied:
		return nil, errCopy
	}
	limit := min(broker.HeartbeatTTL(first, shortestLook), longestLook)
	if say := o.member.options.Progress; say != nil {
		say(fmt.Sprintf("the broker has a heartbeat that this cluster has not noted (Lease %s/%s): looking on for %s whether another cluster renews it", o.namespace, wellknown.HeartbeatLease, limit))
	}
	for end := time.Now().Add(limit); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
		switch now, _, err := o.look(ctx); {
		case err != nil || now == nil:
			return nil, err
		case !now.RenewTime.Equal(first.RenewTime):
			return nil, errCopy
		}
	}
	return first, nil
}

// look returns the heartbeat if it is newer than what the cluster noted, and whether the controller found that this cluster is a copy. The heartbeat is read first: a
// controller notes it before it sends it.
func (o originalCheck) look(ctx context.Context) (unnoted *coordinationv1.LeaseSpec, copied bool, err error) {
	if unnoted, err = o.broker.heartbeat(ctx, o.brokerNamespace); err != nil {
		return nil, false, err
	}
	note := o.note()
	if _, err := o.member.read(ctx, note); err != nil {
		return nil, false, err
	}
	_, copied = note.Annotations[wellknown.AnnotationCopy]
	if unnoted != nil && !copied && note.Spec.RenewTime != nil && !unnoted.RenewTime.After(note.Spec.RenewTime.Time) {
		return nil, false, nil
	}
	return unnoted, copied, nil
}

func (o originalCheck) note() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   typeMeta("coordination.k8s.io/v1", "Lease"),
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: wellknown.HeartbeatLease},
	}
}

// settle notes that heartbeats up to a time are those of this cluster.
func (o originalCheck) settle(ctx context.Context, until time.Time) error {
	note := o.note()
	exists, err := o.member.read(ctx, note)
	if err != nil {
		return err
	}
	note.Spec.RenewTime = &metav1.MicroTime{Time: until}
	delete(note.Annotations, wellknown.AnnotationCopy)
	u := toUnstructured(note)
	if o.member.options.DryRun != DryRunNone {
		o.member.report(u, Updated, "")
		return nil
	}
	if exists {
		_, err = o.member.resource(u).Update(ctx, u, metav1.UpdateOptions{FieldManager: wellknown.ManagerJoin})
	} else {
		_, err = o.member.resource(u).Create(ctx, u, metav1.CreateOptions{FieldManager: wellknown.ManagerJoin})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: the controller has just written it: run this again", describe(u))
	case err != nil:
		return fmt.Errorf("%s: %w", describe(u), err)
	}
	o.member.report(u, Updated, "heartbeats on the broker are of this cluster")
	return nil
}
