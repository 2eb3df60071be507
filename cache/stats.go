package cache

import (
	"maps"
	"time"
)

// Stats is what metrics show of a Store.
type Stats struct {
	Objects   map[Kind]int        // items; only kinds that are watched
	Endpoints map[string]int      // ready ones by source cluster, "" for those of none
	Rejected  map[Rejected]uint64 // objects rejected in whole or in part
	Contact   map[Watch]time.Time // when each watch was last heard of, zero if never
	Synced    map[Kind]bool       // the first list was complete
	Withheld  int                 // ServiceImports that are gone and still served
	Publishes uint64
	Rollbacks uint64 // times the API server went back to an older state
	Serial    uint32
	// Digest is a hash of the served state: equal in all servers with equal directives, Zone, Region and state.
	Digest       uint64
	Zone, Region string
	Frozen       bool // another cluster answers; the last state of ours is served
}

// Rejected is what rejected objects are counted by.
type Rejected struct {
	Kind   Kind
	Reason Reason
}

// Stats takes all figures of this moment.
func (s *Store) Stats() Stats {
	st := Stats{
		Objects: map[Kind]int{}, Rejected: map[Rejected]uint64{}, Contact: map[Watch]time.Time{}, Synced: map[Kind]bool{},
		Publishes: s.publishes.Load(), Rollbacks: s.rollbacks.Load(), Serial: s.State().Serial, Digest: s.State().digest(),
		Frozen: s.publisher.frozen.Load(), Withheld: s.withheld.imports(),
	}
	s.objects.mu.Lock()
	st.Zone, st.Region = s.objects.options.Zone, s.objects.options.Region
	st.Endpoints = maps.Clone(s.objects.endpoints)
	sizes := [kinds]int{
		ServiceImport: len(s.objects.imports), EndpointSlice: len(s.objects.slices),
		Namespace: len(s.objects.namespaces), ClusterProperty: len(s.objects.properties),
	}
	s.objects.mu.Unlock()
	s.watches.mu.Lock()
	for _, w := range s.all {
		synced, known := st.Synced[w.Kind]
		st.Synced[w.Kind] = w.progress >= listed && (synced || !known)
		st.Objects[w.Kind] = sizes[w.Kind]
		st.Contact[w.Watch] = w.contact.Last()
	}
	s.watches.mu.Unlock()
	s.rejections.mu.Lock()
	defer s.rejections.mu.Unlock()
	for kind := range kinds {
		for reason, n := range s.rejections.counts[kind] {
			if n > 0 {
				st.Rejected[Rejected{kind, Reason(reason)}] = n
			}
		}
	}
	return st
}
