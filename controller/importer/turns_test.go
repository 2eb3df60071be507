package importer

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// docs/spec/controller.md 9.6: exports of a member that begin within ten minutes, and one of another namespace and
// member that begins meanwhile.
func TestTurns(t *testing.T) {
	const shop = 300 // the second at which the other namespace begins to ask
	start := time.Now()
	for _, tt := range []struct {
		name              string
		records           int
		namespaces, names int // that begin, again and again
		most, least       int // that begin
		wait              int // most seconds for the other namespace
	}{
		{"a few", 10, 1, 10, 120 + 600, 600, 2},
		{"many", 500, 1, 2000, 1100 + 600, 1100, 2},
		{"none on the broker", 0, 1, 2000, 100 + 600, 600, 2},
		{"in many namespaces", 10, 50, 20, 120 + 600, 600, 51},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := emptyLimits(0, 0, 0, 0, 0)
			l.records = func(string) int { return tt.records }
			begun, waited := 0, -1
			for second := range 600 {
				now := start.Add(time.Duration(second) * time.Second)
				begins := func(namespace, name, cluster string) bool {
					wait, _ := l.turn(types.NamespacedName{Namespace: namespace, Name: name}, cluster, false, now)
					return wait == 0
				}
				for n := range tt.namespaces * tt.names {
					if begins(fmt.Sprint("many-", n%tt.namespaces), fmt.Sprint(n), "mallory") {
						begun++
					}
				}
				if second%10 == 0 && !begins("many-0", "0", "west") {
					t.Fatalf("second %d: an export of another member waits", second)
				}
				if second >= shop && waited < 0 && begins("shop", "db", "mallory") {
					waited = second - shop
				}
			}
			if waited < 0 || waited > tt.wait {
				t.Errorf("an export in another namespace waits for %d s, want at most %d", waited, tt.wait)
			}
			if begun > tt.most || begun < tt.least {
				t.Errorf("%d begin, want %d to %d", begun, tt.least, tt.most)
			}
			for namespace, names := range l.turns["mallory"].waiting {
				if len(names) > maxWaiting {
					t.Errorf("%d wait in %s, want at most %d", len(names), namespace, maxWaiting)
				}
			}
		})
	}
}

// All exports of a member may begin at once, twice. A reconcile of an imported export takes no turn.
func TestTurnsOfOneMember(t *testing.T) {
	const records = 1000
	l, now := emptyLimits(10*records, 0, 0, 0, 0), time.Now()
	l.records = func(string) int { return records }
	for i := range 2*records + turnBurst {
		svc := inNamespace("shop", i%records)
		for _, imported := range []bool{false, false, true, true} { // reconciled again before and after the import has it
			if wait, _ := l.turn(svc, "west", imported, now); wait > 0 {
				t.Fatalf("export %d waits for %s", i, wait)
			}
			if why := l.admit(svc, "west", false, false); why != "" {
				t.Fatal(why)
			}
		}
	}
	if wait, _ := l.turn(inNamespace("shop", 0), "west", false, now); wait == 0 {
		t.Error("one more begins at once, want that it waits")
	}
	// It ended most of its exports.
	l.records = func(string) int { return 10 }
	for _, second := range []time.Duration{1, 2} {
		if wait, _ := l.turn(inNamespace("shop", 0), "west", false, now.Add(second*time.Second)); wait > 0 && second == 2 {
			t.Errorf("the next one waits for %s after two seconds", wait)
		}
	}
	// A rejected record returns its turn.
	for i := range 1000 {
		_, giveBack := l.turn(inNamespace("bank", i), "north", false, now)
		giveBack()
	}
	if wait, _ := l.turn(inNamespace("bank", 0), "north", false, now); wait > 0 {
		t.Errorf("an export waits for %s after 1,000 that did not begin", wait)
	}
}
