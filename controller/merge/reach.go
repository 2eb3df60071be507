package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// The functions in this file follow which clusters the exports of a service reach (docs/spec/controller.md 3.8).

// AnyRestricted reports whether an export reaches some clusters alone. Otherwise no ClusterProperties are needed.
func AnyRestricted(records []Record) bool {
	return slices.ContainsFunc(records, func(r Record) bool { return len(r.Spec.ToClusters) > 0 })
}

// RecordsFor returns the records of exports that reach an importing cluster with these ClusterProperties. The result
// shares memory with records.
func RecordsFor(records []Record, cluster string, properties map[string]string) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return !reaches(r, cluster, properties) })
}

func reaches(r Record, cluster string, properties map[string]string) bool {
	return selection.Reaches(r.Cluster, r.Spec.ToClusters, cluster, properties)
}

// A view is what clusters see that the same exports reach.
type view struct {
	clusters []string // sorted; unless an export is restricted they do not matter, and are left out
	records  []Record
}

// views returns what members and exporting clusters see. properties are the ClusterProperties of all members by their
// ids.
func views(records []Record, properties map[string]map[string]string) []view {
	if !AnyRestricted(records) {
		return []view{{records: records}}
	}
	importers := slices.Collect(maps.Keys(properties))
	for _, r := range records {
		importers = append(importers, r.Cluster)
	}
	slices.Sort(importers)
	var all []view
	at := make(map[string]int)
	for _, id := range slices.Compact(importers) {
		var key strings.Builder
		for _, r := range records {
			fmt.Fprintf(&key, "%t ", reaches(r, id, properties[id]))
		}
		i, known := at[key.String()]
		if !known {
			i = len(all)
			at[key.String()] = i
			all = append(all, view{records: RecordsFor(records, id, properties[id])})
		}
		all[i].clusters = append(all[i].clusters, id)
	}
	return all
}

// ConflictsOf returns on what the export of a cluster disagrees with others, wherever it reaches: exports that do not
// reach a common cluster are not compared. A conflict that is not the same in all clusters that the export reaches
// names those that see it. properties are the ClusterProperties of all members by their ids; without restricted exports
// they do not matter.
func ConflictsOf(service types.NamespacedName, cluster string, records []Record,
	properties map[string]map[string]string, o Options) []Conflict {
	var all []Conflict
	var seenBy [][]string // the clusters of each conflict
	reached := 0
	for _, v := range views(records, properties) {
		if !slices.ContainsFunc(v.records, func(r Record) bool { return r.Cluster == cluster }) {
			continue
		}
		reached += len(v.clusters)
		for _, c := range Merge(service, v.records, o).Conflicts {
			i := slices.Index(all, c)
			if i < 0 {
				i = len(all)
				all, seenBy = append(all, c), append(seenBy, nil)
			}
			seenBy[i] = append(seenBy[i], v.clusters...)
		}
	}
	for i := range all {
		if slices.Sort(seenBy[i]); len(seenBy[i]) < reached {
			all[i].Message = fmt.Sprintf("In %s: %s", quotedList(seenBy[i]), all[i].Message)
		}
	}
	slices.SortFunc(all, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(slices.Index(reasons, a.Reason), slices.Index(reasons, b.Reason)),
			cmp.Compare(a.Message, b.Message))
	})
	return all
}

// ReachedBy returns the ids of the members that the export of a cluster reaches, sorted. properties are as for
// [ConflictsOf].
func ReachedBy(r Record, properties map[string]map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(id string) bool {
		return !reaches(r, id, properties[id])
	})
}

// OfferCounts returns how many of the exports reach each member, by id. properties are as for [ConflictsOf], but of all
// members.
func OfferCounts(records []Record, properties map[string]map[string]string) map[string]int {
	offered := make(map[string]int)
	for _, r := range records {
		for _, id := range ReachedBy(r, properties) {
			offered[id]++
		}
	}
	return offered
}

// IsAllocator reports whether a cluster has to choose the clusterset IP of a service that lacks one: its export is the
// oldest of those that want one and are the oldest export in a cluster that they reach. Preferred are exports that
// reach other clusters and have a VIP CIDR of one of their families, then those with such a VIP CIDR, then those that
// reach other clusters: if a cluster whose export reaches no other does not allocate, other members cannot see why. All
// members have to give the same pools, whatever their options. properties are as for [ConflictsOf].
func IsAllocator(service types.NamespacedName, cluster string, records []Record,
	properties map[string]map[string]string, o Options) bool {
	var oldest []Record
	for _, v := range views(records, properties) {
		all := Merge(service, v.records, o).Oldest
		at := slices.IndexFunc(records, func(r Record) bool { return r.Cluster == all })
		if at < 0 || slices.ContainsFunc(oldest, func(r Record) bool { return r.Cluster == all }) {
			continue
		}
		r := records[at]
		if spec := &r.Spec; spec.Type == v1alpha1.ClusterSetIP && spec.VIP != nil && spec.VIP.Wanted {
			oldest = append(oldest, r)
		}
	}
	oldest = preferred(oldest, o.hasPoolFor)
	oldest = preferred(oldest, func(r Record) bool { return reachesOthers(r, properties) })
	return Merge(service, oldest, o).Oldest == cluster
}

// preferred returns the records for which good is true, or all if there are no such records.
func preferred(records []Record, good func(Record) bool) []Record {
	better := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return !good(r) })
	if len(better) == 0 {
		return records
	}
	return better
}

// reachesOthers reports whether an export reaches another member than its own cluster. properties are as for
// [ConflictsOf].
func reachesOthers(r Record, properties map[string]map[string]string) bool {
	return len(r.Spec.ToClusters) == 0 || slices.ContainsFunc(ReachedBy(r, properties),
		func(id string) bool { return id != r.Cluster })
}

// hasPoolFor reports whether the cluster of an export has a VIP CIDR of one of its families.
func (o Options) hasPoolFor(r Record) bool {
	return slices.ContainsFunc(o.VIPs.Pools, func(p Pool) bool {
		return p.Cluster == r.Cluster && slices.Contains(r.Spec.IPFamilies, broker.FamilyOf(p.Prefix.Addr()))
	})
}
