package cache

import (
	"hash/fnv"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A State holds the answers of one moment. It never changes. [State.Knows] and [State.Stale] report how complete they
// are.
type State struct {
	// Index is never nil.
	Index *index.Index
	// Reverse is of Index; nil unless it is configured.
	Reverse *index.Reverse
	// Serial is the serial of every zone: the Unix second of the newest change that DNS can show, 0 before the first.
	Serial uint32
	// Ready is set once some answers may be given, from complete lists or from a snapshot.
	Ready bool
	// Frozen is set while another cluster answers at the address of ours.
	Frozen bool
	// coverage lists the missing and the restored parts.
	coverage *coverage
	// LocalCluster and ClusterSet are the properties of this cluster (KEP-2149), "" if unset.
	LocalCluster, ClusterSet string
}

// A coverage lists the watches without objects, and those with objects of a snapshot. It never changes; nil means that
// every watch that answers need has its list.
type coverage struct {
	missing, restored []Watch
}

// Knows reports whether the answer to a question in a namespace can be given, or ("") each answer in the zone. An
// answer about a service with addresses in spec.ips needs no slices.
func (st *State) Knows(namespace string, slices bool) bool {
	return st.Ready && (st.coverage == nil || !needAny(st.coverage.missing, namespace, slices))
}

// Stale reports whether an answer, as for Knows, or ("") any answer in the zone, depends on a snapshot, or the state is
// frozen.
func (st *State) Stale(namespace string, slices bool) bool {
	return st.Frozen || st.coverage != nil && needAny(st.coverage.restored, namespace, slices)
}

// needAny reports whether an answer needs one of watches: one in a namespace, or ("") any in the zone.
func needAny(watches []Watch, namespace string, slices bool) bool {
	for _, w := range watches {
		inside := w.Namespace == "" || namespace == "" || w.Namespace == namespace
		if inside && (slices || w.Kind != EndpointSlice) {
			return true
		}
	}
	return false
}

// digest is a hash of the answers, the same in every process: see [index.Index.Digest].
func (st *State) digest() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(st.LocalCluster)) // It cannot fail.
	return st.Index.Digest() ^ h.Sum64()
}
