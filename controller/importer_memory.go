package controller

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/merge"
)

// maxTold bounds how many refusals of one cluster are remembered, and so logged: one that writes nothing but such must not
// hide those of others. All are counted.
const maxTold = 1_000

// memory is what the importer has told and need not tell again. It may be used from several goroutines.
type memory struct {
	mu      sync.Mutex
	answers map[types.NamespacedName]map[string]answer // by service and object
	foreign map[types.NamespacedName]string            // what has names that we want
	refused map[string]map[refusedObject]struct{}      // by cluster
}

// An answer is what the API server made of a write that asked for something else.
type answer struct{ asked, found string }

type refusedObject struct {
	object string
	reason merge.Reason
}

func newMemory() *memory {
	return &memory{
		answers: make(map[types.NamespacedName]map[string]answer),
		foreign: make(map[types.NamespacedName]string),
		refused: make(map[string]map[refusedObject]struct{}),
	}
}

// answer returns what is remembered of an object of the service.
func (m *memory) answer(svc types.NamespacedName, object string) (answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.answers[svc][object]
	return a, ok
}

func (m *memory) remember(svc types.NamespacedName, object string, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers[svc] == nil {
		m.answers[svc] = make(map[string]answer)
	}
	m.answers[svc][object] = a
}

// forget drops what concerns a service that is not imported any more.
func (m *memory) forget(svc types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, svc)
}

// news reports whether the names that are taken are others than before. None are no news.
func (m *memory) news(svc types.NamespacedName, foreign []string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := strings.Join(foreign, ", ")
	was := m.foreign[svc]
	if delete(m.foreign, svc); text != "" {
		m.foreign[svc] = text
	}
	return text != "" && text != was
}

// first reports whether this is the first refusal of its kind, and there is room to remember it; last says that there is no
// more for that cluster.
func (m *memory) first(r merge.Refusal) (first, last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, of := refusedObject{r.Object, r.Reason}, m.refused[r.Cluster]
	if _, told := of[key]; told || len(of) >= maxTold {
		return false, false
	}
	if of == nil {
		of = make(map[refusedObject]struct{})
		m.refused[r.Cluster] = of
	}
	of[key] = struct{}{}
	return true, len(of) == maxTold
}

// refused counts something that a member wrote and that counts for nothing, and names it once (section 9).
func (s *session) refused(r merge.Refusal) {
	s.metrics.refuse(string(r.Reason))
	first, last := s.memory.first(r)
	if !first {
		return
	}
	s.log.Warningf("refused of cluster %q: %s (%s): %s", r.Cluster, r.Object, r.Reason, r.Detail)
	if last {
		s.log.Warningf("refused of cluster %q: %d named; from now on they are only counted", r.Cluster, maxTold)
	}
}
