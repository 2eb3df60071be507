package queue

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// A Priority decides which queued keys are handed out first.
type Priority uint8

// The priorities, the first first.
const (
	Live    Priority = iota // something changed
	Backlog                 // the initial list, and changes that affect all services
	none
)

// priorities is the storage of a workqueue: first come first served, those of a higher priority before the others. A key that
// is raised stays in its old list too, where Pop skips it. The workqueue's lock guards it.
type priorities struct {
	of    func(types.NamespacedName) Priority
	lists [none]workqueue.Queue[types.NamespacedName]
	in    map[types.NamespacedName]Priority // the list that counts, for each key
}

func newPriorities(of func(types.NamespacedName) Priority) *priorities {
	p := &priorities{of: of, in: make(map[types.NamespacedName]Priority)}
	for i := range p.lists {
		p.lists[i] = workqueue.DefaultQueue[types.NamespacedName]()
	}
	return p
}

// Push implements [workqueue.Queue].
func (p *priorities) Push(key types.NamespacedName) {
	p.in[key] = p.of(key)
	p.lists[p.in[key]].Push(key)
}

// Touch implements [workqueue.Queue]: it raises the priority of a key.
func (p *priorities) Touch(key types.NamespacedName) {
	if to := p.of(key); to < p.in[key] {
		p.in[key] = to
		p.lists[to].Push(key)
	}
}

// Len implements [workqueue.Queue].
func (p *priorities) Len() int { return len(p.in) }

// Pop implements [workqueue.Queue].
func (p *priorities) Pop() types.NamespacedName {
	for i, list := range p.lists {
		for list.Len() > 0 {
			key := list.Pop()
			if at, ok := p.in[key]; ok && at == Priority(i) {
				delete(p.in, key)
				return key
			}
		}
	}
	panic("queue: Pop of an empty workqueue")
}
