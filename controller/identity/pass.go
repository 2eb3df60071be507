package identity

import (
	"cmp"
	"time"

	"github.com/clusterset-dns/clusterset/api/elapsed"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// waitPeriod is the time between two checks whether the exports are written.
const waitPeriod = 100 * time.Millisecond

// passPeriod is the time between two periodic passes.
const passPeriod = 10 * time.Minute

// A pass compares all exports with the broker, and writes the difference. Other members treat this one as silent until
// a heartbeat reports a pass that began after the silence (docs/spec/controller.md 8.2).
//
//	due       more than a TTL between the sending of a heartbeat and the answer to the next, or blind until now: no heartbeat before
//	          the pass ends; exports that cannot be written are marked at once
//	periodic  at the start of a process, and every 10 minutes: heartbeats go on
//
// Its methods are for one goroutine.
type pass struct {
	heartbeats *broker.Heartbeats
	stamp      func() protocol.Stamp
	ttl        time.Duration
	publishAll func(mark bool) (done func() bool) // see [Heartbeat].PublishAll
	log        logging.Logger

	last     *beat // the last one that the broker has, at first that of an earlier process; nil until load
	due      bool
	complete protocol.Stamp // of the beginning of the last pass that ended
	ended    time.Time      // time of its end; zero if unknown
	next     time.Time      // of the next periodic pass

	done  func() bool // nil unless a pass is under way
	began protocol.Stamp
	marks bool // the one under way is due
}

// A beat is one heartbeat of this cluster. The zero value stands for a cluster that never had one.
type beat struct {
	at   time.Time
	ttl  time.Duration
	sent bool // by this process
}

// late reports whether a TTL is over. A heartbeat in the future is late: another clock wrote it.
func (b beat) late(now time.Time) bool {
	age := elapsed.Between(b.at, now)
	return !b.at.IsZero() && (age > b.ttl || age < 0)
}

// load takes the heartbeat of an earlier process, once.
func (p *pass) load(h broker.StoredHeartbeat) {
	if p.last != nil {
		return
	}
	p.last, p.complete, p.due = &beat{ttl: cmp.Or(h.TTL, p.ttl)}, h.Complete, p.due || h.Blind
	if h.Stamp != 0 {
		p.last.at = time.UnixMicro(int64(h.Stamp))
	}
}

// mayRenew reports whether the heartbeat may be renewed now. sees: each kind of the own cluster was seen since its API
// server last failed.
func (p *pass) mayRenew(blind, sees bool) bool {
	p.recordSent(p.heartbeats.Echo()) // the broker may have stored one without an answer
	if blind {
		p.due, p.done = true, nil
		return true
	}
	now := time.Now()
	if p.late(now) && !p.due {
		p.log.Infof(
			"heartbeat: the last one is of %s, other members may take this cluster for silent: writing the exports first",
			p.last.at.UTC().Format(time.RFC3339))
		p.due = true
	}
	p.proceed(now, sees)
	return !p.due
}

// late reports whether a TTL is over since the last heartbeat, and since the last pass.
func (p *pass) late(now time.Time) bool {
	return p.last.late(now) && (p.ended.IsZero() || elapsed.Between(p.ended, now) > p.ttl)
}

// proceed begins and ends passes.
func (p *pass) proceed(now time.Time, sees bool) {
	if p.done != nil && p.due && !p.marks {
		p.done = nil // begin anew
	}
	if p.done == nil && sees && (p.due || !now.Before(p.next)) {
		p.began, p.marks = p.stamp(), p.due
		p.done = p.publishAll(p.due)
	}
	if p.done != nil && p.done() {
		p.complete, p.ended, p.next = p.began, now, now.Add(passPeriod)
		p.due, p.done = false, nil
	}
}

// recordSent records that the broker has a heartbeat, by the time of its sending.
func (p *pass) recordSent(at time.Time) {
	if at.IsZero() || p.last.sent && !at.After(p.last.at) {
		return
	}
	p.due = p.due || p.late(time.Now())
	p.last = &beat{at, p.ttl, true}
}
