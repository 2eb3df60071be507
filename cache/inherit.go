package cache

import "github.com/clusterset-dns/clusterset/cache/index"

// kept is all that a Store keeps at one moment.
type kept struct {
	items   [kinds][]item
	options index.Options
	dirty   bool // some of it is not published yet
	sound   bool // all of it may be shown: the lists are whole, or it is what is published
}

// gather takes what is kept. The caller holds s.publisher.mu, so that no state is being made of it.
func (s *Store) gather() kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects
	o.mu.Lock()
	defer o.mu.Unlock()
	k := kept{items: o.items(), options: o.options, dirty: o.unclean()}
	k.sound = !k.dirty || s.complete()
	return k
}

// Inherit makes s serve at once what from serves, built as s builds it: at a reload that changes how the same objects are
// followed or shown, nobody waits for lists, not even while the API server is out of reach. The lists of s then change what
// differs. The serial goes on: it moves if DNS shows anything else.
//
// While from lists anew after its API server went back in time, what it keeps is of two times: then what it serves is
// served as it was built, until s has lists of its own. Nothing is inherited if from is not ready, or sees other objects
// ([Config.SameObjects]).
//
// It is called before s runs. From may run, and goes on.
func (s *Store) Inherit(from *Store) {
	from.publisher.mu.Lock()
	defer from.publisher.mu.Unlock()
	state := *from.State()
	if !state.Ready || !s.cfg.SameObjects(&from.cfg) {
		return
	}
	k := from.gather()
	s.follow(from)
	if s.cfg.TopologyNode != "" && s.cfg.TopologyNode == from.cfg.TopologyNode {
		s.objects.stand(k.options.Zone, k.options.Region)
	}
	for kind := range kinds {
		s.objects.replace(kind, "", k.items[kind])
	}
	s.objects.doubt(state.Index)

	p := &s.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index, p.owed = state.Index, from.publisher.owed
	if k.sound {
		p.catchUp(&state)
	}
	p.show(state, nil)
}

// follow makes the feeds of s go on where those of from are. Their lists are still to come.
func (s *Store) follow(from *Store) {
	// At a reload an operator may want another cluster than the one that is held.
	if !from.held.Load() {
		s.guard.uid.Store(from.guard.uid.Load())
	}
	s.contact.Store(from.contact.Load())
	from.mu.Lock()
	defer from.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := map[Watch]*feed{}
	for _, f := range from.feeds {
		before[Watch{f.kind, f.scope}] = f
	}
	for _, f := range s.feeds {
		old := before[Watch{f.kind, f.scope}]
		f.synced = old.synced
		f.contact.Store(old.contact.Load())
	}
}

// doubt marks all services of x dirty, so that those of which nothing is kept are taken out.
func (o *objects) doubt(x *index.Index) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range x.All() {
		o.touch(s.Key(), written{})
	}
}
