package identity

import (
	"cmp"
	"context"
	"time"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// maxWait is how long a late heartbeat waits for the exports at most, if half of the TTL is not shorter. After an outage of the broker all members are late,
// and the first that is back gives the others one TTL.
const maxWait = 30 * time.Second

// waitPeriod is the time between two checks whether the exports are written.
const waitPeriod = 100 * time.Millisecond

// A lateness holds back a heartbeat that is late: the last one is older than the TTL, so the other members may have dropped the endpoints of this cluster.
// With the heartbeat they take back what the broker has of it, which may be what was right long ago. So the exports are written first
// (docs/spec/controller.md 8.2). A controller that takes over within the TTL is not late.
//
//	             late, and the broker takes writes
//	(not late) ─────────────────────────────────────▶ waiting
//	     ▲                                               │
//	     └─ heartbeat: exports are written, or too long ─┘
//
// A heartbeat that fails begins it anew. Its methods are for one goroutine.
type lateness struct {
	broker     *broker.Broker
	ttl        time.Duration             // that the other members are asked for
	publishAll func() (done func() bool) // see [Heartbeat].PublishAll
	log        logging.Logger

	earlier *beat       // the last one of an earlier process; nil until asked for
	said    bool        // that it is late
	done    func() bool // nil unless waiting
	until   time.Time   // when the heartbeat waits no longer
}

// A beat is one heartbeat. The zero value is none.
type beat struct {
	at  time.Time
	ttl time.Duration
}

// late reports whether other members may have dropped the member since. A heartbeat of the future was written by a clock that differs from ours: it may be of
// any age.
func (b beat) late(now time.Time) bool {
	if b.at.IsZero() {
		return false
	}
	age := elapsed(b.at, now)
	return age > b.ttl || age < 0
}

// elapsed returns how much time has passed. The monotonic clock stands still while a machine sleeps, and the wall clock may be set back: the one that
// saw more time pass counts.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// reset ends the wait: what was written then is not up to date any more.
func (l *lateness) reset() { l.done = nil }

// mayRenew reports whether the heartbeat may be renewed now. renewed is when this process renewed it last, as far as the broker confirmed that; zero if it did
// not. An error says that the broker does not answer, or takes no writes.
func (l *lateness) mayRenew(ctx context.Context, renewed time.Time) (bool, error) {
	last, err := l.last(ctx, renewed)
	if err != nil {
		return false, err
	}
	now := time.Now()
	if !last.late(now) {
		l.said = false
		l.reset()
		return true, nil
	}
	limit := min(l.ttl/2, maxWait)
	if l.done == nil {
		if err := l.takesWrites(ctx); err != nil {
			return false, err
		}
		if !l.said {
			l.said = true
			l.log.Infof("heartbeat: the last one is of %s, other members may have dropped this cluster: writing the exports first", last.at.UTC().Format(time.RFC3339))
		}
		l.done, l.until = l.publishAll(), now.Add(limit)
	}
	switch {
	case l.done():
	case now.Before(l.until):
		return false, nil
	default:
		l.log.Warningf("heartbeat: after %s not all exports are written; renewing it all the same", limit)
	}
	return true, nil
}

// takesWrites returns why the broker would not take a heartbeat, nil if it would. A policy of others may deny the note alone: the member must not be late
// for ever because of that.
func (l *lateness) takesWrites(ctx context.Context) error {
	err := l.broker.NoteLate(ctx)
	if member.Rejection(err) == "" {
		return err
	}
	return l.broker.TryRenew(ctx, l.ttl)
}

// last returns the last heartbeat of this cluster, as far as is known. One that the broker did not confirm counts if its watch brought it back. Before the
// first one of this process it is that of an earlier process.
func (l *lateness) last(ctx context.Context, renewed time.Time) (beat, error) {
	if echo := l.broker.Echo(); echo.After(renewed) {
		renewed = echo
	}
	if !renewed.IsZero() {
		return beat{renewed, l.ttl}, nil
	}
	if l.earlier == nil {
		at, ttl, err := l.broker.LastHeartbeat(ctx)
		if err != nil {
			return beat{}, err
		}
		l.earlier = &beat{at, cmp.Or(ttl, l.ttl)}
	}
	return *l.earlier, nil
}
