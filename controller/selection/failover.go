package selection

import (
	"slices"
	"time"
)

// Ranks are the clusters of a service in the order of use: those of the first result, then new ones of the second, and
// so on; the last rank are those in no result. So a cluster is in one rank: traffic that went to the second result, or
// to all clusters, does not go to a cluster of the first one that has just come back.
type Ranks [][]string

// Ranks returns the ranks of the clusters, which are sorted.
func (r Results) Ranks(clusters []string) Ranks {
	var ranks Ranks
	rest := clusters
	for _, result := range r {
		ranks = append(ranks, intersection(rest, result))
		rest = slices.DeleteFunc(slices.Clone(rest), func(id string) bool { return slices.Contains(result, id) })
	}
	return append(ranks, rest)
}

// Clusters returns the clusters of rank i; all if i is the number of ranks.
func (r Ranks) Clusters(i int) []string {
	if i < len(r) {
		return r[i]
	}
	return slices.Sorted(slices.Values(slices.Concat(r...)))
}

// A Failover tells the rank in use, for one port of a service. The zero value uses no rank yet.
//
//	          the rank in use has no endpoint: at once
//	rank i  ──────────────────────────────────────────▶  next rank with an endpoint; all clusters if there is none
//	        ◀──────────────────────────────────────────
//	          an earlier rank has had one for the hold
type Failover struct {
	used  int         // 1 + the rank in use; 1 + the number of ranks for all clusters; 0 before the first
	since []time.Time // for each rank, since when it has had an endpoint; or zero
}

// Resume returns a Failover for a controller that starts. It uses the first rank with all clusters that are shown; if
// no cluster is shown, no rank yet. Clusters may have come to that rank since, and those in no rank are gone.
func Resume(r Ranks, visible []string) Failover {
	var f Failover
	rest := intersection(visible, r.Clusters(len(r)))
	for i := range len(r) + 1 {
		if len(rest) > 0 && len(intersection(rest, r.Clusters(i))) == len(rest) {
			f.used = i + 1
			break
		}
	}
	return f
}

// Next returns the Failover that follows when these clusters, in any order, have an endpoint, and after what time to
// ask again, 0 for not at all.
func (f Failover) Next(r Ranks, eligible []string, now time.Time, hold time.Duration) (next Failover,
	wait time.Duration) {
	next = Failover{used: f.used, since: make([]time.Time, len(r))}
	best := len(r)
	for i, clusters := range slices.Backward(r) {
		if len(intersection(clusters, eligible)) == 0 {
			continue
		}
		best, next.since[i] = i, now
		if i < len(f.since) && !f.since[i].IsZero() {
			next.since[i] = f.since[i]
		}
	}
	current := f.used - 1
	if current < 0 || current >= len(r) || best >= current || next.since[current].IsZero() {
		next.used = best + 1
		return next, 0
	}
	for i := best; i < current; i++ {
		if next.since[i].IsZero() {
			continue
		}
		remaining := hold - now.Sub(next.since[i])
		if remaining <= 0 {
			next.used = i + 1
			return next, wait
		}
		if wait == 0 || remaining < wait {
			wait = remaining
		}
	}
	return next, wait
}

// Rank returns the rank in use; the number of ranks stands for all clusters.
func (f Failover) Rank() int { return f.used - 1 }

// intersection returns the elements in both, in the order of a.
func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(id string) bool { return !slices.Contains(b, id) })
}
