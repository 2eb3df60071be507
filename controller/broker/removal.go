package broker

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// marks holds the broker namespaces that were seen marked as removed, by name: the broker may be restored to before. A namespace of that name that is
// another one, and not marked, ends it: the cluster has joined anew. The zero value is empty.
type marks struct {
	mu   sync.Mutex
	seen map[string]Mark
}

// A Mark is a broker namespace that was seen marked as removed.
type Mark struct {
	Which string    `json:"which"` // distinguishes the namespace from those of other joins
	At    time.Time `json:"at"`    // when it was seen
}

// The bounds of the marks that are noted: see [Broker.Marks].
const (
	markLife = 365 * 24 * time.Hour
	maxMarks = 64
)

// maxJoined bounds what is noted of the annotation, in octets: a time.
const maxJoined = 40

// identify returns what distinguishes a broker namespace from those of other joins of its cluster.
func identify(ns *corev1.Namespace) string {
	return string(ns.UID) + "/" + shorten.Text(ns.Annotations[broker.AnnotationJoined], maxJoined)
}

// isMarked reports whether a broker namespace has the mark of a cluster that was removed.
func isMarked(ns *corev1.Namespace) bool {
	_, is := ns.Annotations[broker.AnnotationRemoved]
	return is
}

// isRemoved reports whether the cluster of a broker namespace was removed, by its mark or one that was noted.
func (b *Broker) isRemoved(ns *corev1.Namespace) bool { return isMarked(ns) || b.marks.has(ns) }

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

// Marks returns the newest marks of removed clusters by the name of the namespace: at most 64, of the last year.
func (b *Broker) Marks() map[string]Mark {
	b.marks.mu.Lock()
	defer b.marks.mu.Unlock()
	newest := slices.SortedFunc(maps.Keys(b.marks.seen), func(x, y string) int { return b.marks.seen[y].At.Compare(b.marks.seen[x].At) })
	noted := make(map[string]Mark)
	for _, name := range newest[:min(len(newest), maxMarks)] {
		noted[name] = b.marks.seen[name]
	}
	return noted
}

// NoteMarks adds marks that an earlier process noted, but those that are too old, and those of clusters that have joined anew.
func (b *Broker) NoteMarks(noted map[string]Mark) {
	b.marks.mu.Lock()
	defer b.marks.mu.Unlock()
	for name, mark := range noted {
		if item, ok, _ := b.namespaces.GetStore().GetByKey(name); ok && identify(item.(*corev1.Namespace)) != mark.Which {
			continue
		}
		if _, known := b.marks.seen[name]; !known && time.Since(mark.At) < markLife {
			b.marks.set(name, mark)
		}
	}
}
