package broker

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/shorten"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Bounds of the note. A Lease takes 256 KiB of annotations; a Member with one network of each kind takes 200 octets.
const (
	maxNoted = 200 << 10 // octets of JSON, of Members
	maxMarks = 64
	markLife = 365 * 24 * time.Hour
)

// A memory holds [wellknown.Noted] while a process runs. An unmarked namespace with the name of a marked one and
// another identity ends the mark: the cluster joined anew.
type memory struct {
	mu      sync.Mutex
	members map[string]wellknown.NotedMember
	marks   map[string]wellknown.Mark
	changes int // of members and marks
}

// maxJoined bounds [broker.AnnotationJoined] in an identity, in octets.
const maxJoined = 40

// identify returns the identity of a broker namespace, which differs for each join of its cluster.
func identify(ns *corev1.Namespace) string {
	return string(ns.UID) + "/" + shorten.Text(ns.Annotations[broker.AnnotationJoined], maxJoined)
}

// isMarked reports whether a broker namespace has the mark of a cluster that was removed.
func isMarked(ns *corev1.Namespace) bool {
	_, found := ns.Annotations[broker.AnnotationRemoved]
	return found
}

func newMemory(n wellknown.Noted) *memory {
	m := &memory{members: make(map[string]wellknown.NotedMember), marks: make(map[string]wellknown.Mark)}
	maps.Copy(m.members, n.Members)
	maps.Copy(m.marks, n.Removed)
	maps.DeleteFunc(m.marks, func(_ string, mark wellknown.Mark) bool { return time.Since(mark.At) >= markLife })
	return m
}

// complete is the transform of the watch of Members. An older Member than the noted one gets the noted networks.
func (m *memory) complete(obj any) (any, error) {
	current, ok := obj.(*v1alpha1.Member)
	if !ok {
		return obj, nil
	}
	current.SetManagedFields(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	if noted := m.members[current.Name]; noted.Replaces(current) {
		noted.Declare(&current.Spec)
	}
	return current, nil
}

// seeMember notes a Member, unless it is older than the note.
func (m *memory) seeMember(current *v1alpha1.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	declared, noted := wellknown.NotedOf(current), m.members[current.Name]
	if !noted.Replaces(current) && !reflect.DeepEqual(declared, noted) {
		m.members[current.Name] = declared
		m.changes++
	}
}

// older reports whether a Member is older than the noted one.
func (m *memory) older(current *v1alpha1.Member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members[current.Name].Replaces(current)
}

// seeNamespace takes a broker namespace as the broker has it. A cluster that was removed may join again as another one.
func (m *memory) seeNamespace(ns *corev1.Namespace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark, known := m.marks[ns.Name]
	if known && mark.Which == identify(ns) || !known && !isMarked(ns) {
		return
	}
	m.changes++
	if !isMarked(ns) {
		delete(m.marks, ns.Name)
		return
	}
	m.marks[ns.Name] = wellknown.Mark{Which: identify(ns), At: time.Now()}
	delete(m.members, ns.Labels[broker.LabelClusterID])
}

// removed reports whether a broker namespace has the mark of a removed cluster, or had it.
func (m *memory) removed(ns *corev1.Namespace) bool { return isMarked(ns) || m.marked(ns) }

func (m *memory) marked(ns *corev1.Namespace) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark, found := m.marks[ns.Name]
	return found && mark.Which == identify(ns)
}

func (m *memory) changed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// noted returns the note: the newest marks and Members within the bounds.
func (m *memory) noted() wellknown.Noted {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := wellknown.Noted{Members: make(map[string]wellknown.NotedMember), Removed: make(map[string]wellknown.Mark)}
	marks := slices.SortedFunc(maps.Keys(m.marks), func(x, y string) int { return m.marks[y].At.Compare(m.marks[x].At) })
	for _, namespace := range marks[:min(len(marks), maxMarks)] {
		n.Removed[namespace] = m.marks[namespace]
	}
	ids := slices.SortedFunc(maps.Keys(m.members), func(x,
		y string) int {
		return cmp.Compare(m.members[y].Stamp, m.members[x].Stamp)
	})
	size := 0
	for _, id := range ids {
		text, err := json.Marshal(m.members[id])
		if err != nil {
			panic("broker: a Member that JSON does not take: " + err.Error())
		}
		add := len(text) + len(id) + len(`"":,`)
		if size += add; size > maxNoted {
			size -= add
			continue
		}
		n.Members[id] = m.members[id]
	}
	return n
}
