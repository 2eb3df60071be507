package identity

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// A process looks on for lookOnTTLs times the TTL of the heartbeat, at most maxLookOnTTL. The product exceeds the
// longest renewal period, 20 minutes.
const (
	lookOnTTLs   = 5
	maxLookOnTTL = 6 * time.Minute
)

// renewalsOfOther renewals by another process make this cluster a copy. A single renewal may come from an earlier
// process of this cluster, if the own etcd was restored.
const renewalsOfOther = 2

// A verdict tells whether the heartbeat on the broker is that of this cluster.
type verdict uint8

const (
	undecided verdict = iota // the broker was not asked yet
	original
	lookingOn
	isCopy // for good
)

// An Original tells the member from a clone of it, which has the same etcd, ID and credential
// (docs/spec/controller.md 7.8). The member notes the stamp of each heartbeat before it sends it. A newer heartbeat on
// the broker comes from another cluster, unless the own etcd was restored.
//
//	undecided ── the heartbeat is not newer than the note, or is not there ──▶ original ◀── not renewed for five TTLs ─┐
//	    └─────── newer ──▶ looking on ──────────────────────────────────────────────────────────────────────────────┘
//	                           └──────── renewed twice ──▶ copy, for good
//
// After a failed write an original reads the heartbeat again, since another cluster may have written one.
//
// The exported fields do not change. Only Heartbeat calls check and note. Several goroutines may call state.
type Original struct {
	Note   member.LeaseNote // has no key
	Broker *broker.Broker
	TTL    time.Duration // of the own heartbeat; 0 with "lease 0"
	// Sent is the stamp of the newest heartbeat of this process, over all its terms as a leader; 0 if it sent none. It
	// survives a restore of the own etcd, which the note does not.
	Sent *atomic.Int64

	lease *coordinationv1.Lease // the note, as it was last read or written; nil until then
	sight sight
	again bool                   // the heartbeat has to be read again
	own   protocol.Stamp         // the highest stamp of another process that counts as this cluster's own
	wrote protocol.Stamp         // of the newest heartbeat that the broker has taken in this term
	last  broker.StoredHeartbeat // as it was last read

	mu      sync.Mutex
	verdict verdict
	detail  string
}

// A sight holds the observations of a process that looks on; zero otherwise.
type sight struct {
	stamp   protocol.Stamp // that was read last
	top     protocol.Stamp // the highest
	renewed int            // since the process looks on
	at      time.Time      // of the last renewal; at first when the process began
	read    time.Time      // when the heartbeat was last read
}

// next adds a reading of the heartbeat: its stamp (0 without a Lease) and its TTL. noted is the highest own stamp. A
// rollback of the broker does not end the look. Only monotonic time with regular readings counts.
func (s sight) next(noted, stamp protocol.Stamp, ttl time.Duration, now time.Time) (sight, verdict) {
	ttl = min(ttl, maxLookOnTTL)
	switch {
	case max(s.top, stamp) <= noted:
		return sight{}, original
	case s.at.IsZero():
		return sight{stamp: stamp, top: stamp, at: now, read: now}, lookingOn
	case stamp > s.stamp:
		s.renewed, s.at = s.renewed+1, now
	case now.Sub(s.read) > ttl:
		s.at = now
	}
	s.stamp, s.top, s.read = stamp, max(s.top, stamp), now
	switch {
	case s.renewed >= renewalsOfOther:
		return s, isCopy
	case now.Sub(s.at) > lookOnTTLs*ttl:
		return sight{}, original
	}
	return s, lookingOn
}

// load reads the note; a missing note is empty.
func (o *Original) load(ctx context.Context) error {
	l, err := o.Note.Read(ctx)
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	o.lease = l
	// A note of this process does not count: the broker may have rejected its heartbeat in favour of another one.
	if found, _ := o.state(); found != original || broker.HeartbeatOf(l).Stamp > protocol.Stamp(o.Sent.Load()) {
		o.own = max(o.own, o.noted())
	}
	// the clock of an earlier process may have been ahead, and the broker may have lost its writes
	o.Broker.Own.SeeStamp(o.noted())
	if o.copied() {
		o.decide(isCopy, l.Annotations[wellknown.AnnotationCopy])
	}
	return nil
}

// copied reports whether the note has the annotation of a copy.
func (o *Original) copied() bool {
	if o.lease == nil {
		return false
	}
	_, found := o.lease.Annotations[wellknown.AnnotationCopy]
	return found
}

