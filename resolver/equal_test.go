package resolver_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
)

// equalShows are the laws of Equal. Services that are Equal have the same answers to the last record. The reverse holds
// for Headless services with names for all hosts, and for services with a VIP alone (docs/spec/dns.md 5: an equal
// update does not move the serial).
func equalShows(t *testing.T, before, after objects) {
	before.imports, after.imports = before.imports[:1], after.imports[:1]
	after.build, after.serve = before.build, before.serve
	a, b := service(before), service(after)
	equal, refA, refB := index.Equal(a, b), newReference(before), newReference(after)
	alike := reflect.DeepEqual(refA, refB)
	if index.Equal(b, a) != equal || !index.Equal(a, a) || !index.Equal(b, service(after)) {
		t.Error("Equal is not an equivalence relation")
	}
	exact := isExact(before) && isExact(after) && reflect.DeepEqual(portNamesOf(before), portNamesOf(after))
	if equal && !alike || !equal && alike && exact {
		t.Errorf("Equal = %v, but the answers are alike: %v\n%s%s", equal, alike, before, after)
	}
	x, y := newIndex(before), newIndex(after)
	if (x.Digest() == y.Digest()) != equal {
		t.Errorf("digests %x and %x, but Equal = %v\n%s%s", x.Digest(), y.Digest(), equal, before, after)
	}
	for name := range refA {
		for rotation := range uint64(4) {
			for _, qtype := range qtypes[:3] {
				q := resolver.Question{Name: name, Type: qtype, Rotation: rotation, ClientRotation: rotation}
				one, other := resolver.Resolve(x, q, &before.serve), resolver.Resolve(y, q, &before.serve)
				if equal && !reflect.DeepEqual(text(one), text(other)) {
					t.Errorf("%s: %v and %v, but Equal\n%s%s", name, text(one), text(other), before, after)
				}
			}
		}
	}
}

func service(objs objects) *index.Service {
	imp, list := objs.imports[0].pack()
	return index.Build(imp, list, objs.build)
}

// isExact reports whether services like these always have different answers if they differ.
func isExact(objs objects) bool {
	imp := objs.imports[0]
	if objs.serve.MaxName > 0 {
		return false // hosts without a name
	}
	if imp.typ == index.Headless {
		return !slices.ContainsFunc(imp.slices, func(sl sliceObject) bool { return sl.cluster == "" })
	}
	return len(imp.ips) > 0 && !objs.build.ClusterNames
}

// portNamesOf are the named ports of the import, which may make no difference if its slices have them too.
func portNamesOf(objs objects) map[string]bool {
	names := map[string]bool{}
	for _, p := range namedPorts(objs.imports[0].ports) {
		names[portName(p)] = true
	}
	return names
}

// sibling changes one octet after those of the name of the first import.
func sibling(octets []byte, at, by uint64) []byte {
	octets = slices.Clone(octets)
	if len(octets) > 10 {
		octets[10+at%uint64(len(octets)-10)] ^= byte(by)
	}
	return octets
}

func TestEqualShows(t *testing.T) {
	for seed := range uint64(10 * cases) {
		octets := randomEntropy(seed, 40+int(seed%100))
		equalShows(t, newObjects(octets), newObjects(sibling(octets, seed, 1+seed%7)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzEqualShows(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomEntropy(seed, 30+int(seed)*5), seed, seed+1)
	}
	f.Fuzz(func(t *testing.T, octets []byte, at, by uint64) {
		if len(octets) > 300 {
			return // A failure needs fewer objects.
		}
		equalShows(t, newObjects(octets), newObjects(sibling(octets, at, by)))
	})
}
