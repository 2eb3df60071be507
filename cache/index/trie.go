package index

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// A keyed value has the key that it is stored under.
type keyed interface{ Key() string }

// A trie is a persistent hash trie: a map whose changed copy shares all nodes but those on the path to the changed
// entry. A change costs a few nodes of at most 32 slots, whatever the size. The zero trie is empty.
//
//	                  root           first 5 bits of the hash of "db.shop": slot 7
//	slots   0 … 7 … 31
//	            └─ node              next 5 bits: slot 2
//	slots       0 1 2 … 31
//	                └─ db.shop       an entry, as no other key shares these 10 bits
type trie[V keyed] struct {
	root *node[V]
	n    int
}

// A node has the entries and the child nodes for one five-bit chunk of the hash. A slot is an entry or a child, never
// both. At maxDepth no bits of the hash are left: vals is searched in order.
type node[V keyed] struct {
	owner    *edit
	valSlots uint32
	kidSlots uint32
	vals     []V
	kids     []*node[V]
}

// An edit is the owner of the nodes that an [Editor] has made since its last index: no index has them yet, so they may
// change in place.
type edit struct{ _ byte }

const (
	chunkBits = 5
	maxDepth  = 64 / chunkBits
)

// seed is random, so that a client or a user cannot choose names of the same hash.
var seed = maphash.MakeSeed()

func chunk(hash uint64, depth int) uint32 {
	return 1 << (hash >> (depth * chunkBits) & (1<<chunkBits - 1))
}

func slot(bitmap, bit uint32) int { return bits.OnesCount32(bitmap & (bit - 1)) }

// get returns the entry of key, or the zero V.
func (t *trie[V]) get(key string) V { return t.root.get(key, maphash.String(seed, key), 0) }

func (n *node[V]) get(key string, hash uint64, depth int) (v V) {
	for ; n != nil; depth++ {
		if depth == maxDepth {
			if i := n.search(key); i >= 0 {
				return n.vals[i]
			}
			return v
		}
		bit := chunk(hash, depth)
		if n.valSlots&bit != 0 {
			if found := n.vals[slot(n.valSlots, bit)]; found.Key() == key {
				return found
			}
			return v
		}
		if n.kidSlots&bit == 0 {
			return v
		}
		n = n.kids[slot(n.kidSlots, bit)]
	}
	return v
}

func (n *node[V]) search(key string) int {
	for i, v := range n.vals {
		if v.Key() == key {
			return i
		}
	}
	return -1
}

// each calls f for each entry, in no particular order.
func (t *trie[V]) each(f func(V)) {
	if t.root != nil {
		t.root.each(f)
	}
}

func (n *node[V]) each(f func(V)) {
	for _, v := range n.vals {
		f(v)
	}
	for _, kid := range n.kids {
		kid.each(f)
	}
}

// put stores v under its key. Nodes of e change in place, others are copied first.
func (t *trie[V]) put(e *edit, v V) {
	root, added := t.root.put(e, v, maphash.String(seed, v.Key()), 0)
	t.root = root
	if added {
		t.n++
	}
}

// remove removes the entry of key, if there is one.
func (t *trie[V]) remove(e *edit, key string) {
	if t.root == nil {
		return
	}
	root, removed := t.root.remove(e, key, maphash.String(seed, key), 0)
	t.root = root
	if removed {
		t.n--
	}
}

// writable returns n itself if e made it, else a copy that belongs to e.
func (n *node[V]) writable(e *edit) *node[V] {
	if n == nil {
		return &node[V]{owner: e}
	}
	if n.owner == e {
		return n
	}
	return &node[V]{
		owner: e, valSlots: n.valSlots, kidSlots: n.kidSlots,
		vals: append(make([]V, 0, len(n.vals)+1), n.vals...),
		kids: append(make([]*node[V], 0, len(n.kids)+1), n.kids...),
	}
}

func (n *node[V]) put(e *edit, v V, hash uint64, depth int) (_ *node[V], added bool) {
	n = n.writable(e)
	if depth == maxDepth {
		if i := n.search(v.Key()); i >= 0 {
			n.vals[i] = v
			return n, false
		}
		n.vals = append(n.vals, v)
		return n, true
	}
	bit := chunk(hash, depth)
	switch {
	case n.kidSlots&bit != 0:
		i := slot(n.kidSlots, bit)
		n.kids[i], added = n.kids[i].put(e, v, hash, depth+1)
		return n, added
	case n.valSlots&bit == 0:
		n.insertVal(bit, v)
		return n, true
	}
	i := slot(n.valSlots, bit)
	old := n.vals[i]
	if old.Key() == v.Key() {
		n.vals[i] = v
		return n, false
	}
	var kid *node[V]
	kid, _ = kid.put(e, old, maphash.String(seed, old.Key()), depth+1)
	kid, _ = kid.put(e, v, hash, depth+1)
	n.removeVal(bit)
	n.insertKid(bit, kid)
	return n, true
}

func (n *node[V]) remove(e *edit, key string, hash uint64, depth int) (_ *node[V], removed bool) {
	if depth == maxDepth {
		i := n.search(key)
		if i < 0 {
			return n, false
		}
		n = n.writable(e)
		n.vals = cutAt(n.vals, i)
		return n, true
	}
	bit := chunk(hash, depth)
	if n.valSlots&bit != 0 {
		if n.vals[slot(n.valSlots, bit)].Key() != key {
			return n, false
		}
		n = n.writable(e)
		n.removeVal(bit)
		return n, true
	}
	if n.kidSlots&bit == 0 {
		return n, false
	}
	kid, removed := n.kids[slot(n.kidSlots, bit)].remove(e, key, hash, depth+1)
	if !removed {
		return n, false
	}
	n = n.writable(e)
	switch {
	case len(kid.kids) == 0 && len(kid.vals) == 0:
		n.removeKid(bit)
	case len(kid.kids) == 0 && len(kid.vals) == 1:
		// A child with one entry would make lookups longer than in a trie that never had the removed entry.
		n.removeKid(bit)
		n.insertVal(bit, kid.vals[0])
	default:
		n.kids[slot(n.kidSlots, bit)] = kid
	}
	return n, true
}

func (n *node[V]) insertVal(bit uint32, v V) {
	n.vals = slices.Insert(n.vals, slot(n.valSlots, bit), v)
	n.valSlots |= bit
}

func (n *node[V]) removeVal(bit uint32) {
	n.vals = cutAt(n.vals, slot(n.valSlots, bit))
	n.valSlots &^= bit
}

func (n *node[V]) insertKid(bit uint32, kid *node[V]) {
	n.kids = slices.Insert(n.kids, slot(n.kidSlots, bit), kid)
	n.kidSlots |= bit
}

func (n *node[V]) removeKid(bit uint32) {
	n.kids = cutAt(n.kids, slot(n.kidSlots, bit))
	n.kidSlots &^= bit
}

func cutAt[T any](s []T, i int) []T { return slices.Delete(s, i, i+1) }
