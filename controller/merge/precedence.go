package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// An entry is a record that counts, and what became of it.
type entry struct {
	Record
	when   int64 // the time that counts for precedence, in seconds since 1970
	out    LeftOut
	serves []int // for each port of the record, its index in the union, or -1
}

func (e *entry) contains(f corev1.IPFamily) bool { return slices.Contains(e.Spec.IPFamilies, f) }

// pending is added to the time of a record that the broker does not have yet: it comes after all that the broker has.
const pending = 1 << 40

// precedence returns the time that counts where a member claims one: min(max(claimed, admitted), created), so that no
// member can backdate an export past its admission or ahead of the broker's clock (docs/spec/controller.md 4.2).
func precedence(r *Record) int64 {
	claimed := max(r.Spec.ExportCreated.Unix(), r.Admitted.Unix())
	if r.Created.IsZero() {
		return pending + claimed
	}
	return min(claimed, r.Created.Unix())
}

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
		e := &entry{Record: *r, when: precedence(r)}
		e.Spec = *r.Spec.DeepCopy()
		entries = append(entries, e)
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
	if c := cmp.Or(cmp.Compare(a.when, b.when), cmp.Compare(a.Cluster, b.Cluster)); c != 0 {
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
