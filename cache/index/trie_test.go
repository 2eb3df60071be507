package index

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
)

// An entry is a value in the trie under test.
type entry struct {
	key   string
	value int
}

func (e *entry) Key() string { return e.key }

// contents are all entries of a trie as a plain map; an entry that each yields twice fails t.
func contents(t *testing.T, x *trie[*entry]) map[string]int {
	t.Helper()
	all := map[string]int{}
	x.each(func(e *entry) {
		if _, twice := all[e.key]; twice {
			t.Errorf("each yields %q twice", e.key)
		}
		all[e.key] = e.value
	})
	return all
}

// trieMatchesMap is the law that after any sequence of put, remove and end of an edit the trie has the entries of a
// plain map, and that the result of an edit never changes. Each octet is one step.
func trieMatchesMap(t *testing.T, steps []byte, keys int) {
	x, want, e := trie[*entry]{}, map[string]int{}, new(edit)
	var old []trie[*entry]
	var oldWant []map[string]int
	for i, step := range steps {
		key := fmt.Sprint(int(step>>2)*7%keys + i%2*keys)
		switch step & 3 {
		case 0, 1:
			x.put(e, &entry{key, i})
			want[key] = i
		case 2:
			x.remove(e, key)
			delete(want, key)
		case 3:
			old, oldWant, e = append(old, x), append(oldWant, maps.Clone(want)), new(edit)
		}
		if x.n != len(want) {
			t.Fatalf("step %d: %d entries, want %d", i, x.n, len(want))
		}
		got := x.get(key)
		if value, ok := want[key]; (got != nil) != ok || ok && got.value != value {
			t.Fatalf("step %d: get(%q) = %v, want %d, %v", i, key, got, value, ok)
		}
	}
	old, oldWant = append(old, x), append(oldWant, want)
	for i := range old {
		if got := contents(t, &old[i]); !maps.Equal(got, oldWant[i]) {
			t.Errorf("after edit %d of %d: %v, want %v", i, len(old), got, oldWant[i])
		}
		checkNodes(t, old[i].root, 0)
	}
}

// checkNodes checks that lookups are short and nodes small: a slot is an entry or a child, and a child node has at
// least two entries.
func checkNodes(t *testing.T, n *node[*entry], depth int) {
	t.Helper()
	if n == nil {
		return
	}
	if n.valSlots&n.kidSlots != 0 {
		t.Errorf("depth %d: slots %b are both entry and child", depth, n.valSlots&n.kidSlots)
	}
	if depth > 0 && len(n.vals)+2*len(n.kids) < 2 {
		t.Errorf("depth %d: a child node of %d entries", depth, len(n.vals))
	}
	for _, kid := range n.kids {
		checkNodes(t, kid, depth+1)
	}
}

func TestTrieMatchesMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, keys := range []int{1, 5, 60} {
		for range 60 {
			steps := make([]byte, 1000)
			for i := range steps {
				steps[i] = byte(r.Uint32())
			}
			trieMatchesMap(t, steps, keys)
		}
	}
}

func FuzzTrieMatchesMap(f *testing.F) {
	f.Add([]byte{0, 3, 2, 0, 3, 2})
	f.Add([]byte{0, 4, 8, 12, 3, 2, 6, 10, 14, 3})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 2000 {
			return // A failure needs fewer steps.
		}
		trieMatchesMap(t, steps, 64)
	})
}

// A test cannot choose keys of the same hash. So collisions are tested in a subtree with one chunk of the hash left,
// where all keys of one slot collide.
func TestTrieCollisions(t *testing.T) {
	const depth = maxDepth - 1
	r := rand.New(rand.NewPCG(1, 2))
	hash := func(key string) uint64 { return maphash.String(seed, key) }
	var n *node[*entry]
	n, want, e := n.writable(new(edit)), map[string]int{}, new(edit)
	for i := range 20_000 {
		key := fmt.Sprint(r.IntN(200))
		if r.IntN(2) == 0 {
			n, _ = n.put(e, &entry{key, i}, hash(key), depth)
			want[key] = i
		} else {
			_, had := want[key]
			next, removed := n.remove(e, key, hash(key), depth)
			if removed != had {
				t.Fatalf("step %d: remove(%q) = %v, want %v", i, key, removed, had)
			}
			n = next
			delete(want, key)
		}
		if i%10 != 0 {
			continue
		}
		before, had := n, maps.Clone(want)
		e = new(edit)
		n, _ = n.put(e, &entry{"new", i}, hash("new"), depth)
		n, _ = n.remove(e, key, hash(key), depth)
		for _, v := range []struct {
			n    *node[*entry]
			want map[string]int
		}{{before, had}, {n, with(had, key, i)}} {
			all := trie[*entry]{root: v.n}
			if got := contents(t, &all); !maps.Equal(got, v.want) {
				t.Fatalf("step %d: %v, want %v", i, got, v.want)
			}
		}
		for k, value := range had {
			if got := before.get(k, hash(k), depth); got == nil || got.value != value {
				t.Fatalf("step %d: get(%q) = %v, want %d", i, k, got, value)
			}
		}
		if got := before.get("none", hash("none"), depth); got != nil {
			t.Fatalf("step %d: get of a key never put = %v", i, got)
		}
		delete(want, key)
		want["new"] = i
	}
}

