package cache

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A restored is a state from a snapshot.
type restored struct {
	batch    batch
	serial   uint32
	behind   bool
	coverage *coverage
}

// A publisher turns what changed into the next state. It is the only writer of the state.
//
// Its goroutine, run, waits until objects has something dirty, then takes all of it at once (take), builds the services concerned (build)
// and publishes the result (show). After that it pauses, in proportion to the time that this took. While a list is awaited, or another
// cluster answers, it takes nothing: what is dirty stays in objects. A change moves the serial at most once a second; a change
// that the serial does not show yet leaves the state "behind", and run moves the serial as soon as a second has passed.
//
// A snapshot arrives through Store.restored. It is published before any list, with the serial that it was written with.
// capture (for the snapshot file), adopt and Inherit hold mu to see a state that does not change meanwhile.
//
// Of its store it uses objects, restored, take, rejections and the configuration, and it writes state, synced and the serials of subscribers.
type publisher struct {
	store        *Store
	now          func() time.Time
	buildService func(*batch, *job) *index.Service // (*batch).build

	mu      sync.Mutex // held by whoever makes the next state, or needs this one to stay; guards what follows
	index   *index.Index
	reverse *index.Reverse // of index; nil unless it is wanted
	behind  bool           // something changed that the serial does not show yet
	moved   time.Time      // when the serial moved last
}

func newPublisher(s *Store, x *index.Index) publisher {
	return publisher{store: s, now: time.Now, buildService: (*batch).build, index: x, reverse: s.reverseOf(x)}
}

// reverseOf is the reverse of x if it is wanted, else nil.
func (s *Store) reverseOf(x *index.Index) *index.Reverse {
	if !s.cfg.Reverse {
		return nil
	}
	return index.NewReverse(x)
}

// A round is followed by a pause of restFactor times its own time, so that building takes a fifth of a core, however often services change.
// maxRest bounds the pause, so that a change is served soon after it came (docs/outages.md, F22): after rounds of more than 25 ms building takes more.
const (
	restFactor = 4
	maxRest    = 100 * time.Millisecond
)

// run publishes until ctx ends. What arrives during one round, or the pause after it, is the next one.
func (p *publisher) run(ctx context.Context) error {
	s := p.store
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
			wake = s.objects.wake
		case <-wake:
			begin := time.Now()
			p.do(p.round)
			wake = nil
			rested.Reset(min(restFactor*time.Since(begin), maxRest))
		case r := <-s.restored:
			p.do(func() { p.restore(r) })
		case <-timer.C:
			p.do(func() { p.show(*s.State(), nil) })
		}
	}
}

func (p *publisher) do(step func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	step()
}

// untilNext is the time until the serial can move next, and whether it has to.
func (p *publisher) untilNext() (wait time.Duration, behind bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, serial := p.now(), int64(p.store.State().Serial)
	if serial > now.Unix() { // the clock was ahead
		return max(0, p.moved.Add(time.Second).Sub(now)), p.behind
	}
	return time.Unix(serial+1, 0).Sub(now), p.behind
}

// round publishes what changed since the last one, if anything did.
func (p *publisher) round() {
	s := p.store
	next := *s.State()
	if s.frozen.Load() {
		next.Frozen = true
		p.show(next, nil)
		return
	}
	if t, ok := s.take(next.coverage); ok {
		p.publish(t)
	}
}

// A taken is what a round publishes, all of one moment.
type taken struct {
	batch    batch
	coverage *coverage
	restored *restored // a snapshot that was read before; nil without one
}

// take takes all that changed, if it may be shown, with what it lacks: a list that comes a moment later is not covered by the items from before.
// last is the coverage of what is shown.
func (s *Store) take(last *coverage) (t taken, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.consistentLocked() {
		return taken{}, false
	}
	select {
	case r := <-s.restored:
		t.restored = &r
	default:
	}
	t.coverage, _ = s.coverageLocked(last)
	t.batch = s.objects.drain()
	return t, true
}

// publish publishes what was taken.
func (p *publisher) publish(t taken) {
	if t.restored != nil { // the lists were compared with it: it comes first
		p.restore(*t.restored)
	}
	next := *p.store.State()
	if !next.Ready {
		p.behind = true
	}
	next.Ready, next.Frozen, next.coverage = true, false, t.coverage
	changes := p.catchUp(&next, t.batch)
	p.show(next, changes)
}

// catchUp builds a batch, makes next say what this cluster says of itself, and returns the changes of single objects.
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
	p.build(&r.batch)
	p.behind = r.behind
	p.show(State{
		Serial: r.serial, Ready: true, coverage: r.coverage,
		LocalCluster: r.batch.properties[propertyCluster], ClusterSet: r.batch.properties[propertyClusterSet],
	}, nil)
	p.store.objects.signal()
}

// build makes the next index, and returns the changes of single objects that are new in it. A service that looks the same in DNS
// keeps its old value.
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
			namespace, name := reverse(j.key)
			rejected := []Rejection{{Panicked, fmt.Sprintf("panic: %.200v; the service stays as it was", r)}}
			for _, r := range p.store.rejections.note(ServiceImport, namespace+"/"+name, rejected) {
				p.store.cfg.Log.Errorf("service %s: %s", j.key, r.Detail)
			}
		}
	}()
	return p.buildService(b, j)
}

// reverse splits the key of a service, "<name>.<namespace>".
func reverse(key string) (namespace, name string) {
	name, namespace, _ = strings.Cut(key, ".")
	return namespace, name
}

// show publishes next with the index, if it differs from what is published.
func (p *publisher) show(next State, changes []change) {
	s, old := p.store, p.store.State()
	next.Index, next.Reverse = p.index, p.reverse
	if now := p.now(); p.behind {
		if serial := advance(next.Serial, now, p.moved); serial != next.Serial {
			next.Serial, p.behind, p.moved = serial, false, now
		}
	}
	if next == *old {
		return
	}
	s.state.Store(&next)
	first := next.Ready && !old.Ready
	if next.Index != old.Index || first {
		s.publishes.Add(1)
	}
	if first {
		s.cfg.Log.Infof("%s: serving %d services, serial %d", s.cfg.Name, next.Index.Len(), next.Serial)
		close(s.synced)
	}
	if next.Serial != old.Serial {
		s.notify(next.Serial)
	}
	for _, c := range changes {
		if s.cfg.Latency != nil {
			s.cfg.Latency(max(0, p.now().Sub(c.written)), max(0, p.now().Sub(c.received)))
		}
	}
}

// advance returns the next serial: the second of now, at most one a second and never back. If the clock is behind the serial, because
// it was ahead before, the serial still moves, by one: a secondary would miss what changes until the clock has caught up.
func advance(serial uint32, now, moved time.Time) uint32 {
	second := uint32(now.Unix())
	switch {
	case second > serial:
		return second
	case second < serial && now.Sub(moved) >= time.Second:
		return serial + 1
	}
	return serial
}
