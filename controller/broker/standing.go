package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// Standing is what this member is to the broker (section 7).
type Standing uint8

// The standings. Only Admitted and Expelled are answers of the broker that the join knew; with the others everything is
// held.
const (
	Unknown  Standing = iota // not read yet, or in doubt
	Admitted                 // the broker namespace of this member is there
	Expelled                 // it is gone, while those of other members are there
	Empty                    // no member has a namespace
	Replaced                 // another cluster answers
	NoCRDs                   // it has no export records, or no members
)

// String is the standing as a log line has it.
func (s Standing) String() string {
	return [...]string{"unknown", "admitted", "expelled", "empty", "replaced", "without CRDs"}[s]
}

// A State is how this member stands with its broker now.
type State struct {
	// Link says that the broker was heard of within Config.Silence, is the right one and knows this member's credential.
	// While it is false nothing may be concluded from what others did not do.
	Link        bool
	LastContact time.Time // zero before the first
	Standing    Standing
	Detail      string // what is wrong, "" if nothing is
	// Credential says that the broker refuses the credential of this member (401).
	Credential bool
}

// State returns how this member stands with its broker.
func (b *Broker) State() State {
	s := State{LastContact: b.set.LastContact()}
	err := b.set.Err()
	s.Credential = apierrors.IsUnauthorized(err)
	s.Standing, s.Detail = b.standing()
	echo := b.heartbeats.silence()
	switch silence := time.Since(s.LastContact); {
	case s.Credential:
		s.Detail = "credential: the broker refuses it; an admin has to join this cluster again"
	case err != nil:
		s.Detail = err.Error()
	case s.LastContact.IsZero():
		s.Detail = "the first list is under way"
	case silence > b.cfg.Silence:
		s.Detail = fmt.Sprintf("no sign of the broker for %s", silence.Round(time.Second))
	case echo > b.cfg.Silence:
		s.Detail = fmt.Sprintf("the broker takes heartbeats, but its watch has not shown them for %s", echo.Round(time.Second))
	default:
		s.Link = true
	}
	return s
}

// standing returns what follows from the namespaces and Members that are known.
func (b *Broker) standing() (Standing, string) {
	if b.set.Replaced() {
		return Replaced, ""
	}
	if absent := b.set.Absent(); slices.Contains(absent, "ExportedService") || slices.Contains(absent, "Member") {
		return NoCRDs, ""
	}
	if !b.namespaces.HasSynced() || !b.members.HasSynced() {
		return Unknown, ""
	}
	if b.present() {
		b.expulsion.confirmed.Store(false)
		return Admitted, ""
	}
	where := fmt.Sprintf("namespace %s of member %s is gone from the broker", b.cfg.Namespace, b.cfg.ClusterID)
	switch {
	case b.expulsion.confirmed.Load():
		return Expelled, where
	case !b.others():
		return Empty, "no member has a namespace on the broker"
	}
	return Unknown, where + "; making sure"
}

// present reports whether the namespace of this member is known to be there.
func (b *Broker) present() bool {
	item, ok, _ := b.namespaces.GetStore().GetByKey(b.cfg.Namespace)
	return ok && item.(*corev1.Namespace).Labels[broker.LabelClusterID] == b.cfg.ClusterID
}

// others reports whether another member has its namespace.
func (b *Broker) others() bool {
	for _, m := range b.Members() {
		if m.Name != b.cfg.ClusterID {
			return true
		}
	}
	return false
}

// expulsion is whether the broker itself said that the namespace of this member is gone.
type expulsion struct {
	wake      chan struct{}
	confirmed atomic.Bool
}

// reconsider asks for a look at whether this member was expelled.
func (b *Broker) reconsider() {
	select {
	case b.expulsion.wake <- struct{}{}:
	default:
	}
}

// attend looks after what no event tells, until ctx ends: what was refused before everything was read, and whether this
// member was expelled. For that it asks the broker: what a watch left out is no reason to leave the clusterset.
func (b *Broker) attend(ctx context.Context) {
	const pause = time.Second
	for ctx.Err() == nil {
		synced := b.Synced()
		if synced {
			b.judgeUnasked()
		}
		if b.doubtful() && b.goneForSure(ctx) {
			b.expulsion.confirmed.Store(true)
			b.cfg.Everything()
		}
		var again <-chan time.Time
		if !synced || b.doubtful() {
			again = time.After(pause + rand.N(pause))
		}
		select {
		case <-ctx.Done():
		case <-b.expulsion.wake:
		case <-again:
		}
	}
}

func (b *Broker) doubtful() bool {
	return b.Synced() && !b.set.Replaced() && !b.present() && b.others() && !b.expulsion.confirmed.Load()
}

// goneForSure reports whether the right broker says that it has no namespace of this member.
func (b *Broker) goneForSure(ctx context.Context) bool {
	if uid, err := b.client.SystemUID(ctx); err != nil || uid != b.set.UID() {
		return false
	}
	err := b.client.Get(ctx, &corev1.Namespace{}, "", b.cfg.Namespace)
	return apierrors.IsNotFound(err)
}
