// Package index has all services of a clusterset as one immutable value: lookups take no lock, and a change is a new
// index that shares all other services with the old one.
//
// It has services, clusters, hosts, ports and addresses, but no zones, records or queries: package resolver makes
// answers of them. It imports the standard library alone.
package index

import (
	"cmp"
	"slices"
)

// An Index is all services at one moment. It never changes: any goroutine may read it without a lock, and must not
// write to any part of it. The zero Index is empty.
//
//	Index ─┬─ namespaces: trie  "shop" ─► how many services
//	       ├─ nameless:   trie  "db.bank" ─► Import that owns no name, as of a headless service without a ready endpoint
//	       └─ services:   trie  "db.shop" ─► Service ─┬─ Import: type, spec.ips, ports
//	                                                  └─ endpoints, each list in the order of hosts:
//	                                                       clusters    east │ west        by id
//	                                                       groups      80 │ 81 │ 80       hosts of the same ports
//	                                                       hosts       0 1 2 3 │ 4 5      only positions
//	                                                       labels      db-0 db-1 …        Headless alone
//	                                                       addresses   packed octets      one list for each family
//	                                                       ports       runs of records    one run for each group
//
// Build makes a Service of one ServiceImport and its slices. An Editor puts services in and takes them out, and ends
// with the next Index. Of an endpoint there is only its label, its address and where they end: no pointer, no string of
// its own. So ten thousand endpoints cost the garbage collector a few objects, and any record is found by its position.
type Index struct {
	services   trie[*Service]
	namespaces trie[*namespace]
	nameless   trie[*Import]
	digest     uint64 // of all services, joined by xor
}

type namespace struct {
	name     string
	services int   // the number of services in it, never 0
	absent   []int // names that are too long, by limit: from the second of Options.MaxNames on
}

func (n *namespace) Key() string { return n.name }

// Service returns the service of a key, "<name>.<namespace>" in lower case, as it is in the zone with the shortest
// name; nil if it does not exist. It does not allocate.
func (x *Index) Service(key string) *Service { return x.services.get(key) }

// Namespace reports whether a namespace, in lower case, has a service in zones with a limit, as in [Service.In]: then
// its name is an empty non-terminal there.
func (x *Index) Namespace(name string, limit int) bool {
	n := x.namespaces.get(name)
	if n == nil || limit == 0 || len(n.absent) < limit {
		return n != nil
	}
	return n.services > n.absent[limit-1]
}

// Nameless returns the import of a key, "<name>.<namespace>" in lower case, if it owns no name; else nil. No record
// depends on it.
func (x *Index) Nameless(key string) *Import { return x.nameless.get(key) }

// AllNameless yields the keys of the imports that own no name, in no particular order.
func (x *Index) AllNameless(yield func(key string) bool) {
	more := true
	x.nameless.each(func(imp *Import) { more = more && yield(imp.Key()) })
}

// Len is the number of services.
func (x *Index) Len() int { return x.services.n }

// Digest is a hash of all that the index shows, the same in every process: servers with equal indexes have equal
// digests, whatever came before, and others have different ones but for a chance of one in 2^64.
func (x *Index) Digest() uint64 { return x.digest }

// All returns all services in the order of namespace and name.
func (x *Index) All() []*Service {
	all := make([]*Service, 0, x.Len())
	x.services.each(func(s *Service) { all = append(all, s) })
	slices.SortFunc(all, func(a, b *Service) int {
		return cmp.Or(cmp.Compare(a.Namespace(), b.Namespace()), cmp.Compare(a.Name(), b.Name()))
	})
	return all
}

// Edit returns an editor that starts from x.
func (x *Index) Edit() *Editor { return &Editor{next: *x, mark: new(edit)} }

// An Editor makes the next index. It is for one goroutine.
type Editor struct {
	next Index
	mark *edit
}

// Put adds s, or replaces the service of the same key.
func (e *Editor) Put(s *Service) {
	old := e.next.services.get(s.Key())
	switch {
	case old == nil:
		e.count(s, 1)
	case old.narrower != nil || s.narrower != nil: // they may be of other limits
		e.count(old, -1)
		e.count(s, 1)
	}
	e.next.digest ^= old.digest() ^ s.digest()
	e.next.services.put(e.mark, s)
}

// Remove removes the service of key; it does nothing if there is no such service.
func (e *Editor) Remove(key string) {
	s := e.next.services.get(key)
	if s == nil {
		return
	}
	e.count(s, -1)
	e.next.digest ^= s.digest()
	e.next.services.remove(e.mark, key)
}

// SetNameless notes the import of key that owns no name, or with nil that there is no such import. It reports whether
// that is new.
func (e *Editor) SetNameless(key string, imp *Import) bool {
	old := e.next.nameless.get(key)
	switch {
	case old == nil && imp == nil, old != nil && imp != nil && old.typ == imp.typ:
		return false
	case imp == nil:
		e.next.nameless.remove(e.mark, key)
	default:
		e.next.nameless.put(e.mark, imp)
	}
	return true
}

// count adds a service to its namespace, or with by -1 takes it out.
func (e *Editor) count(s *Service, by int) {
	n := namespace{name: s.Namespace(), services: by}
	if old := e.next.namespaces.get(n.name); old != nil {
		n.services += old.services
		n.absent = old.absent
	}
	if n.services == 0 {
		e.next.namespaces.remove(e.mark, n.name)
		return
	}
	if s.narrower != nil && (*s.narrower)[len(*s.narrower)-1] == nil {
		absent := make([]int, max(len(n.absent), len(*s.narrower)))
		copy(absent, n.absent)
		for i, in := range *s.narrower {
			if in == nil {
				absent[i] += by
			}
		}
		n.absent = absent
	}
	e.next.namespaces.put(e.mark, &n)
}

// Index returns the changed index. Later changes of e start from it and copy what they touch, so that it never changes.
func (e *Editor) Index() *Index {
	e.mark = new(edit)
	x := e.next
	return &x
}
