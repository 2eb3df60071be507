package cache

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// docs/spec/dns.md 6.9: one deletion is withheld for a moment, a mass withdrawal until the API server has confirmed it, and both as
// long as the watch fails.
func TestWithheld(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	const confirm = 10 * time.Second
	var w withheld
	if _, ok := w.add("a", withholdFrom-1, start); ok || w.len() != 0 {
		t.Error("one of few is withheld")
	}
	due := func(after time.Duration, healthy bool, want ...string) {
		t.Helper()
		got, _ := w.due(start.Add(after), confirm, healthy)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("after %s, healthy %t: %q is removed, want %q", after, healthy, got, want)
		}
	}
	if mass, ok := w.add("a", 10, start); mass || !ok {
		t.Errorf("mass %t, withheld %t, want one withheld", mass, ok)
	}
	w.add("b", 10, start.Add(time.Second))
	due(withholdFor-1, true)
	due(withholdFor, false)
	due(withholdFor, true, "a")
	w.drop("b") // it is there again
	due(time.Hour, true)

	var noticed int
	for i := range 6 { // more than half of 10
		if mass, _ := w.add(fmt.Sprint(i), 10, start.Add(time.Duration(i)*time.Second)); mass {
			noticed++
		}
	}
	due(withholdFor, true)
	due(confirm, true) // the last was deleted 5 s after the first
	due(confirm+time.Minute, false)
	w.drop("3")
	due(confirm+5*time.Second, true, "0", "1", "2", "4", "5")
	if noticed != 1 || w.len() != 0 {
		t.Errorf("noticed %d times, %d left", noticed, w.len())
	}
	for i := range massLoss + 1 { // a small part, but many
		w.add(fmt.Sprint(i), 10_000, start)
	}
	if due(confirm-1, true); w.len() != massLoss+1 {
		t.Errorf("%d withheld, want all", w.len())
	}
}
