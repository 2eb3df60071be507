package broker

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
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

// marks holds the broker namespaces that were seen marked as removed: the broker may be restored to before. The zero value is empty.
type marks struct {
	mu   sync.Mutex
	seen map[string]time.Time // when, by what identify returns
}

// The bounds of the marks that are noted: see [Broker.Marks].
const (
	markLife = 365 * 24 * time.Hour
	maxMarks = 64
)

// identify returns what distinguishes a broker namespace from those of other joins of its cluster.
func identify(ns *corev1.Namespace) string {
	return string(ns.UID) + "/" + ns.Annotations[broker.AnnotationJoined]
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
	_, is := m.seen[identify(ns)]
	return is
}

// see notes a namespace that is marked.
func (m *marks) see(ns *corev1.Namespace) {
	m.note(map[string]time.Time{identify(ns): time.Now()})
}

// note adds marks that are not too old. Those that are known stay as they are.
func (m *marks) note(noted map[string]time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = make(map[string]time.Time)
	}
	for which, at := range noted {
		if _, known := m.seen[which]; !known && time.Since(at) < markLife {
			m.seen[which] = at
		}
	}
}

// Marks returns the newest marks of removed clusters, and when each was seen: at most 64, of the last year.
func (b *Broker) Marks() map[string]time.Time {
	b.marks.mu.Lock()
	defer b.marks.mu.Unlock()
	newest := slices.SortedFunc(maps.Keys(b.marks.seen), func(x, y string) int { return b.marks.seen[y].Compare(b.marks.seen[x]) })
	noted := make(map[string]time.Time)
	for _, which := range newest[:min(len(newest), maxMarks)] {
		noted[which] = b.marks.seen[which]
	}
	return noted
}

// NoteMarks adds marks that an earlier process noted.
func (b *Broker) NoteMarks(noted map[string]time.Time) { b.marks.note(noted) }
