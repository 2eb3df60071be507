package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// admit returns the records that count, in order of precedence, and why the others do not.
func admit(service types.NamespacedName, records []Record) ([]*entry, []Rejection) {
	var entries []*entry
	var rejected []Rejection
	reject := func(r *Record, reason Reason, detail string) {
		name := broker.RecordName(service.Namespace, service.Name)
		rejected = append(rejected, Rejection{Cluster: r.Cluster, Object: name, Reason: reason, Detail: detail})
	}
	for i := range records {
		r := &records[i]
		if !broker.IsClusterID(r.Cluster) {
			reject(r, BadCluster, fmt.Sprintf("cluster id %.80q: want one RFC 1123 label, or two joined by one dot", r.Cluster))
			continue
		}
		if err := r.Spec.Validate(); err != nil {
			reject(r, BadRecord, err.Error())
			continue
		}
		if r.Spec.Namespace != service.Namespace || r.Spec.Name != service.Name {
			reject(r, BadName, "service "+r.Spec.Namespace+"/"+r.Spec.Name+": want "+service.String())
			continue
		}
		when := momentOf(r.Spec.ExportCreated, r.Admitted, r.Created)
		entries = append(entries, &entry{Record: Record{Cluster: r.Cluster, Admitted: r.Admitted, Created: r.Created,
			Spec: *r.Spec.DeepCopy()}, when: when})
	}
	slices.SortFunc(entries, byPrecedence)
	retained, known := entries[:0], make(map[string]bool, len(entries))
	for _, e := range entries {
		if known[e.Cluster] {
			reject(&e.Record, Duplicate, "want one export record for each cluster")
			continue
		}
		retained, known[e.Cluster] = append(retained, e), true
	}
	slices.SortFunc(rejected, compareRejections)
	return retained, rejected
}

// byPrecedence sorts the oldest first, by cluster id among equals. No two records of one cluster may be equal, or the
// result would depend on the order of the input.
func byPrecedence(a, b *entry) int {
	if c := cmp.Or(a.when.compare(b.when), cmp.Compare(a.Cluster, b.Cluster)); c != 0 {
		return c
	}
	return bytes.Compare(encode(a.Spec), encode(b.Spec))
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // a time of a year that RFC 3339 cannot say
	}
	return text
}
