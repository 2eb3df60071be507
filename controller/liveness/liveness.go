// Package liveness decides which members of a clusterset are silent, and which of their endpoints count
// (docs/spec/controller.md 8).
//
// Each member renews a heartbeat on the broker. For every other cluster a member is in one of these states:
//
//	         no heartbeat for its silent age, or blind
//	current ──────────────────────────────────▶ silent ── for longer than the limit ──▶ silent, over
//	   ▲                                           │                                         │
//	   │                                           ▼                                         │
//	   └── its services were reconciled ─────── returning ◀──────────────────────────────────┘
//	                                                a heartbeat after a pass, and a list of its objects
//
// [Result.Next] makes these moves; the controller calls it at least once a second. While this cluster's own heartbeat
// does not come back in time, no member falls silent; afterwards each has its silent age again. So a broker that is
// away, takes no writes or passes none on removes nothing, with two members as with a hundred.
//
// The package is pure: the caller passes the time. All times are of one monotonic clock of this process, so the clock
// of a member does not matter.
package liveness

import (
	"maps"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// A Part tells which endpoints of a cluster count.
type Part uint8

// The parts.
const (
	All        Part = iota
	LastResort      // ready ones, for the ports and families that no other cluster serves
	Nothing
)

// An Action on the endpoints of a silent member.
type Action string

// The actions of "on_expiry".
const (
	// for a time they stay for the ports and families without a ready endpoint in another cluster
	ActLastResort Action = "last_resort"
	ActRemove     Action = "remove"
	ActKeep       Action = "keep" // they stay as they are
)

// DefaultLimit is how long a last resort lasts.
const DefaultLimit = time.Hour

// OnExpiry is the option on_expiry.
type OnExpiry struct {
	Action Action
	Limit  time.Duration // of a last resort
}

// String is the value of the option.
func (o OnExpiry) String() string {
	if o.Action == ActLastResort {
		return string(o.Action) + " " + o.Limit.String()
	}
	return string(o.Action)
}

// Part returns which endpoints count after so long a silence.
func (o OnExpiry) Part(silent time.Duration) Part {
	switch {
	case o.Action == ActKeep:
		return All
	case o.Action == ActLastResort && silent < o.Limit:
		return LastResort
	}
	return Nothing
}

// A Member is the known state of one cluster of the clusterset.
type Member struct {
	Cluster   string
	Known     time.Time          // since when it is known to be a member
	Seen      time.Time          // when its heartbeat was last seen to change, or seen first; zero if never
	Heartbeat protocol.Heartbeat // the newest that was seen

	TTL time.Duration // that the member asks for, 0 if nothing: it may renew less often than this cluster does
}

// SilentAge returns the age of its heartbeat at which a member is silent for a cluster with this TTL.
func (m Member) SilentAge(ttl time.Duration) time.Duration { return max(ttl, m.TTL) }

// Inputs are the inputs of one evaluation. All times are from one monotonic clock.
type Inputs struct {
	Now      time.Time
	TTL      time.Duration // age of the heartbeat at which a member falls silent; 0: never
	OnExpiry OnExpiry
	Echoed   time.Time // since when our own heartbeats come back in time; zero while they do not
	Self     string    // this cluster: it is among Members and is never silent
	Members  []Member
}

// An Echo is the known state of this cluster's own heartbeats. The zero value, for the start, has no heartbeat.
type Echo struct {
	Since time.Time // since when they come back in time; zero while they do not
	start time.Time // of the first evaluation
}

// Next returns the echo at now. sent is the send time of our newest heartbeat that came back, or zero. The echo is in
// time for half a TTL: so our own silence is noticed before that of others, which needs a TTL, counts.
func (e Echo) Next(now, sent time.Time, ttl time.Duration) Echo {
	if e.start.IsZero() {
		e.start = now
	}
	switch {
	case sent.IsZero() || now.Sub(sent) > ttl/2:
		e.Since = time.Time{}
	case e.Since.IsZero():
		e.Since = now
	}
	return e
}

// Missing reports whether our own heartbeats do not come back in time, at least half a TTL after the start.
func (e Echo) Missing(now time.Time, ttl time.Duration) bool {
	return e.Since.IsZero() && !e.start.IsZero() && now.Sub(e.start) > ttl/2
}

// A Silence describes a silent member. Its exported fields outlive the process.
type Silence struct {
	Since time.Time      `json:"since"`          // when it fell silent, by the clock of this cluster
	Seen  protocol.Stamp `json:"seen,omitempty"` // its newest heartbeat then

	returning bool
	part      Part
}

// A Result is the set of silent members. It never changes. The zero value is empty.
type Result struct {
	silent    map[string]Silence
	returns   map[string]comeback // the last ones
	evaluated time.Time           // when this result was computed
	grace     time.Time           // a TTL begins no earlier
}

// A comeback is the last return of a member. The next return waits for a TTL, a minute at most. The wait doubles with
// each return that follows soon, up to maxWait. So a member that flaps has its imports written seldom.
type comeback struct {
	at   time.Time
	wait time.Duration
}

// maxWait is the longest wait, in TTLs of at most waitUnit. A return that comes later than a further maxWait is not
// soon.
const (
	maxWait  = 10
	waitUnit = time.Minute
)

// RestoredResult returns the result of an earlier process.
func RestoredResult(silent map[string]Silence, o OnExpiry, now time.Time) Result {
	r := Result{silent: make(map[string]Silence, len(silent))}
	for cluster, s := range silent {
		if s.Since.After(now) { // a clock that was set back
			s.Since = now
		}
		s.part = o.Part(now.Sub(s.Since))
		r.silent[cluster] = s
	}
	return r
}

// Part returns which endpoints of a cluster count.
func (r Result) Part(cluster string) Part {
	if r.Silent(cluster) {
		return r.silent[cluster].part
	}
	return All
}

// Silent reports whether a cluster is silent.
func (r Result) Silent(cluster string) bool {
	s, silent := r.silent[cluster]
	return silent && !s.returning
}

// Returning reports whether a cluster is back, and its services were not all reconciled since.
func (r Result) Returning(cluster string) bool { return r.silent[cluster].returning }

// Since returns when a cluster fell silent; zero if it is not silent.
func (r Result) Since(cluster string) time.Time {
	if r.Silent(cluster) {
		return r.silent[cluster].Since
	}
	return time.Time{}
}

// Silences returns the silent and returning members, to be noted for the next process.
func (r Result) Silences() map[string]Silence { return r.silent }

// Next returns the result that follows r, and the members that may fall silent or return. The caller verifies these on
// the broker.
//
// Every member has its silent age after the start, after our own heartbeats are back, and after a pause of the
// evaluation, as when this process or its machine was suspended.
func (r Result) Next(in Inputs) (next Result, silent, back []Member) {
	if in.TTL <= 0 {
		return Result{}, nil, nil
	}
	next = Result{silent: maps.Clone(r.silent), returns: maps.Clone(r.returns), evaluated: in.Now, grace: r.grace}
	maps.DeleteFunc(next.returns, func(_ string, c comeback) bool {
		return in.Now.Sub(c.at) > 2*maxWait*min(in.TTL, waitUnit)
	})
	for cluster, s := range next.silent {
		if !in.Echoed.IsZero() && in.Now.Sub(in.Echoed) >= in.TTL { // else it may be back, and could not say so
			s.part = in.OnExpiry.Part(in.Now.Sub(s.Since))
		}
		next.silent[cluster] = s
	}
	if !r.evaluated.IsZero() && in.Now.Sub(r.evaluated) > in.TTL/2 {
		next.grace = in.Now
	}
	for _, m := range in.Members {
		s, isSilent := next.silent[m.Cluster]
		switch {
		case m.Cluster == in.Self:
		case isSilent:
			last := next.returns[m.Cluster]
			if !s.returning && m.Heartbeat.EndsSilence(s.Seen) && in.Now.Sub(last.at) >= last.wait {
				back = append(back, m)
			}
		case in.Echoed.IsZero():
		case m.Heartbeat.Blind:
			silent = append(silent, m)
		case in.Now.Sub(slices.MaxFunc([]time.Time{m.Known, m.Seen, in.Echoed, next.grace}, time.Time.Compare)) >=
			m.SilentAge(in.TTL):
			silent = append(silent, m)
		}
	}
	return next, silent, back
}

// Silence returns r with another silent member. seen is its newest heartbeat.
func (r Result) Silence(cluster string, seen protocol.Stamp, o OnExpiry, now time.Time) Result {
	r.silent = withEntry(r.silent, cluster, Silence{Since: now.Round(0), Seen: seen, part: o.Part(0)})
	return r
}

// Return returns r with a silent member as returning.
func (r Result) Return(cluster string, ttl time.Duration, now time.Time) Result {
	last, returned := r.returns[cluster]
	unit := min(ttl, waitUnit)
	wait := unit
	if returned && now.Sub(last.at) <= last.wait+maxWait*unit {
		wait = min(2*last.wait, maxWait*unit)
	}
	r.returns = withEntry(r.returns, cluster, comeback{now, wait})
	s := r.silent[cluster]
	s.returning = true
	r.silent = withEntry(r.silent, cluster, s)
	return r
}

// withEntry returns a copy of m with one entry set.
func withEntry[V any](m map[string]V, key string, v V) map[string]V {
	changed := maps.Collect(maps.All(m))
	changed[key] = v
	return changed
}

// WithoutClusters returns r without the clusters for which drop is true.
func (r Result) WithoutClusters(drop func(cluster string) bool) Result {
	r.silent = maps.Clone(r.silent)
	maps.DeleteFunc(r.silent, func(cluster string, _ Silence) bool { return drop(cluster) })
	return r
}