// with returns m with "new" and without key.
func with(m map[string]int, key string, value int) map[string]int {
	m = maps.Clone(m)
	m["new"] = value
	delete(m, key)
	return m
}

// A change makes only the nodes on the path to one entry, whatever the size of the trie.
func TestTrieSharesNodes(t *testing.T) {
	x, e := trie[*entry]{}, new(edit)
	for i := range 100_000 {
		x.put(e, &entry{fmt.Sprint(i), i})
	}
	nodes := map[*node[*entry]]bool{}
	var collect func(*node[*entry])
	collect = func(n *node[*entry]) {
		nodes[n] = true
		for _, kid := range n.kids {
			collect(kid)
		}
	}
	collect(x.root)
	for i := range 1000 {
		next := x
		switch key := fmt.Sprint(i * 100); i % 3 {
		case 0:
			next.put(new(edit), &entry{key, -1})
		case 1:
			next.put(new(edit), &entry{key + "x", -1})
		case 2:
			next.remove(new(edit), key)
		}
		if made := newNodes(next.root, nodes); made > 8 {
			t.Errorf("one change of 100,000 entries makes %d nodes, want at most 8", made)
		}
	}
}

func newNodes(n *node[*entry], old map[*node[*entry]]bool) int {
	if old[n] {
		return 0
	}
	made := 1
	for _, kid := range n.kids {
		made += newNodes(kid, old)
	}
	return made
}

// Edits do not change the old index, and a namespace exists while it has a service.
func TestEditorKeepsOldIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	want := map[string]*Service{}
	x := new(Index)
	for round := range 200 {
		twin := rebuilt(x)
		e := x.Edit()
		var ended []*Index
		for range r.IntN(30) {
			imp := NewImport(ImportSpec{
				Namespace: fmt.Sprintf("ns-%d", r.IntN(5)), Name: fmt.Sprintf("s-%d", r.IntN(20)), Type: ClusterSetIP,
			})
			switch s := Build(imp, nil, Options{}); r.IntN(5) {
			case 0:
				ended = append(ended, e.Index())
			case 1, 2:
				e.Remove(s.Key())
				delete(want, s.Key())
			default:
				e.Put(s)
				want[s.Key()] = s
			}
		}
		next := e.Index()
		checkIndex(t, next, want)
		if again := rebuilt(next); next.Digest() != again.Digest() || (next.Digest() == 0) != (len(want) == 0) {
			t.Fatalf("round %d: digest %x, of an index of the same services %x", round, next.Digest(), again.Digest())
		}
		for _, mid := range ended {
			checkCounts(t, mid)
		}
		if !reflect.DeepEqual(rebuilt(x), twin) || !reflect.DeepEqual(x.All(), twin.All()) {
			t.Fatalf("round %d: the edit changed the old index", round)
		}
		x = next
	}
}

// rebuilt is an index of the same services that shares no nodes with x.
func rebuilt(x *Index) *Index {
	e := new(Index).Edit()
	for _, s := range x.All() {
		e.Put(s)
	}
	return e.Index()
}

func checkIndex(t *testing.T, x *Index, want map[string]*Service) {
	t.Helper()
	if x.Len() != len(want) || len(x.All()) != len(want) {
		t.Errorf("%d services, All yields %d, want %d", x.Len(), len(x.All()), len(want))
	}
	for key, s := range want {
		if x.Service(key) != s {
			t.Errorf("Service(%q) = %v, want %v", key, x.Service(key), s)
		}
	}
	checkCounts(t, x)
}

// checkCounts checks the namespaces of x against its services.
func checkCounts(t *testing.T, x *Index) {
	t.Helper()
	counts := map[string]int{}
	for _, s := range x.All() {
		counts[s.Namespace()]++
	}
	for i := range 5 {
		name := fmt.Sprintf("ns-%d", i)
		if x.Namespace(name, 0) != (counts[name] > 0) {
			t.Errorf("Namespace(%q) = %v with %d services", name, x.Namespace(name, 0), counts[name])
		}
	}
	x.namespaces.each(func(n *namespace) {
		if n.services != counts[n.name] {
			t.Errorf("namespace %q counts %d services, want %d", n.name, n.services, counts[n.name])
		}
	})
}

// All is in the order of namespace, then name: "a-b" is after "a" although '-' sorts before '.'.
func TestAllIsOrdered(t *testing.T) {
	e := new(Index).Edit()
	for _, name := range []string{"web", "a-b", "a", "db"} {
		for _, ns := range []string{"shop-2", "shop"} {
			e.Put(Build(NewImport(ImportSpec{Namespace: ns, Name: name, Type: ClusterSetIP}), nil, Options{}))
		}
	}
	var got []string
	for _, s := range e.Index().All() {
		got = append(got, s.Key())
	}
	want := []string{"a.shop", "a-b.shop", "db.shop", "web.shop", "a.shop-2", "a-b.shop-2", "db.shop-2", "web.shop-2"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("All = %v, want %v", got, want)
	}
}
