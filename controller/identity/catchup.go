package identity

import (
	"context"
	"time"
)

// maxCatchUp is how long a late heartbeat waits for the exports at most, if the TTL is not shorter.
const maxCatchUp = time.Minute

// catchUpPeriod is the time between two looks whether the exports are written.
const catchUpPeriod = 100 * time.Millisecond

// A catchUp precedes a heartbeat that is late: the last one is older than the TTL, so the other members may have dropped the endpoints of this cluster.
// With the heartbeat they take back what the broker has of it, which may be what was right long ago. So the exports are written first
// (docs/spec/controller.md 8.2). A controller that takes over within the TTL is not late. The zero value is that of a member that is not late.
//
//	             late, and the broker would take a heartbeat
//	(not late) ────────────────────────────────────────────▶ catching up
//	     ▲                                                       │
//	     └── heartbeat: the exports are written, or the time is up ──┘
//
// A heartbeat that fails begins it anew.
type catchUp struct {
	done  func() bool // nil unless catching up
	until time.Time   // when the heartbeat waits no longer
}

// caughtUp reports whether the heartbeat may be renewed now. An error says that the broker does not answer, or would not take it.
func (h *Heartbeat) caughtUp(ctx context.Context) (bool, error) {
	last, err := h.last(ctx)
	if err != nil {
		return false, err
	}
	now, c := time.Now(), &h.catchUp
	age := elapsed(last, now)
	if last.IsZero() || age <= h.ttl() {
		*c = catchUp{}
		return true, nil
	}
	if c.done == nil {
		if err := h.Broker.TryRenew(ctx, h.ttl()); err != nil {
			return false, err
		}
		h.Log.Infof("heartbeat: the last one is %s old, other members may have dropped this cluster: writing the exports first", age.Round(time.Second))
		c.done, c.until = h.PublishAll(), now.Add(min(h.ttl(), maxCatchUp))
	}
	switch {
	case c.done():
	case now.Before(c.until):
		return false, nil
	default:
		h.Log.Warningf("heartbeat: after %s not all exports are written; renewing it all the same", min(h.ttl(), maxCatchUp))
	}
	return true, nil
}

// last returns when the heartbeat of this cluster was renewed last, as far as is known; zero if never. That the broker confirmed it does not matter if its
// watch brought it back. Before the first one of this process, it is that of an earlier one.
func (h *Heartbeat) last(ctx context.Context) (time.Time, error) {
	last := h.renewed
	if echo := h.Broker.Echo(); echo.After(last) {
		last = echo
	}
	if !last.IsZero() {
		return last, nil
	}
	if h.earlier == nil {
		earlier, err := h.Broker.LastHeartbeat(ctx)
		if err != nil {
			return time.Time{}, err
		}
		h.earlier = &earlier
	}
	return *h.earlier, nil
}

// elapsed returns how much time has passed. The monotonic clock stands still while a machine sleeps, and the wall clock may be set back: the one that
// saw more time pass counts.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
