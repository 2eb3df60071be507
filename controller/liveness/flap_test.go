package liveness

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// beatAt is a heartbeat after a pass.
func beatAt(seen time.Time) protocol.Heartbeat {
	stamp := protocol.Stamp(seen.Sub(start))
	return protocol.Heartbeat{Stamp: stamp, Complete: stamp}
}

// docs/spec/controller.md 8.2: a link that comes and goes, that of a member or our own, makes it fall silent at most
// once in a TTL, and return at most once: a member that was heard of has a TTL to be heard of again.
func TestLinkFlaps(t *testing.T) {
	const hour = 3600
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 12))
		// how often a heartbeat gets through, by chance: on average every 40 seconds at most
		passes := 0.001 + random.Float64()/40
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
			r = evaluate(r, Inputs{Now: at(now), TTL: ttl, OnExpiry: lastResort, Echoed: echo.Since, Self: "self",
				Members: []Member{
					{Cluster: "self", Known: known, Seen: at(now)}, {Cluster: "west", Known: known, Seen: seen,
						Heartbeat: beatAt(seen)},
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
				t.Fatalf("seed %d: after %d s the state of %s ago again, expired %t, want a TTL of %s between", seed, now,
					at(now).Sub(*last), !was, ttl)
			}
			*last = at(now)
		}
		if seed == 0 && expiries == 0 {
			t.Error("west never expired: this test shows nothing")
		}
	}
}

// docs/spec/controller.md 8.2: a heartbeat that gets through once in each TTL keeps its member, and our own need to
// come back only once in half a TTL. One second more between heartbeats and the member expires.
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
			r = evaluate(r, Inputs{Now: at(now), TTL: ttl, OnExpiry: lastResort, Echoed: echo.Since, Self: "self",
				Members: []Member{
					{Cluster: "west", Known: at(0), Seen: heard, Heartbeat: beatAt(heard)},
				}})
			expired = expired || r.Silent("west")
		}
		if expired != tt.want {
			t.Errorf("%d s between heartbeats: expired %t, want %t with a TTL of %s", tt.gap, expired, tt.want, ttl)
		}
	}
}

// docs/spec/controller.md 8.2: a member that is blind every other second is silent at once, and returns ever more
// seldom. After a long pause it returns at once.
func TestBlindFlaps(t *testing.T) {
	var r Result
	var returns []int
	next := func(now int, blind bool) {
		h := beatAt(at(now))
		h.Blind = blind
		was := r.Silent("west")
		r = evaluate(r, Inputs{Now: at(now), TTL: ttl, OnExpiry: lastResort, Echoed: at(0),
			Members: []Member{{Cluster: "west", Known: at(0), Seen: at(now), Heartbeat: h}}})
		switch is := r.Silent("west"); {
		case blind && !is:
			t.Fatalf("after %d s: blind, and not silent", now)
		case was && !is:
			returns = append(returns, now)
		}
	}
	for now := 1; now <= 3600; now++ {
		next(now, now%2 == 1)
	}
	if want := []int{2, 62, 182, 422, 902, 1502, 2102, 2702, 3302}; !slices.Equal(returns, want) {
		t.Errorf("returned after %v s, want %v", returns, want)
	}
	returns = nil
	for now := 3902; now <= 3902+2*maxWait*60; now += 10 {
		next(now, false)
	}
	next(5110, true)
	next(5111, false)
	if want := []int{3902, 5111}; !slices.Equal(returns, want) {
		t.Errorf("then it returned after %v s, want %v", returns, want)
	}
}
