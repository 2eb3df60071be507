package liveness

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// beatAt is a heartbeat after a pass.
func beatAt(seen time.Time) protocol.Heartbeat {
	stamp := protocol.Stamp(seen.Sub(start))
	return protocol.Heartbeat{Stamp: stamp, Complete: stamp}
}

// docs/spec/controller.md 8.2: a link that comes and goes, that of a member or our own, makes it fall silent at most once in a TTL, and
// return at most once: a member that was heard of has a TTL to be heard of again.
func TestLinkFlaps(t *testing.T) {
	const hour = 3600
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 12))
		passes := 0.001 + random.Float64()/40 // how often a heartbeat gets through, by chance: on average every 40 seconds at most
		echoes := []float64{1, 0.2, 0.05}[seed%3]
		var r Result
		var echo Echo
		var sent, seen, known time.Time
		known = at(0)
		gone, back := at(-hour), at(-hour)
		var expiries int
		for now := range hour {
			if random.Float64() < echoes {
				sent = at(now)
			}
			if random.Float64() < passes {
				seen = at(now)
			}
			echo = echo.Next(at(now), sent, ttl)
			was := r.Silent("west")
			r = evaluate(r, Inputs{Now: at(now), TTL: ttl, OnExpiry: lastResort, Echoed: echo.Since(), Self: "self", Members: []Member{
				{Cluster: "self", Known: known, Seen: at(now)}, {Cluster: "west", Known: known, Seen: seen, Heartbeat: beatAt(seen)},
			}})
			last := &gone
			switch is := r.Silent("west"); {
			case is == was:
				continue
			case is:
				expiries++
			default:
				last = &back
			}
			if at(now).Sub(*last) < ttl {
				t.Fatalf("seed %d: after %d s the state of %s ago again, expired %t, want a TTL of %s between", seed, now, at(now).Sub(*last), !was, ttl)
			}
			*last = at(now)
		}
		if seed == 0 && expiries == 0 {
			t.Error("west never expired: this test shows nothing")
		}
	}
}

// docs/spec/controller.md 8.2: a heartbeat that gets through once in each TTL keeps its member, and our own need to come back only once in half a TTL. One
// second more between heartbeats and the member expires.
func TestLinkIsJustGoodEnough(t *testing.T) {
	const hour = 3600
	for _, tt := range []struct {
		gap  int // seconds between two heartbeats of west that get through
		want bool
	}{{60, false}, {61, true}} {
		var r Result
		var echo Echo
		var expired bool
		for now := range hour {
			echo = echo.Next(at(now), at(now/31*31), ttl)
			heard := at(now / tt.gap * tt.gap)
			r = evaluate(r, Inputs{Now: at(now), TTL: ttl, OnExpiry: lastResort, Echoed: echo.Since(), Self: "self", Members: []Member{
				{Cluster: "west", Known: at(0), Seen: heard, Heartbeat: beatAt(heard)},
			}})
			expired = expired || r.Silent("west")
		}
		if expired != tt.want {
			t.Errorf("%d s between heartbeats: expired %t, want %t with a TTL of %s", tt.gap, expired, tt.want, ttl)
		}
	}
}
