package importer

import (
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// sharesOf returns the shares of all other clusters that have a part in the import.
func sharesOf(in inputs) map[string]share {
	shares := make(map[string]share)
	for cluster, entry := range in.entries {
		noted := protocol.Noted{}
		imported := make(map[string]*discoveryv1.EndpointSlice)
		if note, found := in.notes[cluster]; found || hasCluster(in.imported, cluster) {
			noted = note.noted()
			for _, e := range in.slices {
				if e.Labels[mcsv1beta1.LabelSourceCluster] == cluster {
					if s, ok := sourceOf(e); ok {
						noted.Slices = append(noted.Slices, s)
						imported[s.Name] = e
					}
				}
			}
		}
		if s := shareOf(in, cluster, entry, noted, imported); s.noted.Record.Stamp != 0 {
			shares[cluster] = s
		}
	}
	return shares
}

// shareOf returns the share of one cluster. imported holds its imported slices with a note, by the hash in the name of
// their source.
func shareOf(in inputs, cluster string, entry protocol.Entry, noted protocol.Noted,
	imported map[string]*discoveryv1.EndpointSlice) share {
	svc := protocol.Restore(noted)
	record := recordIn(in.broker.Records, cluster)
	onBroker := make(map[string]*discoveryv1.EndpointSlice)
	var found []protocol.Slice
	for _, e := range in.broker.Slices[cluster] {
		s := protocol.Slice{Name: apibroker.SliceHash(e.Name), Stamp: broker.StampOf(e),
			UID: types.UID(e.Annotations[apibroker.AnnotationExportUID])}
		onBroker[s.Name], found = e, append(found, s)
	}
	if in.silent.Returning(cluster) {
		svc.Relist(entry, record, found)
	} else {
		svc.See(entry, record, found)
	}
	counted := svc.Count(noted)
	out := share{noted: counted.Noted, due: counted.Due, unknown: svc.Record.Partial}
	for _, s := range counted.Slices {
		switch e := onBroker[s.Name]; {
		case !out.unknown && e != nil && broker.StampOf(e) == s.Stamp:
			out.slices = append(out.slices, e)
		case imported[s.Name] != nil:
			out.kept = append(out.kept, imported[s.Name])
		}
	}
	slices.SortFunc(out.slices, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// recordIn returns the record of a cluster, or the zero value.
func recordIn(records []merge.Record, cluster string) (found protocol.Record) {
	for _, r := range records {
		if r.Cluster == cluster {
			found = protocol.Record{Stamp: protocol.Stamp(r.Spec.Stamp), UID: types.UID(r.Spec.ExportUID), Slices: r.Spec.Slices}
		}
	}
	return found
}

// follow sets the shares, and drops the records that do not count.
func (in *inputs) follow(shares map[string]share) {
	in.shares = shares
	in.records = slices.DeleteFunc(in.records, func(r merge.Record) bool {
		s, counts := shares[r.Cluster]
		return r.Cluster != in.own.cluster && (!counts || s.unknown)
	})
}

// unknownIn returns the clusters, sorted, with objects that stay although the broker lacks them, and whether a record
// is among these.
func unknownIn(shares map[string]share) (clusters []string, records bool) {
	for cluster, s := range shares {
		if s.unknown || len(s.kept) > 0 {
			clusters = append(clusters, cluster)
		}
		records = records || s.unknown
	}
	slices.Sort(clusters)
	return clusters, records
}

// newNotes returns the notes of an import that has these clusters. enough keeps each old note that may stay: such a
// note alone causes no write.
func newNotes(clusters []mcsv1beta1.ClusterStatus, shares map[string]share, old notes) (all, enough notes) {
	all = make(notes)
	for _, c := range clusters {
		if s, ok := shares[c.Cluster]; ok {
			all[c.Cluster] = note{s.noted.Record.Stamp, s.noted.Record.UID, s.noted.From, s.noted.Listed}
		}
	}
	enough = maps.Clone(all)
	for cluster, after := range all {
		if before, ok := old[cluster]; ok && before.Export == after.Export && before.From == after.From &&
			(before.Listed != 0 || after.Listed == 0) && !shares[cluster].due {
			enough[cluster] = before
		}
	}
	return all, enough
}
