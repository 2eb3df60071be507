package broker

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A Membership is what the broker knows of this member (docs/spec/controller.md 7).
type Membership uint8

// The memberships. Only Admitted and Expelled are statements of the broker that was joined; with the others everything is
// frozen.
const (
	Unknown  Membership = iota // not read yet, or not certain
	Admitted                   // the broker namespace of this member is there
	Expelled                   // it is gone, while those of other members are there
	Empty                      // no member has a namespace
	Replaced                   // another cluster answers
	NoCRDs                     // it has no export records, or no members
)

// String is the membership as a log line has it.
func (m Membership) String() string {
	return [...]string{"unknown", "admitted", "expelled", "empty", "replaced", "without CRDs"}[m]
}

// A State is the connection to the broker, and the membership, at one moment.
type State struct {
	// Link reports that every watch follows the right broker, which accepts this member's credential. It is for people: a
	// decision asks for the watches that it needs.
	Link       bool
	Membership Membership
	Detail     string // what is wrong, "" if all is well
	// Credential reports that the broker rejects the credential of this member (401).
	Credential bool
}

// State returns the current state.
func (b *Broker) State() (s State) {
	err := b.failure()
	s.Link, s.Credential = err == nil, apierrors.IsUnauthorized(err)
	s.Membership, s.Detail = b.membership()
	switch {
	case s.Credential:
		s.Detail = "credential: the broker rejects it; an administrator has to join this cluster again"
	case err != nil:
		s.Detail = err.Error()
	}
	return s
}

// membership returns what follows from the namespaces and Members that are known, and what is wrong.
func (b *Broker) membership() (Membership, string) {
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
		b.removal.confirmed.Store(false)
		return Admitted, ""
	}
	where := fmt.Sprintf("namespace %s of member %s is gone from the broker", b.cfg.Namespace, b.cfg.ClusterID)
	switch {
	case b.removal.confirmed.Load():
		return Expelled, where
	case !b.others():
		return Empty, "no member has a namespace on the broker"
	}
	return Unknown, where + "; asking the broker"
}

// present reports whether the namespace of this member is known to be there.
func (b *Broker) present() bool {
	item, ok, _ := b.namespaces.GetStore().GetByKey(b.cfg.Namespace)
	return ok && item.(*corev1.Namespace).Labels[broker.LabelClusterID] == b.cfg.ClusterID
}

// others reports whether another member has a namespace.
func (b *Broker) others() bool {
	for _, m := range b.Members() {
		if m.Name != b.cfg.ClusterID {
			return true
		}
	}
	return false
}

// checkRemoval asks [Broker.Run] to check soon whether this member was removed.
func (b *Broker) checkRemoval() {
	select {
	case b.removal.wake <- struct{}{}:
	default:
	}
}

// removed reports whether this member seems to be removed, and the broker was not asked yet.
func (b *Broker) removed() bool {
	return b.Synced() && !b.set.Replaced() && !b.present() && b.others() && !b.removal.confirmed.Load()
}

// confirmRemoval asks the broker, if it is the right one, whether the namespace of this member is gone.
func (b *Broker) confirmRemoval(ctx context.Context) bool {
	if uid, err := b.client.SystemUID(ctx); err != nil || uid != b.set.UID() {
		return false
	}
	err := b.client.Get(ctx, &corev1.Namespace{}, "", b.cfg.Namespace)
	return apierrors.IsNotFound(err)
}
