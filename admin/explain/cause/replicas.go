package cause

import (
	"maps"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/api/reason"
)

// checkReplicas compares what the replicas of the DNS server serve. It is never wrong: each may be right about this
// name.
func checkReplicas(w *walk) {
	const name = "replicas"
	switch w.in.Replicas.State {
	case NotAsked, Absent, NotInstalled:
		return
	case Present:
	default:
		w.unknown(name, w.in.Replicas.Why)
		return
	}
	r := &w.in.Replicas.Value
	labels, differ := r.differing()
	switch {
	case len(r.All) < 2:
		w.skip(name, "the DNS server of the clusterset has no two running Pods to compare")
	case len(differ) == 0:
		w.ok(name, "%d serve the same state", len(r.All))
	case r.Changed:
		w.skip(name, "what they serve changed while it was compared")
	default:
		w.fault(true, faultStep(name, reason.DNSReplicasDiffer), "%s serve another state than the others: hashes of %s{%s} differ",
			shortList(differ), HashMetric, labels)
	}
}

// HashMetric is the metric with the hash of what a server serves (docs/metrics.md).
const HashMetric = "coredns_clusterset_state_hash"

// Differ reports whether replicas serve different states.
func (r *Replicas) Differ() bool {
	_, differ := r.differing()
	return len(differ) > 0
}

// differing returns the replicas with another hash than most others with the same labels, for the first labels with
// such a difference.
func (r *Replicas) differing() (labels string, names []string) {
	byLabels := map[string]map[string][]string{} // names by hash
	for i := range r.All {
		for of, hash := range r.All[i].Hashes {
			if byLabels[of] == nil {
				byLabels[of] = map[string][]string{}
			}
			byLabels[of][hash] = append(byLabels[of][hash], r.All[i].Name)
		}
	}
	for _, of := range slices.Sorted(maps.Keys(byLabels)) {
		most := ""
		for _, hash := range slices.Sorted(maps.Keys(byLabels[of])) {
			if len(byLabels[of][hash]) > len(byLabels[of][most]) {
				most = hash
			}
		}
		for hash, some := range byLabels[of] {
			if hash != most {
				names = append(names, some...)
			}
		}
		if len(names) > 0 {
			slices.Sort(names)
			return of, names
		}
	}
	return "", nil
}

// ParseHashes returns the hashes in a text of metrics, by their labels.
func ParseHashes(metrics string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(metrics) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), HashMetric+"{")
		if end := strings.LastIndex(rest, "} "); ok && end >= 0 {
			all[rest[:end]] = rest[end+2:]
		}
	}
	return all
}
