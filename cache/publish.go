package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A publisher turns what changed into the next state. It is the only writer of the state.
//
// Its goroutine, run, waits until objects has something dirty, then takes all of it (takeChanges), builds its services
// (build) and publishes the result (showState). After that it pauses, in proportion to the time that this took. While a
// list is awaited, or another cluster answers, it takes nothing: all stays dirty in objects. A change moves the serial
// at most once a second; a change that the serial does not show yet leaves the state "behind", and run moves the serial
// as soon as a second has passed.
//
// A snapshot arrives through watches.restored. It is published before any list, with the serial that it was written
// with. capture (for the snapshot file), adopt and Inherit hold mu to see a state that does not change meanwhile.
type publisher struct {
	cfg          *Config
	objects      *objects
	watches      *watches
	published    *published
	rejections   *rejections
	now          func() time.Time
	buildService func(*batch, *job, *index.Service) *index.Service // (*batch).build
	frozen       atomic.Bool                                       // another cluster answers

	mu      sync.Mutex // held by whoever makes the next state, or needs this one to stay; guards what follows
	index   *index.Index
	reverse *index.Reverse // of index; nil unless it is wanted
	behind  bool           // something changed that the serial does not show yet
	moved   time.Time      // when the serial moved last
}

func newPublisher(cfg *Config, watches *watches, rejections *rejections) *publisher {
	p := &publisher{
		cfg: cfg, objects: watches.objects, watches: watches, published: watches.published, rejections: rejections,
		now: time.Now, buildService: (*batch).build,
	}
	p.continueFrom(p.published.State().Index)
	return p
}

// continueFrom sets the index that the next one derives from.
func (p *publisher) continueFrom(x *index.Index) {
	p.index = x
	if p.cfg.Reverse {
		p.reverse = index.NewReverse(x)
	}
}

// A round is followed by a pause of restFactor times its own time, so that building takes a fifth of a core, however
// often services change. maxRest bounds the pause, so that a change is served soon after it came (docs/outages.md,
// F22): after rounds of more than 25 ms building takes more.
const (
	restFactor = 4
	maxRest    = 100 * time.Millisecond
)

// run publishes until ctx ends. Changes during one round, or the pause after it, are the next round.
func (p *publisher) run(ctx context.Context) error {
	timer, rested := time.NewTimer(0), time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	defer rested.Stop()
	var wake chan struct{} // nil during a pause
	for {
		if wait, behind := p.untilNext(); behind {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-rested.C:
			wake = p.objects.wake
		case <-wake:
			begin := time.Now()
			p.locked(p.round)
			wake = nil
			rested.Reset(min(restFactor*time.Since(begin), maxRest))
		case r := <-p.watches.restored:
			p.locked(func() { p.restore(r) })
		case <-timer.C:
			p.locked(func() { p.showState(*p.published.State(), nil) })
		}
	}
}

func (p *publisher) locked(step func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	step()
}

// untilNext is the time until the serial can move next, and whether it has to.
func (p *publisher) untilNext() (wait time.Duration, behind bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, serial := p.now(), int64(p.published.State().Serial)
	if serial > now.Unix() { // the clock was ahead
		return max(0, p.moved.Add(time.Second).Sub(now)), p.behind
	}
	return time.Unix(serial+1, 0).Sub(now), p.behind
}

// round publishes what changed since the last one, if anything did.
func (p *publisher) round() {
	next := *p.published.State()
	if p.frozen.Load() {
		next.Frozen = true
		p.showState(next, nil)
		return
	}
	if t, ok := p.watches.takeChanges(next.coverage); ok {
		p.publish(t)
	}
}

// publish publishes the taken changes.
func (p *publisher) publish(t roundInput) {
	if t.restored != nil { // the lists were compared with it: it comes first
		p.restore(*t.restored)
	}
	next := *p.published.State()
	if !next.Ready {
		p.behind = true
	}
	next.Ready, next.Frozen, next.coverage = true, false, t.coverage
	changes := p.catchUp(&next, t.batch)
	p.showState(next, changes)
}

