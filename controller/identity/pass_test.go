package identity

import (
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/clocks"
)

// docs/spec/controller.md 8.2: a heartbeat is late when it is older than its TTL by either clock, or of a clock that is
// ahead.
func TestLate(t *testing.T) {
	const ttl = time.Minute
	now := time.Now()
	for _, tt := range []struct {
		name string
		at   time.Time
		want bool
	}{
		{name: "none"},
		{name: "of this process", at: now.Add(-ttl)},
		{name: "of this process, longer ago", at: now.Add(-ttl - 1), want: true},
		{name: "of an earlier process", at: now.Round(0).Add(-ttl)},
		{name: "of an earlier process, longer ago", at: now.Round(0).Add(-ttl - 1), want: true},
		{name: "before the machine slept", at: clocks.SetWall(now, -ttl-1), want: true},
		{name: "before the clock was set back", at: clocks.SetWall(now.Add(-ttl-1), time.Hour), want: true},
		{name: "before the clock was set back, within the TTL", at: clocks.SetWall(now.Add(-ttl), time.Hour)},
		{name: "of a clock that is ahead", at: now.Round(0).Add(1), want: true},
	} {
		if got := (beat{at: tt.at, ttl: ttl}).late(now); got != tt.want {
			t.Errorf("%s: late = %t, want %t", tt.name, got, tt.want)
		}
	}
}
