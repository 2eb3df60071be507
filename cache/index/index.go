// Package index holds all services of a clusterset as one immutable value: look-ups never lock, a change makes a new
// index that shares everything else with the old one.
//
// It knows services, clusters, hosts, ports and addresses, but no zone, record or query: package resolver turns them
// into answers. It uses the standard library alone.
package index

import (
	"cmp"
	"slices"
)

// An Index is all services. The zero Index is empty. It never changes: any goroutine may read it without a lock.
type Index struct {
	services   trie[*Service]
	namespaces trie[*namespace]
}

type namespace struct {
	name     string
	services int // how many exist under it, never 0
}

func (n *namespace) Key() string { return n.name }

// Service finds a service by "<name>.<namespace>", lower case; nil if there is none. It does not allocate.
func (x *Index) Service(key string) *Service { return x.services.get(key) }

// Namespace tells whether a service exists in a namespace, lower case: then its name is an empty non-terminal.
func (x *Index) Namespace(name string) bool { return x.namespaces.get(name) != nil }

// Len is the number of services.
func (x *Index) Len() int { return x.services.n }

// All returns every service, by namespace and name.
func (x *Index) All() []*Service {
	all := make([]*Service, 0, x.Len())
	x.services.each(func(s *Service) { all = append(all, s) })
	slices.SortFunc(all, func(a, b *Service) int {
		return cmp.Or(cmp.Compare(a.Namespace(), b.Namespace()), cmp.Compare(a.Name(), b.Name()))
	})
	return all
}

// Edit begins a changed copy of x.
func (x *Index) Edit() *Editor { return &Editor{next: *x, mark: new(edit)} }

// An Editor collects changes for the next index. One goroutine uses it.
type Editor struct {
	next Index
	mark *edit
}

// Put adds s or replaces the service of its key.
func (e *Editor) Put(s *Service) {
	if e.next.services.get(s.Key()) == nil {
		e.count(s.Namespace(), 1)
	}
	e.next.services.put(e.mark, s)
}

// Remove takes the service of key out, if there is one.
func (e *Editor) Remove(key string) {
	s := e.next.services.get(key)
	if s == nil {
		return
	}
	e.count(s.Namespace(), -1)
	e.next.services.remove(e.mark, key)
}

func (e *Editor) count(name string, by int) {
	n := namespace{name: name, services: by}
	if old := e.next.namespaces.get(name); old != nil {
		n.services += old.services
	}
	if n.services == 0 {
		e.next.namespaces.remove(e.mark, name)
		return
	}
	e.next.namespaces.put(e.mark, &n)
}

// Index returns the changed index and ends the edit: a later change of e starts from it with nodes of its own.
func (e *Editor) Index() *Index {
	e.mark = new(edit)
	x := e.next
	return &x
}
