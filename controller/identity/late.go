package identity

import (
	"cmp"
	"context"
	"time"

	"github.com/clusterset-dns/clusterset/api/elapsed"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// maxWait bounds [waitLimit].
const maxWait = 30 * time.Second

// waitLimit returns how long a late heartbeat waits for the exports at most. After an outage of the broker all members are late, and the first that renews
// its heartbeat drops those that do not follow within a TTL: the note and a renewal that fails have to fit in as well.
func waitLimit(renew, ttl time.Duration) time.Duration { return min(maxWait, ttl/2, ttl-2*renew) }

// waitPeriod is the time between two checks whether the exports are written.
const waitPeriod = 100 * time.Millisecond

// A lateness holds back a heartbeat that is late: the last one is older than the TTL, so the other members may have dropped the endpoints of this cluster.
// With the heartbeat they take back what the broker has of it, be it out of date. So the exports are written first
// (docs/spec/controller.md 8.2). A controller that takes over within the TTL is not late.
//
//	             late, and the broker takes writes
//	(not late) ─────────────────────────────────────▶ waiting
//	     ▲                                               │ exports are written, or limit is over
//	     └───────── a heartbeat succeeds ───────────── granted
//
// A heartbeat that fails is tried again while it is granted, for as long as limit; then it waits anew. Its methods are for one goroutine.
type lateness struct {
	broker     *broker.Broker
	ttl, limit time.Duration             // of the heartbeat, and of the wait
	publishAll func() (done func() bool) // see [Heartbeat].PublishAll
	log        logging.Logger

	earlier *beat       // the last one of an earlier process; nil until asked for
	said    bool        // that it is late
	done    func() bool // nil unless waiting
	until   time.Time   // the end of the wait, or of what was granted after it; zero if not late
}

// A beat is one heartbeat of this cluster. The zero value stands for a cluster that never had one.
type beat struct {
	at  time.Time
	ttl time.Duration
}

// late reports whether a TTL is over, so other members may have dropped the member. A heartbeat in the future was written by
// another clock and may be of any age.
func (b beat) late(now time.Time) bool {
	age := elapsed.Between(b.at, now)
	return !b.at.IsZero() && (age > b.ttl || age < 0)
}

// reset ends the wait and what was granted: what was written then is not up to date any more.
func (l *lateness) reset() { l.done, l.until = nil, time.Time{} }

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
	if l.done == nil {
		if now.Before(l.until) {
			return true, nil
		}
		return false, l.wait(ctx, last)
	}
	switch {
	case l.done():
	case now.Before(l.until):
		return false, nil
	default:
		l.log.Warningf("heartbeat: after %s not all exports are written; renewing it all the same", l.limit)
	}
	l.done, l.until = nil, now.Add(l.limit)
	return true, nil
}

// wait begins to wait for the exports, once the broker takes writes.
func (l *lateness) wait(ctx context.Context, last beat) error {
	if err := l.takesWrites(ctx); err != nil {
		return err
	}
	if !l.said {
		l.said = true
		l.log.Infof("heartbeat: the last one is of %s, other members may have dropped this cluster: writing the exports first", last.at.UTC().Format(time.RFC3339))
	}
	l.done, l.until = l.publishAll(), time.Now().Add(l.limit)
	return nil
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
