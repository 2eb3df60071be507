package liveness

import (
	"testing"
	"time"
)

// docs/spec/controller.md 8.1: up to 100 members have the pace of the option; more renew at most ten times a second
// together, and have the time to do so three times before they are silent.
func TestPace(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name       string
		renew, ttl time.Duration
		members    int
		wantRenew  time.Duration
		wantTTL    time.Duration
	}{
		{name: "not known yet", renew: 10 * s, ttl: 60 * s, members: 0, wantRenew: 10 * s, wantTTL: 60 * s},
		{name: "100 members", renew: 10 * s, ttl: 60 * s, members: 100, wantRenew: 10 * s, wantTTL: 60 * s},
		{name: "100 members that are fast", renew: s, ttl: 5 * s, members: 100, wantRenew: s, wantTTL: 5 * s},
		{name: "one more", renew: 10 * s, ttl: 60 * s, members: 101, wantRenew: 20 * s, wantTTL: 60 * s},
		{name: "twice as many", renew: 10 * s, ttl: 60 * s, members: 200, wantRenew: 20 * s, wantTTL: 60 * s},
		{name: "1,000 members", renew: 10 * s, ttl: 60 * s, members: 1000, wantRenew: 200 * s, wantTTL: 600 * s},
		{name: "1,000 members that are fast", renew: s, ttl: 5 * s, members: 1000, wantRenew: 200 * s, wantTTL: 600 * s},
		{name: "1,000 members, a multiple of the option", renew: 60 * s, ttl: 300 * s, members: 1000, wantRenew: 240 * s,
			wantTTL: 720 * s},
		{name: "1,000 members that are slow", renew: 200 * s, ttl: 900 * s, members: 1000, wantRenew: 200 * s,
			wantTTL: 900 * s},
		{name: "lease 0", members: 1000},
	} {
		if renew, ttl := Pace(tt.renew, tt.ttl, tt.members); renew != tt.wantRenew || ttl != tt.wantTTL {
			t.Errorf("%s: Pace(%s, %s, %d) = %s, %s, want %s, %s", tt.name, tt.renew, tt.ttl, tt.members, renew, ttl,
				tt.wantRenew, tt.wantTTL)
		}
	}
}

// Larger clustersets are never faster, and a member renews three times within its TTL and never beyond the rate.
func TestPaceGrows(t *testing.T) {
	for _, renew := range []time.Duration{time.Second, 7 * time.Second, 10 * time.Second, time.Minute} {
		lastRenew, lastTTL := renew, 3*renew
		for members := range 2000 {
			pace, ttl := Pace(renew, 3*renew, members)
			if pace < lastRenew || ttl < lastTTL || ttl < 3*pace || pace%renew != 0 || members > fewMembers &&
				time.Duration(members)*beatGap > pace {
				t.Fatalf("lease %s %s, %d members: renewed every %s within %s, with one less every %s within %s", renew, 3*renew,
					members, pace, ttl, lastRenew, lastTTL)
			}
			lastRenew, lastTTL = pace, ttl
		}
	}
}