// state returns the verdict, and a phrase for people. A nil Original counts as original.
func (o *Original) state() (found verdict, detail string) {
	if o == nil {
		return original, ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.verdict, o.detail
}

func (o *Original) decide(found verdict, detail string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verdict, o.detail = found, detail
}

// noted returns the highest stamp that a heartbeat of this cluster has.
func (o *Original) noted() protocol.Stamp {
	return max(broker.HeartbeatOf(o.lease).Stamp, protocol.Stamp(o.Sent.Load()))
}

// check reads the heartbeat on the broker if needed. It reports whether this cluster may renew it, and whether the
// broker was restored.
func (o *Original) check(ctx context.Context) (may, restored bool, err error) {
	found, _ := o.state()
	if found == original && !o.again {
		return true, false, nil
	}
	found, err = o.look(ctx)
	if err != nil {
		if found == undecided {
			o.decide(undecided, logging.Line(err))
		}
		return false, false, err
	}
	return found == original, found == original && o.last.Stamp < max(o.wrote, o.accepted()), nil
}

// accepted returns the noted stamp of the newest heartbeat that the broker has taken; 0 if it has no heartbeat, as
// another broker.
func (o *Original) accepted() protocol.Stamp {
	if o.last.Stamp == 0 {
		return 0
	}
	stamp, _ := strconv.ParseInt(o.lease.Annotations[wellknown.AnnotationTaken], 10, 64)
	return protocol.Stamp(stamp)
}

// look reads the note and the heartbeat, and decides. With an error nothing changes.
func (o *Original) look(ctx context.Context) (found verdict, err error) {
	found, _ = o.state()
	noted := o.copied()
	if err := o.load(ctx); err != nil {
		return found, err
	}
	switch {
	case o.copied():
		return isCopy, nil
	case noted: // a person has removed that
		o.sight = sight{}
	}
	stored, err := o.Broker.Heartbeats.Last(ctx)
	if err != nil {
		return found, err
	}
	o.last, o.again = stored, false
	if stored.Ours {
		o.own = max(o.own, stored.Stamp)
	}
	ttl := cmp.Or(stored.TTL, o.TTL, apibroker.MaxHeartbeatTTL)
	o.sight, found = o.sight.next(o.own, stored.Stamp, ttl, time.Now())
	o.decide(found, o.describe(found, ttl))
	switch found {
	case original:
		o.own = max(o.own, stored.Stamp)
	case isCopy:
		return found, o.write(ctx, func(l *coordinationv1.Lease) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, wellknown.AnnotationCopy, o.describe(found, ttl))
		})
	}
	return found, nil
}

// recordSent records whether the broker accepted a heartbeat. After a failure the next check reads the broker's
// heartbeat.
func (o *Original) recordSent(stamp protocol.Stamp, accepted bool) {
	if o.again = !accepted; accepted {
		o.wrote = stamp
	}
}

// describe returns one phrase for people, "" for an original.
func (o *Original) describe(found verdict, ttl time.Duration) string {
	switch found {
	case lookingOn:
		return fmt.Sprintf(
			"the broker has a heartbeat of this cluster that it did not send: it is a copy of a cluster, or its etcd was restored. It goes on at %s unless another cluster renews the heartbeat",
			o.sight.at.Add(lookOnTTLs*min(ttl, maxLookOnTTL)).UTC().Format(time.RFC3339))
	case isCopy:
		return "another cluster renews the heartbeat of this one: this is a copy of it. Make it anew; if the other one is the copy, stop that and join here with --take-over"
	}
	return ""
}

// note notes the stamp of a heartbeat that is about to be sent.
//
// With mending the next process finds an older heartbeat than was noted, and mends the rollback, too.
func (o *Original) note(ctx context.Context, stamp protocol.Stamp, mending bool) error {
	accepted := max(o.wrote, o.last.Stamp)
	if mending {
		accepted = stamp + 1
	}
	err := o.write(ctx, func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.UnixMicro(int64(stamp))}
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, wellknown.AnnotationTaken,
			strconv.FormatInt(int64(accepted), 10))
	})
	if err == nil {
		o.Sent.Store(int64(stamp))
	}
	return err
}

// write changes the note, also if somebody else changed it meanwhile. Only the holder of the election writes it.
func (o *Original) write(ctx context.Context, change func(*coordinationv1.Lease)) error {
	for attempt := 1; ; attempt++ {
		l := o.lease.DeepCopy()
		change(l)
		err := o.Note.Write(ctx, l)
		if err == nil {
			o.lease = l
			return nil
		}
		if attempt == 2 || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("note: %w", err)
		}
		if err := o.load(ctx); err != nil {
			return err
		}
	}
}
