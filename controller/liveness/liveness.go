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
// [Result.Evaluate] makes these moves; the controller calls it at least once a second. While this cluster's own heartbeat does not
// come back from the broker in time, no member expires; afterwards each has a full TTL again. So a broker that is away, takes no
// writes or passes none on removes nothing, with two members as with a hundred.
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
	Seen    time.Time // when its heartbeat was last seen to change, or seen first; zero if never
	Changed time.Time // when it was last seen to change; zero if it has been as it was at the first sight

	// TTL is what the member asks for, 0 if nothing: it may renew less often than this cluster does. The larger TTL counts.
	TTL time.Duration
}

// Inputs are the inputs of one evaluation. All times are from one monotonic clock.
type Inputs struct {
	Now     time.Time
	TTL     time.Duration // a member expires at this age of its heartbeat; with 0 no member expires
	Echoed  time.Time     // since when our own heartbeats come back in time; zero while they do not
	Self    string        // this cluster: it is among Members and never expires
	Members []Member
}

// An Echo is what is known of this cluster's own heartbeats. The zero value, for the start, has none.
type Echo struct {
	since time.Time // since when they come back in time; zero while they do not
	start time.Time // of the first evaluation
}

// Next returns the echo at now, if the newest heartbeat of our own that came back was sent at sent, zero if none did. It is in
// time for half a TTL: so our own silence is noticed before that of others, which lasts for a TTL, means anything.
func (e Echo) Next(now, sent time.Time, ttl time.Duration) Echo {
	if e.start.IsZero() {
		e.start = now
	}
	switch late := sent.IsZero() || now.Sub(sent) > ttl/2; {
	case late:
		e.since = time.Time{}
	case e.since.IsZero():
		e.since = now
	}
	return e
}

// Since returns since when our own heartbeats come back in time; zero while they do not.
func (e Echo) Since() time.Time { return e.since }

// Missing reports whether our own heartbeats do not come back in time, at least half a TTL after the start.
func (e Echo) Missing(now time.Time, ttl time.Duration) bool {
	return e.since.IsZero() && !e.start.IsZero() && now.Sub(e.start) > ttl/2
}

// A Result is which members are expired, and which are frozen. It never changes. The zero value, for the start, has neither.
type Result struct {
	expired   map[string]expiry
	frozen    []string  // sorted
	evaluated time.Time // when this result was computed
	grace     time.Time // silence counts only from here on
}

// An expiry says when a member expired, and when its heartbeat had last changed.
type expiry struct{ when, changed time.Time }

// Restored returns the result to start from where an earlier process left clusters expired: they stay so until a heartbeat is
// seen to change. That a heartbeat is there says nothing about them.
func Restored(clusters []string) Result {
	r := Result{expired: make(map[string]expiry, len(clusters))}
	for _, cluster := range clusters {
		r.expired[cluster] = expiry{}
	}
	return r
}

// Expired reports whether the endpoints of a cluster no longer count. It stays so until its heartbeat is seen to change.
func (r Result) Expired(cluster string) bool {
	_, expired := r.expired[cluster]
	return expired
}

// Since returns when a cluster expired; zero if it is not expired, or if an earlier process left it so.
func (r Result) Since(cluster string) time.Time { return r.expired[cluster].when }

// Frozen returns the clusters, sorted, that are silent for a TTL and do not expire, because too many members are silent.
//
// More than half of the members, and more than two, that fall silent within one TTL mean that the broker does not pass
// heartbeats on. A member counts as silent after half a TTL: otherwise the first of them would expire before the others
// are noticed. The freeze lasts until enough heartbeats are back; the members that are still silent then get another TTL.
func (r Result) Frozen() []string { return r.frozen }

// Evaluate returns the result that follows r.
//
// While our own heartbeats do not come back no member expires. Every member has a full TTL after the start, after they are back,
// and after a pause of the evaluation, as when this process or its machine was suspended.
func (r Result) Evaluate(in Inputs) Result {
	next := Result{expired: r.stillExpired(in), evaluated: in.Now, grace: r.grace}
	switch {
	case in.TTL <= 0:
		return Result{}
	case in.Echoed.IsZero():
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
			next.expired[m.Cluster] = expiry{when: in.Now, changed: m.Changed}
		}
	}
	return next
}

// stillExpired returns those of the expired members that were not heard of since.
func (r Result) stillExpired(in Inputs) map[string]expiry {
	still := make(map[string]expiry)
	for _, m := range in.Members {
		if e, expired := r.expired[m.Cluster]; expired && !m.Changed.After(e.changed) && m.Cluster != in.Self {
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
		age := in.Now.Sub(latest(m.Known, m.Seen, in.Echoed, r.grace))
		ttl := max(in.TTL, m.TTL)
		if age >= ttl/2 {
			suspects++
		}
		if age >= ttl {
			members = append(members, m)
		}
	}
	return members, suspects
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
