package controller

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/broker"
)

// An identity is what a session is built for: another one takes another session.
type identity struct {
	id     string    // the cluster id, "" if there is none that is valid
	uid    types.UID // of the broker, as the join saw it; "" if that is not known
	digest string    // of the kubeconfig, "" if there is none that can be used
}

// membership is what is known about this cluster's place in the clusterset (section 7). It may be read from several
// goroutines.
type membership struct {
	identity
	namespace string // on the broker

	mu  sync.Mutex
	now standing
}

// A standing is what follows from the properties of this cluster and from what the broker says.
type standing struct {
	id      string // "" if this cluster is not a member
	settled bool
	held    hold   // "" if nothing is to be held
	detail  string // what to do about it, or why the cluster is no member; one phrase
}

// evidence is what a standing follows from.
type evidence struct {
	id       string // ClusterProperty cluster.clusterset.k8s.io, "" if absent
	property bool   // ClusterProperty clusterset.k8s.io exists
	leaving  bool   // with the annotation that says so
	joinUID  types.UID
	broker   broker.State
	taken    bool // the Member of our id is another cluster
}

// judge is the table of section 7. Whatever is not known for sure leaves the cluster what it was.
func judge(e evidence) standing {
	switch {
	case !e.property:
		return standing{settled: true, detail: "this cluster has not joined a clusterset"}
	case e.id == "":
		return standing{detail: "ClusterProperty cluster.clusterset.k8s.io is missing: create it with the cluster id"}
	case !apibroker.IsClusterID(e.id):
		return standing{
			detail: fmt.Sprintf("cluster id %q: want one RFC 1123 label, or two joined by a dot, of at most 63 octets", e.id),
		}
	case e.leaving:
		return standing{settled: true, detail: "this cluster is leaving the clusterset"}
	case e.taken:
		return standing{id: e.id, settled: true, held: holdBrokerIdentity,
			detail: fmt.Sprintf("cluster id %q belongs to another cluster: leave, and join with another id", e.id)}
	}
	switch e.broker.Standing {
	case broker.Admitted:
		return standing{id: e.id, settled: true}
	case broker.Expelled:
		if e.joinUID == "" {
			return standing{id: e.id, settled: true, held: holdBrokerIdentity,
				detail: "the broker does not know this cluster, and which broker was joined is not recorded: join again"}
		}
		return standing{settled: true, detail: "the broker namespace of this cluster is gone: it was taken out of the clusterset"}
	case broker.Empty, broker.NoCRDs:
		return standing{id: e.id, settled: true, held: holdBrokerEmpty,
			detail: "the broker has lost its members: restore it, or init it and join again"}
	case broker.Replaced:
		return standing{id: e.id, settled: true, held: holdBrokerIdentity,
			detail: "another API server answers in place of the broker: restore it, or join again"}
	}
	return standing{id: e.id, detail: "the broker has not answered yet"}
}

// ClusterID returns the id, "" if this cluster is not a member, or is on its way out.
func (m *membership) ClusterID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.id
}

// Namespace returns the broker namespace of this member, "" if it is not known.
func (m *membership) Namespace() string { return m.namespace }

// Settled reports whether it is known what this cluster is. As long as it is not, nothing is removed anywhere.
func (m *membership) Settled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.settled
}

// set takes the standing and returns the one before.
func (m *membership) set(now standing) (was standing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, m.now = m.now, now
	return was
}
