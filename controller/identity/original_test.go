package identity

import (
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/test/harness/clocks"
)

// docs/spec/controller.md 7.8: what follows from readings of the heartbeat, of which 10 is the newest that this cluster
// sent.
func TestSight(t *testing.T) {
	const noted, ttl = 10, time.Minute
	type reading struct {
		stamp protocol.Stamp
		after time.Duration // during which the heartbeat stays as it was, and is read
		want  verdict
	}
	for name, readings := range map[string][]reading{
		"no heartbeat":   {{stamp: 0, want: original}},
		"the own one":    {{stamp: 10, want: original}},
		"the one before": {{stamp: 9, want: original}},
		"not renewed":    {{11, 0, lookingOn}, {11, 5 * ttl, lookingOn}, {11, 1, original}},
		"renewed once": {{11, 0, lookingOn}, {12, 5 * ttl, lookingOn}, {12, 5 * ttl, lookingOn},
			{12, 1, original}},
		"renewed twice":                 {{11, 0, lookingOn}, {12, 1, lookingOn}, {13, 1, isCopy}, {13, 6 * ttl, isCopy}},
		"deleted":                       {{11, 0, lookingOn}, {12, 1, lookingOn}, {0, 5 * ttl, lookingOn}, {0, 1, original}},
		"broker restored to before":     {{11, 0, lookingOn}, {9, 1, lookingOn}, {12, 1, lookingOn}, {13, 1, isCopy}},
		"restored to less, renewed":     {{13, 0, lookingOn}, {11, 1, lookingOn}, {12, 1, lookingOn}, {13, 1, isCopy}},
		"restored to less, not renewed": {{13, 0, lookingOn}, {11, 1, lookingOn}, {11, 5 * ttl, original}},
	} {
		var s sight
		var got verdict
		now, last := time.Now(), protocol.Stamp(0)
		for n, r := range readings {
			for end := now.Add(r.after); now.Before(end); now = now.Add(min(ttl, end.Sub(now))) {
				if s, got = s.next(noted, last, ttl, now); got == original {
					t.Fatalf("%s: original before reading %d", name, n+1)
				}
			}
			if s, got = s.next(noted, r.stamp, ttl, now); got != r.want {
				t.Errorf("%s: after reading %d: %d, want %d", name, n+1, got, r.want)
			}
			last = r.stamp
		}
	}
	now := time.Now()
	s, _ := sight{}.next(noted, 11, ttl, now)
	for what, later := range map[string]time.Time{"the broker was away": now.Add(time.Hour),
		"only the wall clock was set": clocks.SetWall(now, time.Hour)} {
		if _, got := s.next(noted, 11, ttl, later); got != lookingOn {
			t.Errorf("%s: %d, want that it looks on", what, got)
		}
	}
	if _, got := s.next(11, 11, ttl, now); got != original {
		t.Errorf("a join has noted what was seen: %d, want that it goes on", got)
	}
	// With "lease 0" heartbeats ask for an hour.
	s, _ = sight{}.next(noted, 11, time.Hour, now)
	for range 31 {
		now = now.Add(time.Minute)
		s, _ = s.next(noted, 11, time.Hour, now)
	}
	if !s.at.IsZero() {
		t.Error("it looks on for longer than half an hour")
	}
}
