package elapsed_test

import (
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/api/elapsed"
	"github.com/clusterset-dns/clusterset/test/harness/clocks"
)

func TestBetween(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name     string
		from, to time.Time
		want     time.Duration
	}{
		{name: "the same", from: now, to: now},
		{name: "a minute", from: now, to: now.Add(time.Minute), want: time.Minute},
		{name: "the machine slept", from: now, to: clocks.SetWall(now.Add(time.Second), time.Hour),
			want: time.Hour + time.Second},
		{name: "the clock was set back", from: now, to: clocks.SetWall(now.Add(time.Minute), -time.Hour), want: time.Minute},
		{name: "from another process", from: now.Round(0), to: now.Add(time.Minute), want: time.Minute},
		{name: "from a clock that is ahead", from: now.Round(0).Add(time.Minute), to: now, want: -time.Minute},
	} {
		if got := elapsed.Between(tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
