package identity

import (
	"cmp"
	"context"
	"time"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/broker"
)

// seldom is the time between two heartbeats with "lease 0": other members, which may have a TTL, wait for the longest one. seldomChecked is the
// time between two checks.
const (
	seldom        = apibroker.MaxHeartbeatTTL / 12
	seldomChecked = 10 * time.Second
)

// retry is the time between two attempts at the first heartbeat, for which other members wait, and after one that failed: what could not be
// written to the broker waits for the one that succeeds.
const retry = time.Second

// A Heartbeat renews the Lease of this member on the broker (docs/spec/controller.md 8). It renews only while the member's own API server answers:
// without that the member knows nothing about its endpoints. A member that leaves deletes its Lease.
//
// A round has as much time as there is between two heartbeats. In each, Run decides anew, by the membership and the freeze reasons, which of these states the member is in:
//
//	frozen or not synced   writes nothing; the Lease stays as it is
//	late                   has the exports written first: see [lateness]
//	member                 renews the Lease every Renew; after a failure, every second
//	leaving                deletes the Lease once
//	not a member           writes nothing
//
// The first success after a failure calls Resumed. With "lease 0" the Lease is renewed seldom.
// The fields are set before Run and do not change. Run is called once.
type Heartbeat struct {
	Membership *Membership
	Broker     *broker.Broker
	Renew, TTL time.Duration // between two heartbeats, and until one is expired; 0 with "lease 0"
	Log        logging.Logger
	// Resumed is called when a heartbeat was written after others had failed. It may not be nil.
	Resumed func()
	// PublishAll begins to write what the broker lacks of the exports. What it returns reports whether that is done. It may not be nil.
	PublishAll func() (done func() bool)

	// Used by Run alone.
	renewed   time.Time // when the last heartbeat was sent that succeeded
	withdrawn bool      // the Lease was deleted
	lateness  lateness
}

// Run beats until ctx ends; it then returns nil.
func (h *Heartbeat) Run(ctx context.Context) error {
	h.lateness = lateness{broker: h.Broker, ttl: h.ttl(), limit: waitLimit(h.Renew, h.ttl()), publishAll: h.PublishAll, log: h.Log}
	var failing logging.Failure[bool]
	for {
		begin := time.Now()
		changed, pause, err := h.round(ctx)
		switch turned := (changed || err != nil) && failing.Changed(err != nil, err); {
		case turned && err == nil:
			h.Resumed()
		case turned && ctx.Err() == nil:
			h.Log.Warningf("heartbeat: %v; trying again", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(begin.Add(pause))):
		}
	}
}

// round does what the state of the member asks for. It reports whether it changed the Lease, and when the next round is due.
func (h *Heartbeat) round(ctx context.Context) (changed bool, pause time.Duration, err error) {
	period := cmp.Or(h.Renew, seldomChecked)
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	pause = min(period, retry)
	is, mayWrite := h.Membership.Status(), h.Membership.mayWrite()
	if mayWrite && is.isMember() {
		h.withdrawn = false
		switch may, err := h.lateness.mayRenew(ctx, h.renewed); {
		case err != nil:
			return false, pause, err
		case !may:
			return false, waitPeriod, nil
		}
		if err := h.beat(ctx); err != nil {
			return false, pause, err
		}
		return true, period, nil
	}
	h.lateness.reset()
	if mayWrite && is.Known && is.Leaving && !h.withdrawn {
		if err := h.Broker.DeleteHeartbeat(ctx); err != nil {
			return false, pause, err
		}
		h.withdrawn, h.renewed = true, time.Time{}
		return true, pause, nil
	}
	return false, pause, nil
}

// ttl returns how long other members wait for the next heartbeat.
func (h *Heartbeat) ttl() time.Duration {
	return min(cmp.Or(h.TTL, apibroker.MaxHeartbeatTTL), apibroker.MaxHeartbeatTTL)
}

// beat is one heartbeat.
func (h *Heartbeat) beat(ctx context.Context) error {
	if _, err := h.Membership.Member.Client().SystemUID(ctx); err != nil {
		return err
	}
	if now := time.Now(); h.Renew > 0 || h.renewed.IsZero() || (beat{h.renewed, seldom}).late(now) {
		if err := h.Broker.Renew(ctx, cmp.Or(h.TTL, apibroker.MaxHeartbeatTTL)); err != nil {
			return err
		}
		h.renewed = now
	}
	return nil
}
