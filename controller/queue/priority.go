package queue

import "k8s.io/apimachinery/pkg/types"

// A Priority decides which queued keys are handed out first.
type Priority uint8

// The priorities, the first first.
const (
	Live    Priority = iota // something changed
	Backlog                 // the initial list, and changes that affect all services
	priorityCount
)

// backlogTurn makes each eighth key one of the backlog, which would wait for good while keys change all the time.
const backlogTurn = 8

// priorities is the storage of a workqueue: keys of a higher priority before the others, in turns of the members that
// changed them, and in turns of their namespaces. A key that is raised, or that another member changes, too, is in
// several lists, where Pop skips it once it was handed out. The workqueue's lock guards it.
type priorities struct {
	causes func(types.NamespacedName) (Priority, []string)
	lists  [priorityCount]line
	queued map[types.NamespacedName]Priority // the list that counts, for each key
	popped int
}

// Push implements [workqueue.Queue].
func (p *priorities) Push(key types.NamespacedName) {
	to, members := p.causes(key)
	p.queued[key] = to
	for _, m := range members {
		p.lists[to].push(key, m, key.Namespace)
	}
}

// Touch implements [workqueue.Queue]: it raises the priority of a key, or adds members.
func (p *priorities) Touch(key types.NamespacedName) {
	if to, _ := p.causes(key); to <= p.queued[key] {
		p.Push(key)
	}
}

// Len implements [workqueue.Queue].
func (p *priorities) Len() int { return len(p.queued) }

// Pop implements [workqueue.Queue].
func (p *priorities) Pop() types.NamespacedName {
	first := Live
	if p.popped++; p.popped%backlogTurn == 0 {
		first = Backlog
	}
	for i := range priorityCount {
		priority := (first + i) % priorityCount
		for list := &p.lists[priority]; !list.empty(); {
			key := list.pop()
			if at, ok := p.queued[key]; ok && at == priority {
				delete(p.queued, key)
				return key
			}
		}
	}
	panic("queue: Pop of an empty workqueue")
}

// A line hands out the keys of its parts in turns, or without parts its own in their order. The zero value is empty.
type line struct {
	turns   []string // names of parts, the next one first
	parts   map[string]*line
	keys    []types.NamespacedName
	waiting map[types.NamespacedName]bool
}

func (l *line) empty() bool { return len(l.turns) == 0 && len(l.keys) == 0 }

// push adds a key to the part at a path, once.
func (l *line) push(key types.NamespacedName, path ...string) {
	if len(path) > 0 {
		part := l.parts[path[0]]
		if part == nil {
			if l.parts == nil {
				l.parts = make(map[string]*line)
			}
			part = &line{}
			l.parts[path[0]] = part
			l.turns = append(l.turns, path[0])
		}
		part.push(key, path[1:]...)
		return
	}
	if !l.waiting[key] {
		if l.waiting == nil {
			l.waiting = make(map[types.NamespacedName]bool)
		}
		l.waiting[key] = true
		l.keys = append(l.keys, key)
	}
}

// pop removes the next key. The line may not be empty.
func (l *line) pop() (key types.NamespacedName) {
	if len(l.turns) == 0 {
		key, l.keys = l.keys[0], l.keys[1:]
		delete(l.waiting, key)
		return key
	}
	name := l.turns[0]
	part := l.parts[name]
	key, l.turns = part.pop(), l.turns[1:]
	if part.empty() {
		delete(l.parts, name)
	} else {
		l.turns = append(l.turns, name)
	}
	return key
}
