package broker

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/shorten"
)

// removal records whether the broker itself confirmed that this member was removed. A watch that omits the namespace is no
// reason to leave the clusterset, and neither is a right that is missing.
//
//	namespace absent, or marked as removed --+
//	                                         +--> ask the broker --> confirmed --> cleared when the namespace can be read again
//	namespaces may not be read (403) --------+
type removal struct {
	wake      chan struct{}
	confirmed atomic.Bool
	asked     time.Time // used by [Broker.review] alone
}

// marks remembers broker namespaces that were marked as removed, by name, in case the broker is restored to an older state. An
// unmarked namespace with the same name and another identity ends the mark: the cluster joined anew. The zero value is empty.
type marks struct {
	mu   sync.Mutex
	seen map[string]Mark
}

// A Mark is a broker namespace that was seen marked as removed.
type Mark struct {
	Which string    `json:"which"` // identity of the namespace: see identify
	At    time.Time `json:"at"`    // when it was seen
}

// The bounds of the marks that are noted: see newest.
const (
	markLife = 365 * 24 * time.Hour
	maxMarks = 64
)

// maxJoined bounds [broker.AnnotationJoined] in an identity, in octets.
const maxJoined = 40

// identify returns the identity of a broker namespace, which differs for each join of its cluster.
func identify(ns *corev1.Namespace) string {
	return string(ns.UID) + "/" + shorten.Text(ns.Annotations[broker.AnnotationJoined], maxJoined)
}

// isMarked reports whether a broker namespace has the mark of a cluster that was removed.
func isMarked(ns *corev1.Namespace) bool {
	_, is := ns.Annotations[broker.AnnotationRemoved]
	return is
}

// removed reports whether the cluster of a broker namespace was removed, by its mark or one that was noted.
func (m *marks) removed(ns *corev1.Namespace) bool { return isMarked(ns) || m.has(ns) }

func (m *marks) has(ns *corev1.Namespace) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark, is := m.seen[ns.Name]
	return is && mark.Which == identify(ns)
}

// see takes a namespace as the broker has it.
func (m *marks) see(ns *corev1.Namespace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	which := identify(ns)
	switch mark, known := m.seen[ns.Name]; {
	case known && mark.Which == which:
	case isMarked(ns):
		m.set(ns.Name, Mark{which, time.Now()})
	default:
		delete(m.seen, ns.Name)
	}
}

// set records a mark. The caller holds m.mu.
func (m *marks) set(name string, mark Mark) {
	if m.seen == nil {
		m.seen = make(map[string]Mark)
	}
	m.seen[name] = mark
}

// newest returns the newest marks by the name of the namespace: at most 64.
func (m *marks) newest() map[string]Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := slices.SortedFunc(maps.Keys(m.seen), func(x, y string) int { return m.seen[y].At.Compare(m.seen[x].At) })
	noted := make(map[string]Mark)
	for _, name := range newest[:min(len(newest), maxMarks)] {
		noted[name] = m.seen[name]
	}
	return noted
}

// note adds the marks of an earlier process, without expired marks and without clusters that joined anew.
func (m *marks) note(noted map[string]Mark, namespaces cache.Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, mark := range noted {
		if item, ok, _ := namespaces.GetByKey(name); ok && identify(item.(*corev1.Namespace)) != mark.Which {
			continue
		}
		if _, known := m.seen[name]; !known && time.Since(mark.At) < markLife {
			m.set(name, mark)
		}
	}
}
