package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// errCopy: this cluster may be a copy of the member.
var errCopy = errors.New("this cluster may be a copy of the member, with its etcd, and has to be made anew. " +
	"\"clusterset leave --force\" without a broker cleans up this cluster alone; --take-over lets this cluster act for the member")

// A command looks on for the TTL of the heartbeat plus lookMargin, at most for longestLook: "lease 0" renews every 5
// minutes.
const (
	lookMargin  = 5 * time.Second
	longestLook = 6 * time.Minute
)

// An originalCheck tells the member from a copy of it (docs/spec/controller.md 7.8).
type originalCheck struct {
	member, broker             *write.Writer
	namespace, brokerNamespace string
	takeOver                   bool // accept a copy

	// Results of run.
	unnoted *coordinationv1.LeaseSpec // the heartbeat on the broker, unless this cluster noted it
	copied  bool                      // the note has [wellknown.AnnotationCopy]
}

// run returns [errCopy] if another cluster renews the heartbeat, or if the controller noted a copy. joins: the broker
// namespace is new, so an old note of a copy does not count.
func (o *originalCheck) run(ctx context.Context, joins bool) error {
	noted, err := o.readHeartbeat(ctx)
	first := o.unnoted
	switch {
	case err != nil || o.takeOver:
		return err
	case o.copied && !joins:
		return fmt.Errorf("lease %s/%s has the annotation of a copy: %w", o.namespace, wellknown.HeartbeatLease, errCopy)
	case first == nil:
		return nil
	}
	limit := min(broker.HeartbeatTTL(first, 0)+lookMargin, longestLook)
	if say := o.member.Options.Progress; say != nil {
		say(fmt.Sprintf(
			"the broker has an unknown heartbeat of this cluster: checking for %s whether another cluster renews it", limit))
	}
	for end := time.Now().Add(limit); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		switch _, err := o.readHeartbeat(ctx); {
		case err != nil || o.unnoted == nil:
			return err
		case o.unnoted.RenewTime.Equal(first.RenewTime):
		case !noted:
			return fmt.Errorf("somebody renews the heartbeat on the broker, and Lease %s/%s of the controller does not exist "+
				"(want its namespace in --controller-namespace): %w", o.namespace, wellknown.HeartbeatLease, errCopy)
		default:
			return fmt.Errorf("another cluster renews the heartbeat of this one: %w", errCopy)
		}
	}
	return nil
}

// readHeartbeat reads the heartbeat and then the note, since a controller writes the note first. It reports whether the
// note exists.
func (o *originalCheck) readHeartbeat(ctx context.Context) (noted bool, err error) {
	if o.unnoted, err = o.broker.Heartbeat(ctx, o.brokerNamespace); err != nil {
		return false, err
	}
	note, err := o.member.Lease(ctx, o.namespace, wellknown.HeartbeatLease)
	if err != nil {
		return false, err
	}
	if o.copied = false; note == nil {
		return false, nil
	}
	_, o.copied = note.Annotations[wellknown.AnnotationCopy]
	if o.unnoted != nil && note.Spec.RenewTime != nil && !o.unnoted.RenewTime.After(note.Spec.RenewTime.Time) {
		o.unnoted = nil
	}
	return true, nil
}

// noteHeartbeats notes heartbeats up to a time as own ones, and removes the annotation of a copy.
func (o *originalCheck) noteHeartbeats(ctx context.Context, until time.Time) error {
	note, err := o.member.Lease(ctx, o.namespace, wellknown.HeartbeatLease)
	if err != nil {
		return err
	}
	exists := note != nil
	if !exists {
		note = &coordinationv1.Lease{
			TypeMeta:   typeMeta("coordination.k8s.io/v1", "Lease"),
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: wellknown.HeartbeatLease},
		}
	}
	if note.Spec.RenewTime == nil || note.Spec.RenewTime.Time.Before(until) {
		note.Spec.RenewTime = &metav1.MicroTime{Time: until}
	}
	delete(note.Annotations, wellknown.AnnotationCopy)
	u := toUnstructured(note)
	if o.member.Options.DryRun != write.DryRunNone {
		o.member.Report(u, write.Updated, "")
		return nil
	}
	if exists {
		_, err = o.member.Resource(u).Update(ctx, u, metav1.UpdateOptions{FieldManager: wellknown.ManagerJoin})
	} else {
		_, err = o.member.Resource(u).Create(ctx, u, metav1.CreateOptions{FieldManager: wellknown.ManagerJoin})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: the controller has just written it: run this again", read.Describe(u))
	case err != nil:
		return fmt.Errorf("%s: %w", read.Describe(u), err)
	}
	o.member.Report(u, write.Updated, "the heartbeat on the broker is noted")
	return nil
}
