package cache

import (
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/cache/index"
)

// An objectSet is all that a Store keeps at one moment.
type objectSet struct {
	items      [kinds][]item
	options    index.Options
	dirty      bool // some of it is not published yet
	consistent bool // all of it may be shown: the lists are complete, or it is what is published
}

// collect takes what is kept. The caller holds s.publisher.mu, so that no state is being made of it.
func (s *Store) collect() objectSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects
	o.mu.Lock()
	defer o.mu.Unlock()
	k := objectSet{items: o.items(), options: o.options, dirty: o.unclean()}
	k.consistent = !k.dirty || s.consistentLocked()
	return k
}

// Inherit makes s serve at once what from serves, built as s builds it: at a reload that changes how the same objects are
// followed or shown, no query waits for lists, not even while the API server is unreachable. The lists of s then change what
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
	k := from.collect()
	s.goOn(from)
	if s.cfg.TopologyNode != "" && s.cfg.TopologyNode == from.cfg.TopologyNode {
		s.objects.setTopology(k.options.Zone, k.options.Region)
	}
	for kind := range kinds {
		s.objects.replace(kind, "", k.items[kind])
	}
	s.objects.markAllDirty(state.Index)

	p := &s.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index, p.reverse = state.Index, s.reverseOf(state.Index)
	p.behind = from.publisher.behind
	if k.consistent {
		p.catchUp(&state, s.objects.drain())
	}
	p.show(state, nil)
}

// goOn makes the watches of s go on where those of from are. Their lists are still to come.
func (s *Store) goOn(from *Store) {
	// After a reload, another cluster is accepted if the state was frozen or the address changed.
	if s.set != nil && !from.frozen.Load() && s.cfg.REST.Host == from.cfg.REST.Host {
		s.set.ExpectUID(from.set.UID())
	}
	before := map[apiserver.WatchID]*watchStore{}
	for _, w := range from.watches {
		before[w.id()] = w
	}
	for _, w := range s.watches {
		w.contact.Inherit(&before[w.id()].contact)
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		switch p := before[w.id()].progress; p {
		case listed, outdated:
			w.progress = outdated
		case fromSnapshot:
			w.progress = fromSnapshot
		}
	}
}

// markAllDirty marks all services and imports of x dirty, so that those without an object are taken out.
func (o *objects) markAllDirty(x *index.Index) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range x.All() {
		o.markDirty(s.Key(), written{})
	}
	for key := range x.AllNameless {
		o.markDirty(key, written{})
	}
}
