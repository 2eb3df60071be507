package identity

import (
	"cmp"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// A Membership is the membership state of this cluster (docs/spec/controller.md 7). It is one of
//
//	state        ClusterID  Known
//	not joined   ""         true     nothing of ours remains, at the broker or here; not believed while the broker disagrees
//	unknown      "" or id   false    nothing is removed until it is known
//	member       id         true     exports and imports
//	frozen       id         true     a member, and a freeze reason is in force
//
// [Membership.Review], called every second by one goroutine, evaluates it; the other methods may be called by several
// goroutines. It is unknown until the first review. The exported fields do not change.
type Membership struct {
	Member     *member.Cluster
	Broker     *broker.Broker
	Identity   Identity
	Original   *Original // nil if it is known that this cluster is no copy
	Namespace  string    // of this cluster on the broker, "" if unknown
	Credential *Credential
	Freezes    *safety.Freezes
	Metrics    *metrics.Metrics
	Log        logging.Logger

	mu    sync.Mutex
	state state
}

// A state is the result of an evaluation.
type state struct {
	clusterID string // "" if this cluster is not a member
	known     bool
	freeze    safety.Reason // or 0
	code      reason.Code   // of the freeze
	detail    string        // why the cluster is not a member or frozen, and what to do; one phrase
}

// inputs are what a state follows from.
type inputs struct {
	properties
	broker     broker.State
	linked     bool   // there is a kubeconfig of the broker
	foreign    bool   // the Member of our id is another cluster
	registered bool   // the Member of our broker namespace is this cluster, with any id
	built      string // the cluster id that the controller was built for
	original   verdict
	copied     string // why this cluster may be a copy
}

// evaluate is the table of docs/spec/controller.md 7. While something is unknown the state stays.
func evaluate(in inputs) state {
	admitted := in.broker.Membership == broker.Admitted && !in.foreign
	switch {
	case in.unreadable != "":
		return state{clusterID: in.built, detail: fmt.Sprintf("ClusterProperty %s does not decode: correct it",
			in.unreadable)}
	case !in.joined:
		return evaluateUnjoined(in)
	case in.clusterID == "":
		return state{detail: "ClusterProperty cluster.clusterset.k8s.io is missing: create it with the cluster id"}
	case !apibroker.IsClusterID(in.clusterID):
		return state{
			detail: fmt.Sprintf("cluster id %q: want one RFC 1123 label, or two joined by a dot, of at most 63 octets",
				in.clusterID),
		}
	case in.original == isCopy || in.original == lookingOn && admitted:
		return state{clusterID: in.clusterID, known: true, freeze: safety.BrokerIdentity, code: reason.ClusterCloned,
			detail: in.copied}
	case in.original == undecided && admitted:
		return state{clusterID: in.clusterID, detail: cmp.Or(in.copied, "it is not known yet whose heartbeat the broker has")}
	case in.leaving:
		return state{known: true, detail: "this cluster is leaving the clusterset"}
	case in.foreign:
		return state{clusterID: in.clusterID, known: true, freeze: safety.BrokerIdentity, code: reason.ClusterIDTaken,
			detail: fmt.Sprintf("cluster id %q belongs to another cluster: leave, and join with another id", in.clusterID)}
	}
	switch in.broker.Membership {
	case broker.Admitted:
		return state{clusterID: in.clusterID, known: true}
	case broker.Expelled:
		if in.brokerUID == "" {
			return state{clusterID: in.clusterID, known: true, freeze: safety.BrokerIdentity, code: reason.MemberMissing,
				detail: "the broker does not know this cluster, and which broker was joined is not recorded: join again"}
		}
		return state{known: true, detail: "this cluster was removed from the clusterset: leave to clean up, or join again"}
	case broker.Empty, broker.NoCRDs:
		return state{clusterID: in.clusterID, known: true, freeze: safety.BrokerEmpty, code: reason.BrokerUnprepared,
			detail: "the broker has lost its members: restore it, or init it and join again"}
	case broker.Replaced:
		return state{clusterID: in.clusterID, known: true, freeze: safety.BrokerIdentity, code: reason.BrokerReplaced,
			detail: "another API server answers in place of the broker: restore it, or join again"}
	}
	return state{clusterID: in.clusterID, detail: "the broker has not answered yet"}
}

// evaluateUnjoined is the part of the table without the ClusterProperty of the membership. It may have been deleted by
// hand, or with its CRD and the cluster id. A leave takes the cluster off the broker first: if the broker has it, it
// did not leave. If the broker rejects the credential, it did.
func evaluateUnjoined(in inputs) state {
	id := cmp.Or(in.clusterID, in.built) // without the id of before, nothing is known of own exports, either
	if in.linked && (id == "" || apibroker.IsClusterID(id)) {
		switch {
		case in.registered, id != "" && in.broker.Membership == broker.Admitted && !in.foreign:
			return state{clusterID: id, known: id != "", freeze: safety.BrokerIdentity, code: reason.MembershipDeleted,
				detail: "ClusterProperty clusterset.k8s.io is missing, but the broker has this cluster as a member: join to restore it, or leave"}
		case in.broker.Membership == broker.Unknown && !in.broker.Credential:
			return state{clusterID: id,
				detail: "ClusterProperty clusterset.k8s.io is missing, and the broker has not said yet whether this cluster is a member"}
		}
	}
	return state{known: true, detail: "this cluster has not joined a clusterset"}
}

// A Status is one reading of the membership state. A reconcile reads it once and passes it on, since a review may
// change the state at any moment. Mixing two readings could look as if the cluster had left: the old, empty id with the
// new "known".
type Status struct {
	ClusterID string // "" if this cluster is not a member or is leaving
	Known     bool   // the state is known; nothing is removed anywhere before
	Leaving   bool   // an administrator takes this cluster out of the clusterset: everything is withdrawn
}

// isMember reports whether this cluster is a member, and not about to leave.
func (s Status) isMember() bool { return s.Known && s.ClusterID != "" && !s.Leaving }

// mayWrite reports whether the broker is the one that was joined, as far as is known.
func (m *Membership) mayWrite() bool {
	return m.Identity.Digest != "" && m.IsOriginal() && m.Freezes.Suspended(safety.Heartbeat) == ""
}

// IsOriginal reports whether this cluster is known not to be a copy of the member: a copy writes nothing to the broker.
func (m *Membership) IsOriginal() bool {
	found, _ := m.Original.state()
	return found == original
}

// admitted reports whether the broker has this cluster, or one that it is a copy of, as a member.
func (m *Membership) admitted() bool {
	return m.Identity.Digest != "" && m.Broker.State().Membership == broker.Admitted && !m.isForeign(m.Identity.ClusterID)
}

// Status returns the membership state of now.
func (m *Membership) Status() Status {
	leaving := Leaving(m.Member)
	m.mu.Lock()
	defer m.mu.Unlock()
	return Status{ClusterID: m.state.clusterID, Known: m.state.known, Leaving: leaving}
}

// Changed reports whether the properties of this cluster describe another identity than that of the controller. A
// missing property describes no identity: it may have been deleted by hand, or with its CRD.
func (m *Membership) Changed() bool {
	p := readProperties(m.Member)
	current := Of(m.Member, Link{Digest: m.Identity.Digest})
	if !p.joined {
		current.BrokerUID = m.Identity.BrokerUID
	}
	return m.Member.Synced() && p.unreadable == "" && p.clusterID != "" && current != m.Identity
}

// Review evaluates the membership state and sets the freeze reasons that follow from it, the credential and the caches.
// It reports whether the state changed, so that every service has to be reconciled.
func (m *Membership) Review() (changed bool) {
	in := inputs{
		properties: readProperties(m.Member), broker: m.Broker.State(), linked: m.Identity.Digest != "",
		built: m.Identity.ClusterID,
	}
	in.foreign, in.registered = m.isForeign(cmp.Or(in.clusterID, in.built)), m.registered()
	in.original, in.copied = m.Original.state()
	current := evaluate(in)
	m.mu.Lock()
	before := m.state
	if in.unreadable != "" && before.known {
		current = before // the state stays
	}
	m.state = current
	m.mu.Unlock()
	for _, r := range []safety.Reason{safety.BrokerIdentity, safety.BrokerEmpty} {
		detail := ""
		if current.freeze == r {
			detail = current.detail
		}
		m.Freezes.SetFor(r, current.code, detail)
	}
	m.Freezes.Set(safety.Credential, m.Credential.Rejected())
	m.Freezes.Set(safety.NotSynced, m.notSynced())
	m.Freezes.Set(safety.OldMember, m.oldMember(current))
	m.Metrics.SetConnected(in.broker.Link)
	m.Metrics.SetMember(current.clusterID)
	if current.clusterID != before.clusterID || current.detail != before.detail {
		m.report(current)
	}
	return current != before
}

// oldMember returns the detail of [safety.OldMember], or "".
func (m *Membership) oldMember(current state) string {
	if current.clusterID == "" || !m.Broker.Members.HasOlder(current.clusterID) {
		return ""
	}
	return "the broker was restored to before the last join of this cluster, and denies slices with addresses that were declared since: join again"
}

func (m *Membership) report(current state) {
	switch {
	case current.freeze != 0: // logged as a freeze
	case current.clusterID != "" && current.known:
		m.Log.Infof("member %q of the clusterset, broker namespace %s", current.clusterID, m.Namespace)
	default:
		m.Log.Infof("%s", current.detail)
	}
}

// isForeign reports whether the Member of this id is another cluster: two would write the same records.
func (m *Membership) isForeign(id string) bool {
	system := m.Member.Namespace(metav1.NamespaceSystem)
	if system == nil || !m.Broker.Synced() {
		return false
	}
	other := m.Broker.Members.Get(id)
	return other != nil && other.Spec.KubeSystemUID != string(system.UID)
}

// registered reports whether the Member with this cluster's broker namespace is this cluster.
func (m *Membership) registered() bool {
	system, own := m.Member.Namespace(metav1.NamespaceSystem), m.Broker.Members.Registered()
	return system != nil && own != nil && own.Spec.KubeSystemUID == string(system.UID)
}

// notSynced names a cache of a member that is incomplete, "" if all are complete.
func (m *Membership) notSynced() string {
	switch {
	case !m.Member.Synced():
		return "this cluster: " + m.Member.Waiting()
	case m.Status().ClusterID == "":
	case m.Member.ImportsUnknown() != "":
		return m.Member.ImportsUnknown()
	case m.Identity.Digest == "":
		return "broker: its kubeconfig cannot be used"
	case !m.Broker.Synced():
		return "broker: " + m.Broker.Waiting()
	}
	return ""
}
