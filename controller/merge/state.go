package merge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/shorten"
)

// A merger is the state of one call of [Merge], which creates it, calls its steps in a fixed order, and drops it:
//
//	mergeTypes ──► mergeFamilies ──► mergePorts ──► compareProperties ──► mergeVIP ──► newImport
//
// Each step reads what the steps before it decided. It may leave an entry out (entry.out), which later steps then pass
// over (in), and it notes disagreements by the method conflict. The records themselves never change, and a merger sees
// neither clock nor API server.
type merger struct {
	o         Options
	all       []*entry // oldest first
	oldest    *entry
	families  []corev1.IPFamily
	ports     []unionPort
	vips      []Address
	usesVIPs  bool // the service has clusterset IPs, or waits for them
	conflicts []Conflict
	rejected  []Rejection // of parts of a record, while the record counts
}

// entries returns those that are not left out, oldest first. There is always one, the oldest.
func (m *merger) entries() []*entry {
	return slices.DeleteFunc(slices.Clone(m.all), func(e *entry) bool {
		return e.out == LeftOutType || e.out == LeftOutFamily
	})
}

// leftOut returns the ids of the clusters that are left out for one reason, sorted.
func (m *merger) leftOut(why LeftOut) []string {
	var clusters []string
	for _, e := range m.all {
		if e.out == why {
			clusters = append(clusters, e.Cluster)
		}
	}
	slices.Sort(clusters)
	return clusters
}

// A unionPort is a port of the import, by the oldest export that has it.
type unionPort struct {
	v1alpha1.ServicePort
	servers int // exports that serve it
}

// A finding is a disagreement before it is put into words.
type finding struct {
	reason     mcsv1beta1.ServiceExportConditionReason
	what       string   // in the singular or plural, as after "conflicting"
	using      string   // the value that holds
	merged     string   // what that is of all values; "" if it is the oldest export's
	disagree   int      // exports that have another
	leftOut    []string // clusters that are left out because of it, sorted
	unreached  []string // sentences on clusters with parts that are left out
	unresolved bool
}

// maxUsing is how many octets of the value that holds a message has.
const maxUsing = 83

// conflict puts a finding into words: `Conflicting type. Using "ClusterSetIP" from oldest service export in
// "cluster-1". 2/5 clusters disagree.`
func (m *merger) conflict(f finding) {
	var b strings.Builder
	fmt.Fprintf(&b, "Conflicting %s. ", f.what)
	using := fmt.Sprintf("%q", shorten.Text(f.using, maxUsing))
	switch {
	case m.o.Mode == First && f.unresolved:
		fmt.Fprintf(&b, "Service withheld, not using %s", using)
	case f.merged != "":
		fmt.Fprintf(&b, "Using %s %s, by precedence", f.merged, using)
	default:
		fmt.Fprintf(&b, "Using %s", using)
	}
	fmt.Fprintf(&b, " from oldest service export in %q. %d/%d clusters disagree.", m.oldest.Cluster, f.disagree,
		len(m.all))
	if len(f.leftOut) > 0 {
		fmt.Fprintf(&b, " Left out: %s.", quotedList(f.leftOut))
	}
	for _, sentence := range f.unreached {
		fmt.Fprintf(&b, " %s", sentence)
	}
	m.conflicts = append(m.conflicts, Conflict{Reason: f.reason, Message: b.String(), unresolved: f.unresolved})
}

// quotedList shows at most ten names.
func quotedList(names []string) string { return enumerate(names, 10, strconv.Quote) }

// enumerate shows at most so many of all.
func enumerate[T any](all []T, most int, show func(T) string) string {
	var text []string
	for _, v := range all[:min(len(all), most)] {
		text = append(text, show(v))
	}
	if more := len(all) - most; more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}

// unite returns a, followed by those of b that a lacks.
func unite(a, b []corev1.IPFamily) []corev1.IPFamily {
	return slices.Concat(a, slices.DeleteFunc(slices.Clone(b), func(f corev1.IPFamily) bool {
		return slices.Contains(a, f)
	}))
}
