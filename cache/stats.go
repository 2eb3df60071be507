package cache

import (
	"maps"
	"time"
)

// Stats is what metrics show of a Store.
type Stats struct {
	Objects   map[Kind]int        // kept; only kinds that are watched
	Endpoints map[string]int      // ready ones by source cluster, "" for those of none
	Rejected  map[Refusal]uint64  // objects refused in whole or in part
	Contact   map[Watch]time.Time // when each watch was last heard of, zero if never
	Synced    map[Kind]bool       // the first list was complete
	Publishes uint64
	Rewinds   uint64 // times the API server went back to an older state
	Serial    uint32
	Held      bool // another cluster answers; the last state of ours is served
}

// A Refusal is what refused objects are counted by.
type Refusal struct {
	Kind   Kind
	Reason Reason
}

// A Watch is one watch: of one namespace, or of all if that is "".
type Watch struct {
	Kind      Kind
	Namespace string
}

// Stats takes all figures of this moment.
func (s *Store) Stats() Stats {
	st := Stats{
		Objects: map[Kind]int{}, Rejected: map[Refusal]uint64{}, Contact: map[Watch]time.Time{}, Synced: map[Kind]bool{},
		Publishes: s.publishes.Load(), Rewinds: s.rewinds.Load(), Serial: s.State().Serial, Held: s.held.Load(),
	}
	s.objects.mu.Lock()
	st.Endpoints = maps.Clone(s.objects.endpoints)
	sizes := [kinds]int{
		ServiceImport: len(s.objects.imports), EndpointSlice: len(s.objects.slices),
		Namespace: len(s.objects.namespaces), ClusterProperty: len(s.objects.properties),
	}
	s.objects.mu.Unlock()
	s.mu.Lock()
	for _, f := range s.feeds {
		synced, known := st.Synced[f.kind]
		st.Synced[f.kind] = f.synced && (synced || !known)
		st.Objects[f.kind] = sizes[f.kind]
		var at time.Time
		if t := f.contact.Load(); t != 0 {
			at = time.Unix(0, t)
		}
		st.Contact[Watch{f.kind, f.scope}] = at
	}
	s.mu.Unlock()
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	for kind := range kinds {
		for reason, n := range s.refused.counts[kind] {
			if n > 0 {
				st.Rejected[Refusal{kind, Reason(reason)}] = n
			}
		}
	}
	return st
}
