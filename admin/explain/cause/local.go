package cause

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// The checks in this file are about the cluster itself. Each adds a step.

func checkKinds(w *walk) {
	const name = "cluster"
	switch imp := w.in.Here.Import; imp.State {
	case NotInstalled:
		w.wrong(name, reason.CRDMissing, "the API server does not have serviceimports.multicluster.x-k8s.io")
	case Unreachable:
		w.wrong(name, reason.APIUnreachable, "%s", imp.Why)
	case Unauthorized:
		w.wrong(name, reason.APIRejectsUser, "%s", imp.Why)
	case Forbidden:
		w.unknown(name, imp.Why)
	default:
		w.ok(name, "the API server answers and has ServiceImports")
	}
}

func checkNamespace(w *walk) {
	const name = "namespace"
	ns := w.in.Here.Namespace
	switch {
	case ns.State == Absent:
		w.wrong(name, reason.NamespaceMissing, "namespace %s does not exist", w.target.Namespace)
	case ns.State == Present && (ns.Value.DeletionTimestamp != nil ||
		ns.Value.Status.Phase == corev1.NamespaceTerminating):
		w.wrong(name, reason.NamespaceTerminating, "namespace %s is being deleted%s", w.target.Namespace,
			remainingContent(ns.Value))
	case w.neverTakesPart() && !w.isForeign():
		w.fault(w.hasAnswer(), name, reason.NamespaceExcluded, "namespace %s never takes part", w.target.Namespace)
	case w.namespaceChoice() == notChosen && !w.isForeign():
		w.fault(w.hasAnswer(), name, reason.NamespaceExcluded,
			"import_namespaces of the controller does not select namespace %s", w.target.Namespace)
	case w.namespaceChoice() == unknownChoice && w.target.Namespace == corev1.NamespaceDefault &&
		w.in.Here.Import.State == Absent:
		w.wrong(name, reason.NamespaceExcluded,
			"namespace default takes part only if import_namespaces names it or its selector matches it")
	case ns.State == Present, w.in.Here.Import.State == Present:
		w.ok(name, "%s exists", w.target.Namespace)
	default:
		w.unknown(name, ns.Why)
	}
}

// neverTakesPart reports whether no option can make the namespace take part (docs/spec/controller.md 9.2).
func (w *walk) neverTakesPart() bool {
	ns := w.in.Here.Namespace
	if ns.State != Present {
		return wellknown.NeverTakesPart(w.target.Namespace, nil, w.in.Namespace)
	}
	return ns.Value.Labels[broker.LabelClusterID] != "" ||
		wellknown.NeverTakesPart(w.target.Namespace, ns.Value.Annotations, w.in.Namespace)
}

// A choice is the effect of import_namespaces on the namespace.
type choice uint8

// The choices.
const (
	unknownChoice choice = iota // the option is not given, or the Lease of a leader does not say so
	notChosen
	chosen
)

// namespaceChoice returns the choice of the current leader.
func (w *walk) namespaceChoice() choice {
	here := &w.in.Here
	switch {
	case !hasLeader(w.in) || !here.Namespaces.Restricts() || here.Namespace.State != Present:
		return unknownChoice
	case here.Namespaces.Selects(w.target.Namespace, here.Namespace.Value.Labels):
		return chosen
	}
	return notChosen
}

func remainingContent(ns *corev1.Namespace) string {
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && strings.Contains(string(c.Type), "Remaining") {
			return ": " + c.Message
		}
	}
	return ""
}

func checkMembership(w *walk) {
	const name = "membership"
	here := &w.in.Here
	if w.isForeign() {
		w.skip(name, "the cluster is not a member, and the ServiceImport is not ours: another implementation made it")
		return
	}
	set, id := here.ClusterSet, here.ClusterID
	_, leaving := set.Value.Annotations[broker.AnnotationLeaving]
	settled := w.isSettled()
	switch {
	case leaving:
		w.fault(settled, name, reason.Leaving, "clusterset %s, with the annotation %s", set.Value.Value,
			broker.AnnotationLeaving)
	case isMissing(set) && ownMember(w.in) != nil:
		w.fault(settled, name, reason.MembershipDeleted, "the broker has a Member with the UID of this cluster, %s",
			here.UID.Value)
	case isMissing(set):
		w.fault(settled, name, reason.NotAMember, "there is no ClusterProperty clusterset.k8s.io")
	case set.State != Present:
		w.unknown(name, set.Why)
	case isMissing(id):
		w.fault(settled, name, reason.ClusterIDMissing, "there is no ClusterProperty cluster.clusterset.k8s.io")
	default:
		w.ok(name, "cluster %s of clusterset %s", id.Value.Value, set.Value.Value)
	}
}

func isMissing[T any](r Read[T]) bool { return r.State == Absent || r.State == NotInstalled }

func checkController(w *walk, name string) {
	switch lease := w.in.Here.Leader; {
	case lease.State == Absent:
		w.fault(w.isSettled(), name, reason.ControllerNeverRan, "there is no Lease %s/%s", w.in.Namespace,
			wellknown.ControllerLease)
	case lease.State != Present:
		w.unknown(name, lease.Why)
	case !hasLeader(w.in):
		w.fault(w.isSettled(), name, reason.ControllerStopped, "Lease %s/%s was last renewed %s", w.in.Namespace,
			wellknown.ControllerLease, renewedText(w.in))
	default:
		w.ok(name, "%s leads, renewed %s", *lease.Value.HolderIdentity, renewedText(w.in))
	}
}

// hasLeader reports whether a controller holds the Lease now.
func hasLeader(in *Input) bool {
	lease := in.Here.Leader.Value
	return lease != nil && lease.HolderIdentity != nil && *lease.HolderIdentity != "" && lease.RenewTime != nil &&
		in.Now.Sub(lease.RenewTime.Time) < in.TTL
}

func renewedText(in *Input) string {
	if in.Here.Leader.Value.RenewTime == nil {
		return "never"
	}
	return agoText(in.Now.Sub(in.Here.Leader.Value.RenewTime.Time))
}
