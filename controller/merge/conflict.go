package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// ReasonClusterSetIP is the reason of a difference in whether a clusterset IP is wanted. The MCS API has none for it.
const ReasonClusterSetIP mcsv1beta1.ServiceExportConditionReason = "ClusterSetIPConflict"

// A Conflict is one property that the exports of a service disagree on.
type Conflict struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string // one sentence on the disagreement, in the words of KEP-1645, and who is left out because of it

	unresolved bool // the exports cannot be had as they are: one had to give way
}

// reasons are those of a conflict, in the order of the table in docs/spec/controller.md 6.2.
var reasons = []mcsv1beta1.ServiceExportConditionReason{
	mcsv1beta1.ServiceExportReasonTypeConflict,
	mcsv1beta1.ServiceExportReasonPortConflict,
	mcsv1beta1.ServiceExportReasonSessionAffinityConflict,
	mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict,
	mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict,
	mcsv1beta1.ServiceExportReasonTrafficDistributionConflict,
	mcsv1beta1.ServiceExportReasonLabelsConflict,
	mcsv1beta1.ServiceExportReasonAnnotationsConflict,
	mcsv1beta1.ServiceExportReasonIPFamilyConflict,
	ReasonClusterSetIP,
}

// Condition is the condition Conflict that every constituent export gets (docs/spec/controller.md 6.2). Its LastTransitionTime is for the
// writer, who knows what was there before.
func Condition(conflicts []Conflict, generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: string(mcsv1beta1.ServiceExportConditionConflict), Status: metav1.ConditionFalse, ObservedGeneration: generation,
		Reason: string(mcsv1beta1.ServiceExportReasonNoConflicts), Message: "All service exports agree.",
	}
	if len(conflicts) == 0 {
		return c
	}
	var why, text []string
	for _, conflict := range conflicts {
		why, text = append(why, string(conflict.Reason)), append(text, conflict.Message)
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, strings.Join(why, ","), strings.Join(text, " ")
	return c
}

// A finding is a disagreement before it is put into words.
type finding struct {
	reason     mcsv1beta1.ServiceExportConditionReason
	what       string   // in the singular or plural, as after "conflicting"
	using      string   // the value that holds
	merged     string   // what that is of all values; "" if it is the oldest export's
	disagree   int      // exports that have another
	leftOut    []string // clusters that are left out because of it, sorted
	unresolved bool
}

// conflict puts a finding into words: `Conflicting type. Using "ClusterSetIP" from oldest service export in "cluster-1".
// 2/5 clusters disagree.`
func (m *merging) conflict(f finding) {
	var b strings.Builder
	fmt.Fprintf(&b, "Conflicting %s. ", f.what)
	using := quote(f.using)
	switch {
	case m.o.OnConflict == Withhold && f.unresolved:
		fmt.Fprintf(&b, "Service withheld, not using %s", using)
	case f.merged != "":
		fmt.Fprintf(&b, "Using %s %s, by precedence", f.merged, using)
	default:
		fmt.Fprintf(&b, "Using %s", using)
	}
	fmt.Fprintf(&b, " from oldest service export in %q. %d/%d clusters disagree.", m.oldest.Cluster, f.disagree, len(m.all))
	if len(f.leftOut) > 0 {
		fmt.Fprintf(&b, " Left out: %s.", list(f.leftOut))
	}
	m.conflicts = append(m.conflicts, Conflict{Reason: f.reason, Message: b.String(), unresolved: f.unresolved})
}

// list shows at most ten names.
func list(names []string) string {
	const shown = 10
	var text []string
	for _, name := range names[:min(len(names), shown)] {
		text = append(text, fmt.Sprintf("%q", name))
	}
	if more := len(names) - shown; more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}

func (m *merging) orderConflicts() {
	slices.SortFunc(m.conflicts, func(a, b Conflict) int {
		return cmp.Compare(slices.Index(reasons, a.Reason), slices.Index(reasons, b.Reason))
	})
}

// A property is taken from the oldest export as it is. Two exports agree if its text is the same.
type property struct {
	reason mcsv1beta1.ServiceExportConditionReason
	what   string
	text   func(*v1alpha1.ExportedServiceSpec) string
}

var properties = []property{
	{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, "session affinity", affinity},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, "session affinity config", affinityConfig},
	{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, "internal traffic policy", internalTrafficPolicy},
	{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, "traffic distribution", trafficDistribution},
	{mcsv1beta1.ServiceExportReasonLabelsConflict, "labels", labels},
	{mcsv1beta1.ServiceExportReasonAnnotationsConflict, "annotations", annotations},
}

func (m *merging) compareProperties() {
	in := m.in()
	for _, p := range properties {
		want := p.text(&m.oldest.Spec)
		var disagree int
		for _, e := range in {
			if p.text(&e.Spec) != want {
				disagree++
			}
		}
		if disagree > 0 {
			using := strings.ReplaceAll(want, separator, ", ")
			m.conflict(finding{reason: p.reason, what: p.what, using: using, disagree: disagree, unresolved: true})
		}
	}
}

func affinity(s *v1alpha1.ExportedServiceSpec) string {
	return string(cmp.Or(s.SessionAffinity, corev1.ServiceAffinityNone))
}

func affinityConfig(s *v1alpha1.ExportedServiceSpec) string {
	timeout := s.SessionAffinityConfig
	switch {
	case timeout != nil && timeout.ClientIP != nil && timeout.ClientIP.TimeoutSeconds != nil:
		return fmt.Sprintf("%ds", *timeout.ClientIP.TimeoutSeconds)
	case s.SessionAffinity == corev1.ServiceAffinityClientIP:
		return fmt.Sprintf("%ds", corev1.DefaultClientIPServiceAffinitySeconds)
	}
	return "none"
}

func internalTrafficPolicy(s *v1alpha1.ExportedServiceSpec) string {
	if s.InternalTrafficPolicy == nil {
		return string(corev1.ServiceInternalTrafficPolicyCluster)
	}
	return string(*s.InternalTrafficPolicy)
}

func trafficDistribution(s *v1alpha1.ExportedServiceSpec) string {
	return cmp.Or(deref(s.TrafficDistribution), "none")
}

// separator stands between the entries of a map in a property's text. No key contains it.
const separator = "\x00"

func labels(s *v1alpha1.ExportedServiceSpec) string {
	text := make([]string, 0, len(s.Labels))
	for _, l := range s.Labels {
		text = append(text, l.Key+"="+l.Value)
	}
	slices.Sort(text)
	return strings.Join(text, separator)
}

func annotations(s *v1alpha1.ExportedServiceSpec) string {
	text := make([]string, 0, len(s.Annotations))
	for _, a := range s.Annotations {
		text = append(text, a.Key+"="+a.Value)
	}
	slices.Sort(text)
	return strings.Join(text, separator)
}
