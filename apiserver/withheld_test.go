package apiserver

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// docs/spec/dns.md 6.9: one deletion is withheld for a moment, a mass withdrawal until the API server has confirmed it,
// and both as long as the watch fails.
func TestWithheld(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	const confirm = 10 * time.Second
	var w Withheld
	if _, ok := w.Add("a", WithholdFrom-1, start); ok || w.Len() != 0 {
		t.Error("one of few is withheld")
	}
	due := func(after time.Duration, healthy bool, want ...string) {
		t.Helper()
		var got []string
		w.Release(start.Add(after), confirm, healthy, func(key string) { got = append(got, key) })
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
	due(withholdMost+withholdFor, true) // nothing was confirmed before
	w.Drop("3")                         // it is there again
	due(time.Hour, true, "1", "2", "4")

	start = start.Add(2 * massPeriod)
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

// docs/spec/dns.md 6.9: a mass withdrawal may be slow. Deletions within the last minute count, too, unless the object
// is there again.
func TestWithheldSlowly(t *testing.T) {
	const total, pause, confirm = 1000, 500 * time.Millisecond, 10 * time.Second
	for _, tt := range []struct {
		name    string
		back    bool // each object that was removed comes back
		removed int
	}{
		{"all are deleted", false, massLoss - int(withholdMost/pause)},
		{"objects that come and go", true, total - int(withholdMost/pause)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w Withheld
			now, removed := time.Unix(1_700_000_000, 0), 0
			release := func() {
				var keys []string
				w.Release(now, confirm, true, func(key string) {
					if w.mu.TryLock() {
						t.Error("an object may be back before it was removed: it would be lost")
						w.mu.Unlock()
					}
					keys = append(keys, key)
				})
				for _, key := range keys {
					if removed++; tt.back {
						w.Drop(key)
					}
				}
			}
			left := func() int {
				if tt.back {
					return total
				}
				return total - removed
			}
			noticed := 0
			for i := range total {
				now = now.Add(pause)
				if mass, ok := w.Add(fmt.Sprint(i), left(), now); mass {
					noticed++
				} else if !ok {
					t.Fatalf("deletion %d of %d counts at once", i, total)
				}
				release()
			}
			if removed != tt.removed || (noticed > 0) == tt.back {
				t.Errorf("%d removed, noticed %d times; want %d removed", removed, noticed, tt.removed)
			}
			now = now.Add(confirm)
			if release(); removed != total || w.Len() != 0 {
				t.Errorf("after the last deletion: %d removed and %d left, want all removed", removed, w.Len())
			}
		})
	}
}

// docs/spec/dns.md 6.9: deletions that never end do not keep for ever what they began with.
func TestWithheldAtMost(t *testing.T) {
	const pause, confirm = 5 * time.Second, 10 * time.Second
	var w Withheld
	start := time.Unix(1_700_000_000, 0)
	for i := range massLoss + 1 {
		w.Add(fmt.Sprint(i), 10_000, start)
	}
	var removed int
	count := func(string) { removed++ }
	for n := range int(massMost / pause) {
		w.Add(fmt.Sprint("more-", n), 10_000, start.Add(time.Duration(n)*pause))
		w.Release(start.Add(time.Duration(n)*pause), confirm, true, count)
	}
	if removed != 0 {
		t.Errorf("%d removed while deletions went on, want none for %s", removed, massMost)
	}
	w.Add("last", 10_000, start.Add(massMost))
	if mass := w.Release(start.Add(massMost), confirm, true, count); mass != massLoss+2 || removed != mass {
		t.Errorf("%d removed after %s, want %d", removed, massMost, massLoss+2)
	}
}

// A kind that was absent for longer than a mass withdrawal waits comes back without objects for a moment: withheld ones
// wait until the watch was healthy for long enough.
func TestWithheldAfterAbsence(t *testing.T) {
	const confirm, absent = 10 * time.Second, 2 * massMost
	var w Withheld
	start := time.Unix(1_700_000_000, 0)
	for i := range 20 {
		w.Add(fmt.Sprint(i), 20, start)
	}
	var removed int
	count := func(string) { removed++ }
	w.Release(start.Add(absent), confirm, false, count)
	w.Release(start.Add(absent), confirm, true, count)
	w.Release(start.Add(absent+confirm-1), confirm, true, count)
	if removed != 0 {
		t.Errorf("%d removed before the watch was healthy for %s, want none", removed, confirm)
	}
	w.Release(start.Add(absent+confirm), confirm, true, count)
	if removed != 20 {
		t.Errorf("%d removed after the watch was healthy for %s, want all 20", removed, confirm)
	}
}
