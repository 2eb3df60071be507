package importer

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// docs/spec/controller.md 9.6: exports that a member begins in one namespace within ten minutes, and others that wait for them.
func TestBegins(t *testing.T) {
	start := time.Now()
	for _, tt := range []struct {
		name    string
		records int
		names   int // that begin, again and again
		most    int // that begin
		least   int
	}{
		{"a few", 10, 10, 120 + 600, 600},
		{"many", 500, 2000, 1100 + 600, 1100},
		{"none on the broker", 0, 2000, 100 + 600, 600},
	} {
		b := begins{records: func(string) int { return tt.records }}
		begun := 0
		for second := range 600 {
			now := start.Add(time.Duration(second) * time.Second)
			for n := range tt.names {
				svc, uid := types.NamespacedName{Namespace: "many", Name: fmt.Sprint(n)}, types.UID(fmt.Sprint(second))
				if b.wait(svc, "mallory", uid, now) > 0 {
					continue
				}
				if begun++; b.wait(svc, "mallory", uid, now) > 0 {
					t.Fatalf("%s: an export that had its turn waits", tt.name)
				}
			}
			for _, other := range []clusterNamespace{{"mallory", "shop"}, {"west", "many"}} {
				if wait := b.wait(types.NamespacedName{Namespace: other.namespace, Name: "db"}, other.cluster, types.UID(fmt.Sprint(second/10)), now); wait > 0 {
					t.Fatalf("%s: %v waits for %s, want that it does not wait for another", tt.name, other, wait)
				}
			}
		}
		if begun > tt.most || begun < tt.least {
			t.Errorf("%s: %d began, want %d to %d", tt.name, begun, tt.least, tt.most)
		}
		if n := len(b.of[clusterNamespace{"mallory", "many"}].waiting); n > 2*maxTurns {
			t.Errorf("%s: %d turns are remembered, want at most %d", tt.name, n, 2*maxTurns)
		}
	}
}

// As many exports as a member has begin at once, twice.
func TestBeginsOfOneMember(t *testing.T) {
	b, now := begins{records: func(string) int { return 5000 }}, time.Now()
	for i := range 2 * 5000 {
		if wait := b.wait(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i % 5000)}, "west", types.UID(fmt.Sprint(i)), now); wait > 0 {
			t.Fatalf("export %d waits for %s", i, wait)
		}
	}
}
