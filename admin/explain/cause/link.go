package cause

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// The checks in this file are about the broker and what this cluster is there.

func checkBroker(w *walk, name string) {
	code, evidence := credentialFault(w.in)
	if code == "" {
		code, evidence = linkFault(w.in)
	}
	if code != "" {
		w.fault(w.isSettled(), name, code, "%s", evidence)
		return
	}
	b := &w.in.Broker
	switch {
	case b.UID.State == NotAsked:
		w.unknown(name, cmp.Or(w.in.Here.Credential.Why, b.UID.Why, "the broker was not asked"))
	case b.UID.State != Present:
		w.unknown(name, b.UID.Why)
	case b.Members.State != Present:
		w.unknown(name, b.Members.Why)
	default:
		w.ok(name, "it answers, and has %d members", len(b.Members.Value))
	}
}

// checkFrozen adds a step for each reason for which the controller has suspended operations. A reason that stops what
// follows from the broker explains that an import lacks something.
func checkFrozen(w *walk) {
	if w.isForeign() || !hasLeader(w.in) {
		return // data of a former leader does not count
	}
	for _, f := range w.in.Here.Frozen {
		code := reason.Code(f.Code)
		switch {
		case code == reason.ImportWebhook:
			continue // the steps of the objects that it stops name it: those of other services do not need it
		case !reason.Known(code):
			code = reason.ControllerFrozen
		}
		w.fault(!f.Imports || w.isSettled(), "frozen", code, "%s, for %s: %s; suspended: %s",
			f.Reason, ageText(w.in.Now.Sub(f.Since)), oneLine(f.Detail), oneLine(f.Suspends))
	}
}

func credentialFault(in *Input) (reason.Code, string) {
	secret := in.Namespace + "/" + broker.SecretName
	switch c := in.Here.Credential; {
	case c.State == Absent:
		return reason.CredentialMissing, fmt.Sprintf("there is no Secret %s", secret)
	case c.State != Present:
		return "", ""
	case c.Value.Invalid != "":
		return reason.CredentialInvalid, fmt.Sprintf("Secret %s: %s", secret, c.Value.Invalid)
	case !c.Value.Expires.After(in.Now):
		return reason.CredentialExpired, fmt.Sprintf("the token in Secret %s expired at %s", secret,
			c.Value.Expires.UTC().Format(time.RFC3339))
	}
	return "", ""
}

func linkFault(in *Input) (reason.Code, string) {
	b := &in.Broker
	joined := in.Here.ClusterSet.Value.Annotations[broker.AnnotationBrokerUID]
	switch {
	case b.UID.State == Unreachable:
		return reason.BrokerUnreachable, b.UID.Why
	case b.UID.State == Unauthorized:
		return reason.CredentialRejected, b.UID.Why
	case b.UID.State == Present && joined != "" && string(b.UID.Value) != joined:
		return reason.BrokerReplaced, fmt.Sprintf("its kube-system has UID %s, and this cluster joined %s", b.UID.Value,
			joined)
	case b.Members.State == NotInstalled:
		return reason.BrokerUnprepared, "it does not have members." + broker.GroupName
	case b.Members.State != Present:
		return "", ""
	}
	return memberFault(in)
}

func memberFault(in *Input) (reason.Code, string) {
	m := ownMember(in)
	if m == nil {
		if in.Here.UID.State != Present {
			return "", ""
		}
		members, id := in.Broker.Members.Value, in.Here.ClusterID.Value.Value
		if at := slices.IndexFunc(members, func(m v1alpha1.Member) bool { return m.Name == id }); at >= 0 {
			return reason.ClusterIDTaken, fmt.Sprintf("Member %s has kube-system UID %s, and this cluster %s", id,
				members[at].Spec.KubeSystemUID, in.Here.UID.Value)
		}
		return reason.MemberMissing, fmt.Sprintf("none of its %d Members has the UID of this cluster", len(members))
	}
	if in.Broker.Namespaces.State == Present && memberIn(&in.Broker, m.Spec.Namespace) == nil {
		return reason.MemberMissing, fmt.Sprintf("namespace %s of Member %s does not exist", m.Spec.Namespace, m.Name)
	}
	lease := in.Broker.Heartbeats.Value[m.Spec.Namespace]
	switch {
	case in.Broker.Heartbeats.State != Present || !hasLeader(in):
	case lease == nil || lease.RenewTime == nil:
		return reason.OwnHeartbeatExpired, fmt.Sprintf("there is no heartbeat in namespace %s", m.Spec.Namespace)
	case broker.HeartbeatExpired(lease, in.TTL, in.Now):
		return reason.OwnHeartbeatExpired, "it was last renewed " + agoText(in.Now.Sub(lease.RenewTime.Time))
	}
	return "", ""
}
