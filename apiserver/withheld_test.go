package apiserver

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
	var w Withheld
	if _, ok := w.Add("a", WithholdFrom-1, start); ok || w.Len() != 0 {
		t.Error("one of few is withheld")
	}
	due := func(after time.Duration, healthy bool, want ...string) {
		t.Helper()
		got, _ := w.Due(start.Add(after), confirm, healthy)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("after %s, healthy %t: %q is removed, want %q", after, healthy, got, want)
		}
	}
	if mass, ok := w.Add("a", 10, start); mass || !ok {
		t.Errorf("mass %t, withheld %t, want one withheld", mass, ok)
	}
	w.Add("b", 10, start.Add(time.Second))
	due(withholdFor, true) // b followed a
	due(withholdFor+time.Second-1, true)
	due(withholdFor+time.Second, true, "a", "b")
	for i := range 5 { // there is always another one
		w.Add(fmt.Sprint(i), 100, start.Add(time.Duration(i)*withholdFor*2/3))
	}
	due(withholdMost, true, "0")
	due(withholdMost+withholdFor, false)
	due(withholdMost+withholdFor, true, "1")
	w.Drop("3") // it is there again
	due(time.Hour, true, "2", "4")

	var noticed int
	for i := range 6 { // more than half of 10
		if mass, _ := w.Add(fmt.Sprint(i), 10, start.Add(time.Duration(i)*time.Second)); mass {
			noticed++
		}
	}
	due(withholdFor, true)
	due(confirm, true) // the last was deleted 5 s after the first
	due(time.Minute, false)
	due(time.Minute+confirm-1, true) // the watch was not healthy for long enough
	w.Drop("3")
	due(time.Minute+confirm, true, "0", "1", "2", "4", "5")
	if noticed != 1 || w.Len() != 0 {
		t.Errorf("noticed %d times, %d left", noticed, w.Len())
	}
	for i := range massLoss + 1 { // a small part, but many
		w.Add(fmt.Sprint(i), 10_000, start)
	}
	if due(confirm-1, true); w.Len() != massLoss+1 {
		t.Errorf("%d withheld, want all", w.Len())
	}
}
