package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A moment is a time that counts for precedence, in whole seconds, as the API has it.
type moment struct {
	pending bool // the broker does not have the record yet: after all that it has
	unix    int64
}

func (a moment) compare(b moment) int {
	if a.pending != b.pending {
		if a.pending {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.unix, b.unix)
}

// moment returns the time that counts where a member claims one: min(max(claimed, admitted), created), so that nobody
// can backdate past their admission or ahead of the broker's clock (docs/spec/controller.md 4.2).
func (p Precedence) moment(claimed, admitted, created metav1.Time) moment {
	if created.IsZero() {
		return moment{pending: true, unix: later(claimed.Time, admitted.Time).Unix()}
	}
	if p == ByBroker {
		return moment{unix: created.Unix()}
	}
	return moment{unix: min(later(claimed.Time, admitted.Time).Unix(), created.Unix())}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// admit returns the records that count, in order of precedence, and why the others do not.
func admit(service types.NamespacedName, records []Record, o Options) ([]*entry, []Refusal) {
	var entries []*entry
	var refused []Refusal
	refuse := func(r *Record, reason Reason, detail string) {
		name := broker.RecordName(service.Namespace, service.Name)
		refused = append(refused, Refusal{Cluster: r.Cluster, Object: name, Reason: reason, Detail: detail})
	}
	for i := range records {
		r := &records[i]
		if !broker.IsClusterID(r.Cluster) {
			refuse(r, BadCluster, "cluster id "+quote(r.Cluster)+": want one RFC 1123 label, or two joined by one dot")
			continue
		}
		if err := r.Spec.Validate(); err != nil {
			refuse(r, BadRecord, err.Error())
			continue
		}
		if r.Spec.Namespace != service.Namespace || r.Spec.Name != service.Name {
			refuse(r, BadName, "service "+r.Spec.Namespace+"/"+r.Spec.Name+": want "+service.String())
			continue
		}
		when := o.Precedence.moment(r.Spec.ExportCreated, r.Admitted, r.Created)
		entries = append(entries, &entry{Record: Record{
			Cluster: r.Cluster, Admitted: r.Admitted, Created: r.Created, Spec: *r.Spec.DeepCopy(),
		}, when: when})
	}
	slices.SortFunc(entries, byPrecedence)
	kept := entries[:0]
	for _, e := range entries {
		if slices.ContainsFunc(kept, func(k *entry) bool { return k.Cluster == e.Cluster }) {
			refuse(&e.Record, Duplicate, "want one export record for each cluster")
			continue
		}
		kept = append(kept, e)
	}
	slices.SortFunc(refused, compareRefusals)
	return kept, refused
}

// byPrecedence sorts the oldest first, by cluster id among equals. No two records of one cluster may be equal, lest the
// order of the input shows in the result.
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

func compareRefusals(a, b Refusal) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Object, b.Object),
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
}

// quote shows a value that came from elsewhere, cut so that it cannot flood a log.
func quote(s string) string { return fmt.Sprintf("%q", cut(s, 80)) }

// cut returns at most limit octets of s, without splitting a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
