package cache

// Inherit makes s serve at once what from serves, built as s builds it: at a reload that changes how the same objects
// are followed or shown, no query waits for lists, not even while the API server is unreachable. The lists of s then
// change what differs. The serial goes on: it moves if DNS shows anything else.
//
// While from lists anew after its API server went back in time, its items are of two times: then its served state is
// served as it was built, until s has lists of its own. Nothing is inherited if from is not ready, or sees other
// objects ([Config.SameObjects]).
//
// It is called before s runs. From may run, and goes on.
func (s *Store) Inherit(from *Store) {
	from.publisher.mu.Lock()
	defer from.publisher.mu.Unlock()
	state := *from.State()
	if !state.Ready || !s.cfg.SameObjects(from.cfg) {
		return
	}
	k := from.collect()
	s.continueFrom(from.watches)
	// After a reload, another cluster is accepted if the state was frozen or the address changed.
	if s.set != nil && !from.publisher.frozen.Load() && s.cfg.REST.Host == from.cfg.REST.Host {
		s.set.ExpectUID(from.set.UID())
	}
	if s.cfg.TopologyNode != "" && s.cfg.TopologyNode == from.cfg.TopologyNode {
		s.objects.setTopology(k.options.Zone, k.options.Region)
	}
	for kind := range kinds {
		s.objects.replace(kind, "", k.items[kind])
	}
	s.objects.markAllDirty(state.Index)

	p := s.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	p.continueFrom(state.Index)
	p.behind = from.publisher.behind
	if k.consistent {
		p.catchUp(&state, s.objects.drain())
	}
	p.showState(state, nil)
}
