package broker

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A Membership is what the broker knows of this member (docs/spec/controller.md 7).
type Membership uint8

// The memberships. Only Admitted and Expelled are statements of the broker that was joined; with the others everything
// is frozen.
const (
	Unknown  Membership = iota // not read yet, or not certain
	Admitted                   // the broker namespace of this member is there
	Expelled                   // it is gone while those of other members are there, or marked as removed
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

// membership returns the membership by the known namespaces and Members, and the fault in it.
func (b *Broker) membership() (Membership, string) {
	if b.set.Replaced() {
		return Replaced, ""
	}
	if absent := b.set.Absent(); slices.ContainsFunc(absent,
		func(kind string) bool { return kind == kindRecord || kind == kindMember || kind == kindInventory }) {
		return NoCRDs, ""
	}
	where := fmt.Sprintf("namespace %s of member %s is gone from the broker", b.cfg.Namespace, b.cfg.ClusterID)
	switch {
	case b.removal.confirmed.Load():
		return Expelled, where
	case !b.Members.namespaces.HasSynced() || !b.Members.members.HasSynced():
		return Unknown, ""
	case b.Members.present():
		return Admitted, ""
	case !b.Members.others():
		return Empty, "no member has a namespace on the broker"
	}
	return Unknown, where + "; asking the broker"
}

// forbiddenPeriod is the time between two questions whether this member was removed while the broker lets it read
// nothing: an administrator may just have changed its rights.
const forbiddenPeriod = 30 * time.Second

// checkRemoval asks [Broker.Run] to check soon whether this member was removed.
func (b *Broker) checkRemoval() {
	select {
	case b.removal.wake <- struct{}{}:
	default:
	}
}

// reviewRemoval asks the broker whether this member was removed if there is a reason to, and reports whether to call it
// again soon.
func (b *Broker) reviewRemoval(ctx context.Context) (again bool) {
	if b.removal.confirmed.Load() {
		if b.failure(watchNamespaces) == nil && b.Members.present() {
			b.removal.confirmed.Store(false)
			b.handlers.MembersChanged()
		}
		return true
	}
	forbidden := apierrors.IsForbidden(b.failure(watchNamespaces))
	if !b.absent() && !forbidden {
		return false
	}
	if now := time.Now(); b.absent() || now.Sub(b.removal.asked) >= forbiddenPeriod {
		b.removal.asked = now
		if b.confirmRemoval(ctx) {
			b.removal.confirmed.Store(true)
			b.handlers.MembersChanged()
		}
	}
	return true
}

// absent reports whether this member seems to be removed, by the namespaces that are known.
func (b *Broker) absent() bool {
	return b.Synced() && !b.set.Replaced() && !b.Members.present() && b.Members.others()
}

// confirmRemoval asks the broker, if it is the right one, whether the namespace of this member is gone or marked as
// that of a cluster that was removed. A member that was removed may read the mark and nothing else.
//
// The same response must identify the broker: an address may lead to several API servers.
func (b *Broker) confirmRemoval(ctx context.Context) bool {
	ns := &corev1.Namespace{}
	switch err := b.client.Get(ctx, ns, "", b.cfg.Namespace); {
	case err == nil:
		uid := types.UID(ns.Annotations[broker.AnnotationBrokerUID])
		ours := b.cfg.ClusterID == "" || ns.Labels[broker.LabelClusterID] == b.cfg.ClusterID
		removed := ours && (isMarked(ns) && (b.cfg.UID == "" || uid == b.cfg.UID) || b.Members.memory.marked(ns))
		if removed {
			b.Members.memory.seeNamespace(ns)
		}
		return removed
	case !apierrors.IsNotFound(err):
		return false
	}
	all := &corev1.NamespaceList{}
	if err := b.client.List(ctx, &corev1.Namespace{}, all, "", ""); err != nil {
		return false
	}
	named := func(name string) int {
		return slices.IndexFunc(all.Items, func(ns corev1.Namespace) bool { return ns.Name == name })
	}
	system := named(metav1.NamespaceSystem)
	return system >= 0 && all.Items[system].UID == b.set.UID() && named(b.cfg.Namespace) < 0
}
