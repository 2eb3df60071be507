package cache

import "slices"

// A coverage says which watches have no objects yet, and which have those of a snapshot. It never changes; nil means that
// every watch that answers need has its list.
type coverage struct {
	missing, restored []Watch
}

// coverageLocked returns the coverage of this moment, and whether anything can be answered. last is returned if it is the same. The caller
// holds s.mu.
func (s *Store) coverageLocked(last *coverage) (*coverage, bool) {
	var c coverage
	imports, selected := false, true
	for _, w := range s.watches {
		switch {
		case w.kind == ServiceImport && w.progress.has():
			imports = true
		case w.kind == Namespace && !w.progress.has():
			selected = false
		}
		switch {
		case !w.needed() || w.progress >= listed:
		case w.progress == fromSnapshot:
			c.restored = append(c.restored, Watch{w.kind, w.namespace})
		default:
			c.missing = append(c.missing, Watch{w.kind, w.namespace})
		}
	}
	some := imports && selected
	switch {
	case c.missing == nil && c.restored == nil:
		return nil, some
	case last != nil && slices.Equal(c.missing, last.missing) && slices.Equal(c.restored, last.restored):
		return last, some
	}
	return &c, some
}

// touches reports whether an answer needs one of watches: one in a namespace, or ("") any in the zone.
func touches(watches []Watch, namespace string, slices bool) bool {
	for _, w := range watches {
		inside := w.Namespace == "" || namespace == "" || w.Namespace == namespace
		if inside && (slices || w.Kind != EndpointSlice) {
			return true
		}
	}
	return false
}

// Complete reports whether every answer can be given.
func (st *State) Complete() bool {
	return st.Ready && (st.coverage == nil || st.coverage.missing == nil)
}

// Knows reports whether the answer to a question in a namespace can be given. One about a service with addresses in spec.ips
// needs no slices.
func (st *State) Knows(namespace string, slices bool) bool {
	return st.Complete() || st.Ready && !touches(st.coverage.missing, namespace, slices)
}

// Restored reports whether an answer, as for Knows, depends on a snapshot.
func (st *State) Restored(namespace string, slices bool) bool {
	return st.coverage != nil && touches(st.coverage.restored, namespace, slices)
}

// Stale reports whether any answer is from a snapshot, or the state is frozen.
func (st *State) Stale() bool { return st.Frozen || st.coverage != nil && st.coverage.restored != nil }
