package identity

import (
	"cmp"
	"context"
	"hash/fnv"
	"time"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/elapsed"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// seldom is the time between two heartbeats with "lease 0": other members, which may have a TTL, wait for the longest
// one. seldomChecked is the time between two checks.
const (
	seldom        = apibroker.MaxHeartbeatTTL / 12
	seldomChecked = 10 * time.Second
)

// retry is the time between two attempts at the first heartbeat, for which other members wait, and after one that
// failed: what could not be written to the broker waits for the one that succeeds.
const retry = time.Second

// A Heartbeat renews the Lease of this member on the broker (docs/spec/controller.md 8). It renews only while the
// member's own API server answers: without that the member knows nothing about its endpoints.
//
// Nothing is written while this cluster may be a copy of the member: see [Original].
//
// A round has as much time as there is between two heartbeats. In each, Run decides anew, by the membership and the
// freeze reasons, which of these states the member is in:
//
//	frozen or not synced   writes nothing; the Lease stays as it is
//	a pass is due          has the exports written first: see [pass]
//	member                 renews the Lease where that is due; after a failure, tries every second
//	leaving, or no member  writes nothing
//
// The first success after a failure calls Resumed. With "lease 0" the Lease is renewed seldom.
// The fields are set before Run and do not change. Run is called once.
type Heartbeat struct {
	Membership *Membership // with the Original
	Memory     *Memory
	Broker     *broker.Broker
	Renew      time.Duration // between two rounds; 0 with "lease 0"
	Log        logging.Logger
	// Pace returns the time between two heartbeats, at least Renew, and until one is expired; 0 with "lease 0". It may not
	// be nil.
	Pace func() (renew, ttl time.Duration)
	// Resumed is called when a heartbeat was written after others had failed. It may not be nil.
	Resumed func()
	// PublishAll starts a pass over all exports, and returns a function that reports its end. With mark it marks exports
	// that cannot be written. It may not be nil.
	PublishAll func(mark bool) (done func() bool)
	// Blind names a kind of this cluster that was not seen since a time, or an inventory that cannot be written, or
	// returns "". It may not be nil.
	Blind func(since time.Time) string

	// Used by Run alone.
	renewed   time.Time // begin of the round that sent the last heartbeat that succeeded
	answered  time.Time // when the own API server answered last
	failed    time.Time // when it did not answer last
	announced content   // by the last heartbeat
	pass      pass
	mending   bool // the broker was restored, and the pass after that has not ended
}

// Run beats until ctx ends; it then returns nil.
func (h *Heartbeat) Run(ctx context.Context) error {
	h.pass = pass{heartbeats: h.Broker.Heartbeats, stamp: h.Broker.Own.Stamp, publishAll: h.PublishAll, log: h.Log}
	var failing logging.Failure[bool]
	for {
		begin := time.Now()
		sent, pause, err := h.round(ctx, begin)
		switch turned := (sent || err != nil) && failing.Changed(err != nil, err); {
		case turned && err == nil:
			h.Resumed()
		case turned && ctx.Err() == nil:
			h.Log.Warningf("heartbeat: %v; trying again", err)
		}
		if apiserver.Sleep(ctx, time.Until(begin.Add(pause))) != nil {
			return nil
		}
	}
}

// round does what the state of the member asks for. It reports whether it renewed the Lease, and when the next round is
// due.
func (h *Heartbeat) round(ctx context.Context, begin time.Time) (sent bool, pause time.Duration, err error) {
	period := cmp.Or(h.Renew, seldomChecked)
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	pause = min(period, retry)
	if done, pause, err := h.begin(ctx); !done {
		return false, pause, err
	}
	if !h.Membership.mayWrite() || !h.Membership.Status().isMember() {
		return false, pause, nil
	}
	if err := h.check(ctx); err != nil {
		return false, pause, err
	}
	blind := h.blind(time.Now())
	h.Membership.Freezes.Set(safety.Blind, blind)
	h.pass.ttl = h.ttl()
	h.pass.load(h.Membership.Original.last)
	if !h.pass.mayRenew(blind != "", h.Blind(h.failed) == "") {
		return false, waitPeriod, nil
	}
	h.mending = h.mending && h.pass.due
	sent, err = h.beat(ctx, begin, blind)
	if err == nil {
		pause = period
	}
	return sent, pause, err
}

// begin reports whether this cluster is a member and no copy, or else the pause until the next attempt.
func (h *Heartbeat) begin(ctx context.Context) (done bool, pause time.Duration, err error) {
	o := h.Membership.Original
	h.Memory.save(ctx, h.Broker.Members)
	if !h.Membership.admitted() {
		if found, _ := o.state(); found == undecided && h.Membership.Identity.Digest != "" {
			return false, waitPeriod, nil
		}
		return false, retry, nil
	}
	looked := o.again
	done, restored, err := o.check(ctx)
	switch {
	case restored:
		h.Log.Warningf(
			"heartbeat: the broker has lost the last one: it was restored; listing it anew, and writing the exports")
		if o.wrote == 0 || h.pass.ended.IsZero() { // an earlier process wrote objects that this one has not seen
			h.Broker.Own.Distrust()
		}
		h.mending = true
		h.Broker.ListAnew()
		h.pass.due = true
		o.wrote = 0
	case done && looked: // reading took a part of the time of this round
		return false, waitPeriod, nil
	}
	return done, retry, err
}

// ttl returns how long other members wait for the next heartbeat.
func (h *Heartbeat) ttl() time.Duration {
	_, ttl := h.Pace()
	return cmp.Or(ttl, apibroker.MaxHeartbeatTTL)
}

// A content has the facts of a heartbeat.
type content struct {
	ttl      time.Duration
	complete protocol.Stamp
	blind    string
}

// check checks the own API server, once a second.
func (h *Heartbeat) check(ctx context.Context) error {
	if time.Since(h.answered) < retry {
		return nil
	}
	if _, err := h.Membership.Member.Client().SystemUID(ctx); err != nil {
		h.failed = time.Now()
		return err
	}
	h.answered = time.Now()
	return nil
}

// blind returns what this cluster has not seen of itself for half a TTL, during which its API server answered.
func (h *Heartbeat) blind(now time.Time) string {
	since := now.Add(-h.ttl() / 2)
	if h.failed.After(since) {
		return ""
	}
	return h.Blind(since)
}

// beat renews the heartbeat if that is due in a round. It reports whether it did.
func (h *Heartbeat) beat(ctx context.Context, begin time.Time, blind string) (sent bool, err error) {
	next := content{h.pass.ttl, h.pass.complete, blind}
	if !h.due(begin, next) {
		return false, nil
	}
	now, stamp := time.Now(), h.Broker.Own.Stamp()
	if err := h.Membership.Original.note(ctx, stamp, h.mending); err != nil {
		return false, err
	}
	if err := h.Broker.Heartbeats.Renew(ctx, stamp, next.ttl, next.complete, next.blind); err != nil {
		h.Membership.Original.recordSent(stamp, false)
		return false, err
	}
	h.Membership.Original.recordSent(stamp, true)
	h.renewed, h.announced = begin, next
	h.pass.recordSent(now)
	return true, nil
}

// due reports whether a heartbeat is due in a round, or has news to send at once.
func (h *Heartbeat) due(begin time.Time, next content) bool {
	renew, _ := h.Pace()
	renew = cmp.Or(renew, seldom)
	switch {
	case next.complete != h.announced.complete, next.blind != h.announced.blind, next.ttl < h.announced.ttl,
		elapsed.Between(h.renewed, begin) >= renew:
		return true
	case h.Renew == 0 || renew <= h.Renew:
		return false
	}
	// Members that renewed together, as after an outage of the broker, part again.
	id := fnv.New64a()
	id.Write([]byte(h.Membership.Identity.ClusterID))
	phase := time.Duration(id.Sum64() % uint64(renew))
	return begin.Add(phase).Truncate(renew).After(h.renewed.Add(phase))
}
