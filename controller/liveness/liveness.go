// Package liveness decides which members of a clusterset have expired (docs/spec/controller.md 8).
//
// Each member renews a heartbeat on the broker. For every other cluster a member is in one of these states:
//
//	         TTL without a change of the heartbeat
//	live ──────────────────────────────────────────▶ expired: its endpoints no longer count
//	 ▲ │                                                │
//	 │ └─ more than half of all at once ─▶ frozen       │
//	 └──────── heartbeat seen ◀──────────────┴──────────┘
//
// [Verdict.Judge] makes these moves; the controller calls it at least once a second. While the link to the broker is lost it expires no
// member; afterwards each has a full TTL again.
//
// The package is pure: the caller passes the time. All times are of one monotonic clock of this process, so the clock of a
// member does not matter.
package liveness

import (
	"slices"
	"time"
)

// A Member is what is known here of one cluster of the clusterset.
type Member struct {
	Cluster string
	Known   time.Time // since when it is known to be a member
	Seen    time.Time // when its heartbeat was last seen to change; zero if never
}

// A View is what a judgement is made of. Its times are from one monotonic clock.
type View struct {
	Now time.Time
	// TTL is the age from which on a heartbeat is expired; with 0 nobody expires.
	TTL time.Duration
	// Link is since when the link to the broker is healthy, zero while it is not.
	Link time.Time
	// Self is the cluster that judges; it is among Members, and never judged.
	Self    string
	Members []Member
}

// A Verdict says which members are expired. It never changes; the zero value is that of the start.
type Verdict struct {
	expired map[string]expiry
	held    []string
	looked  time.Time // when it was made
	grace   time.Time // no silence from before counts
}

type expiry struct{ when, seen time.Time }

// Expired reports whether the endpoints of a cluster no longer count. It stays so until a new heartbeat is seen.
func (v Verdict) Expired(cluster string) bool {
	_, expired := v.expired[cluster]
	return expired
}

// Held returns the clusters, sorted, that would be expired if they were fewer.
//
// More than half of the members, and more than two, that fall silent within one TTL say that the broker does not pass
// heartbeats on. Those count that are silent for half a TTL already: the first of them must not go before the others are
// noticed. The hold lasts until enough of them are heard of; the others then get a TTL more.
func (v Verdict) Held() []string { return v.held }

// Judge returns the verdict that follows on v.
//
// While the link is lost nobody expires. When it is back every member has a full TTL; so it has after the start, and after
// a time in which nobody judged, because this process or its machine stood still.
func (v Verdict) Judge(view View) Verdict {
	next := Verdict{expired: v.stillExpired(view), looked: view.Now, grace: v.grace}
	switch {
	case view.TTL <= 0:
		return Verdict{}
	case view.Link.IsZero():
		next.held = v.held
		return next
	case !v.looked.IsZero() && view.Now.Sub(v.looked) > view.TTL/2:
		next.grace = view.Now
	}
	silent, suspects := next.silent(view)
	switch {
	case len(silent) == 0:
	case suspects > 2 && 2*suspects > len(view.Members):
		for _, m := range silent {
			next.held = append(next.held, m.Cluster)
		}
		slices.Sort(next.held)
	case len(v.held) > 0:
		next.grace = view.Now
	default:
		for _, m := range silent {
			next.expired[m.Cluster] = expiry{when: view.Now, seen: m.Seen}
		}
	}
	return next
}

// stillExpired returns those of the expired members that were not heard of since.
func (v Verdict) stillExpired(view View) map[string]expiry {
	still := make(map[string]expiry)
	for _, m := range view.Members {
		if e, expired := v.expired[m.Cluster]; expired && !m.Seen.After(e.seen) && m.Cluster != view.Self {
			still[m.Cluster] = e
		}
	}
	return still
}

// silent returns the members that are to expire, and how many fell silent within about one TTL.
func (v Verdict) silent(view View) (members []Member, suspects int) {
	for _, m := range view.Members {
		if m.Cluster == view.Self {
			continue
		}
		if e, expired := v.expired[m.Cluster]; expired {
			if view.Now.Sub(e.when) < view.TTL {
				suspects++
			}
			continue
		}
		age := view.Now.Sub(latest(m.Known, m.Seen, view.Link, v.grace))
		if age >= view.TTL/2 {
			suspects++
		}
		if age >= view.TTL {
			members = append(members, m)
		}
	}
	return members, suspects
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
