package broker

import (
	"sync"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A validity remembers by id which Members are valid: [Members.All] asks for all of them every second, and an answer
// takes hashes. The zero value is ready.
type validity struct {
	mu   sync.Mutex
	last map[string]validated
}

// A validated is a Member, which does not change, and why it is not valid.
type validated struct {
	member *v1alpha1.Member
	err    error
}

func (v *validity) check(m *v1alpha1.Member) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	current := v.last[m.Name]
	if current.member != m {
		if v.last == nil {
			v.last = make(map[string]validated)
		}
		current = validated{m, m.Validate()}
		v.last[m.Name] = current
	}
	return current.err
}

// forget drops a Member that was deleted.
func (v *validity) forget(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.last, id)
}
