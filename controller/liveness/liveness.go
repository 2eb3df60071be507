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
// [Result.Evaluate] makes these moves; the controller calls it at least once a second. While the link to the broker is lost it
// expires no member; afterwards each has a full TTL again.
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

// Inputs are the inputs of one evaluation. All times are from one monotonic clock.
type Inputs struct {
	Now     time.Time
	TTL     time.Duration // a member expires at this age of its heartbeat; with 0 no member expires
	Link    time.Time     // when the link to the broker became healthy; zero while it is not
	Self    string        // this cluster: it is among Members and never expires
	Members []Member
}

// A Result is which members are expired, and which are frozen. It never changes. The zero value, for the start, has neither.
type Result struct {
	expired   map[string]expiry
	frozen    []string  // sorted
	evaluated time.Time // when this result was computed
	grace     time.Time // silence counts only from here on
}

type expiry struct{ when, seen time.Time }

// Expired reports whether the endpoints of a cluster no longer count. It stays so until a new heartbeat is seen.
func (r Result) Expired(cluster string) bool {
	_, expired := r.expired[cluster]
	return expired
}

// Frozen returns the clusters, sorted, that are silent for a TTL and do not expire, because too many members are silent.
//
// More than half of the members, and more than two, that fall silent within one TTL mean that the broker does not pass
// heartbeats on. A member counts as silent after half a TTL: otherwise the first of them would expire before the others
// are noticed. The freeze lasts until enough heartbeats are back; the members that are still silent then get another TTL.
func (r Result) Frozen() []string { return r.frozen }

// Evaluate returns the result that follows r.
//
// While the link is lost no member expires. Every member has a full TTL after the start, after the link is back, and after a
// pause of the evaluation, as when this process or its machine was suspended.
func (r Result) Evaluate(in Inputs) Result {
	next := Result{expired: r.stillExpired(in), evaluated: in.Now, grace: r.grace}
	switch {
	case in.TTL <= 0:
		return Result{}
	case in.Link.IsZero():
		next.frozen = r.frozen
		return next
	case !r.evaluated.IsZero() && in.Now.Sub(r.evaluated) > in.TTL/2:
		next.grace = in.Now
	}
	silent, suspects := next.silent(in)
	switch {
	case len(silent) == 0:
	case suspects > 2 && 2*suspects > len(in.Members):
		for _, m := range silent {
			next.frozen = append(next.frozen, m.Cluster)
		}
		slices.Sort(next.frozen)
	case len(r.frozen) > 0:
		next.grace = in.Now
	default:
		for _, m := range silent {
			next.expired[m.Cluster] = expiry{when: in.Now, seen: m.Seen}
		}
	}
	return next
}

// stillExpired returns those of the expired members that were not heard of since.
func (r Result) stillExpired(in Inputs) map[string]expiry {
	still := make(map[string]expiry)
	for _, m := range in.Members {
		if e, expired := r.expired[m.Cluster]; expired && !m.Seen.After(e.seen) && m.Cluster != in.Self {
			still[m.Cluster] = e
		}
	}
	return still
}

// silent returns the members that are to expire, and how many fell silent within about one TTL.
func (r Result) silent(in Inputs) (members []Member, suspects int) {
	for _, m := range in.Members {
		if m.Cluster == in.Self {
			continue
		}
		if e, expired := r.expired[m.Cluster]; expired {
			if in.Now.Sub(e.when) < in.TTL {
				suspects++
			}
			continue
		}
		age := in.Now.Sub(latest(m.Known, m.Seen, in.Link, r.grace))
		if age >= in.TTL/2 {
			suspects++
		}
		if age >= in.TTL {
			members = append(members, m)
		}
	}
	return members, suspects
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