// catchUp builds a batch, sets the properties of this cluster in next, and returns the changes of single objects.
func (p *publisher) catchUp(next *State, b batch) []change {
	changes := p.build(&b)
	if b.properties != nil {
		before := next.LocalCluster
		next.LocalCluster, next.ClusterSet = b.properties[propertyCluster], b.properties[propertyClusterSet]
		// The answers that prefer the local cluster are others now.
		p.behind = p.behind || next.LocalCluster != before
	}
	return changes
}

// restore publishes a snapshot. Nothing can have been published before.
func (p *publisher) restore(r restored) {
	next := State{Serial: r.serial, Ready: true, coverage: r.coverage}
	p.catchUp(&next, r.batch)
	p.behind = r.behind
	p.showState(next, nil)
	p.objects.signal()
}

// build makes the next index, and returns the changes of single objects that are new in it. A service that looks the
// same in DNS keeps its old value.
func (p *publisher) build(b *batch) []change {
	var changes []change
	var replaced []index.Replacement
	edit, noted := p.index.Edit(), false
	for i := range b.jobs {
		j := &b.jobs[i]
		old := p.index.Service(j.key)
		service := p.buildOne(b, j, old)
		nameless := j.imp
		if service != nil {
			nameless = nil
		}
		noted = edit.SetNameless(j.key, nameless) || noted
		if old == service || index.Equal(old, service) {
			continue
		}
		if service == nil {
			edit.Remove(j.key)
		} else {
			edit.Put(service)
		}
		replaced = append(replaced, index.Replacement{Old: old, New: service})
		if !j.at.written.IsZero() {
			changes = append(changes, j.at)
		}
	}
	changed := len(replaced) > 0
	if changed || noted {
		p.index = edit.Index()
	}
	if changed && p.reverse != nil {
		p.reverse = p.reverse.With(replaced)
	}
	p.behind = p.behind || changed
	return changes
}

// buildOne builds a service. After a panic the old one stays: a fault of this program costs one service its changes.
func (p *publisher) buildOne(b *batch, j *job, old *index.Service) (service *index.Service) {
	defer func() {
		if r := recover(); r != nil {
			service = old
			rejected := []Rejection{{Panicked, fmt.Sprintf("panic: %.200v; the service stays as it was", r)}}
			for _, r := range p.rejections.note(ServiceImport, importKey(j.key), rejected) {
				p.cfg.Log.Errorf("service %s: %s", j.key, r.Detail)
			}
		}
	}()
	return p.buildService(b, j, old)
}

// showState publishes next with the index, if it differs from the published state.
func (p *publisher) showState(next State, changes []change) {
	old := p.published.State()
	next.Index, next.Reverse = p.index, p.reverse
	if now := p.now(); p.behind {
		if serial := nextSerial(next.Serial, now, p.moved); serial != next.Serial {
			next.Serial, p.behind, p.moved = serial, false, now
		}
	}
	if next == *old {
		return
	}
	p.published.state.Store(&next)
	first := next.Ready && !old.Ready
	if next.Index != old.Index || first {
		p.published.publishes.Add(1)
	}
	if first {
		p.cfg.Log.Infof("%s: serving %d services, serial %d", p.cfg.Name, next.Index.Len(), next.Serial)
		close(p.published.synced)
	}
	if next.Serial != old.Serial {
		p.published.notify(next.Serial)
	}
	for _, c := range changes {
		if p.cfg.Latency != nil {
			p.cfg.Latency(max(0, p.now().Sub(c.written)), max(0, p.now().Sub(c.received)))
		}
	}
}

// nextSerial returns the next serial: the second of now, at most one a second and never back. If the clock is behind
// the serial, because it was ahead before, the serial still moves, by one: a secondary would miss what changes until
// the clock has caught up.
func nextSerial(serial uint32, now, moved time.Time) uint32 {
	second := uint32(now.Unix())
	switch {
	case second > serial:
		return second
	case second < serial && now.Sub(moved) >= time.Second:
		return serial + 1
	}
	return serial
}
