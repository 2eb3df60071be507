package identity

import (
	"testing"
	"time"
)

// docs/spec/controller.md 8.2: a heartbeat is late when it is older than its TTL by either clock, or of a clock that is ahead.
func TestLate(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name string
		at   time.Time
		want bool
	}{
		{name: "none"},
		{name: "of now", at: now},
		{name: "a TTL ago", at: now.Add(-time.Minute)},
		{name: "longer ago", at: now.Add(-time.Minute - 1), want: true},
		{name: "of an earlier process", at: now.Round(0).Add(-time.Minute)},
		{name: "of an earlier process, longer ago", at: now.Round(0).Add(-time.Minute - 1), want: true},
		{name: "of a clock that is ahead", at: now.Round(0).Add(1), want: true},
	} {
		if got := (beat{tt.at, time.Minute}).late(now); got != tt.want {
			t.Errorf("%s: late = %t, want %t", tt.name, got, tt.want)
		}
	}
}
