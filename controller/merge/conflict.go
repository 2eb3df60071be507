package merge

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/reason"
)

// ReasonClusterSetIP is the reason of a difference in whether a clusterset IP is wanted. The MCS API has no reason for
// it.
const ReasonClusterSetIP mcsv1beta1.ServiceExportConditionReason = "ClusterSetIPConflict"

// ReasonClusterSelectors is the reason of a difference in the cluster selectors (KEP-5939).
const ReasonClusterSelectors mcsv1beta1.ServiceExportConditionReason = "ClusterSelectorsConflict"

// A Conflict is one property that the exports of a service disagree on.
type Conflict struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string // one sentence on the disagreement, in the words of KEP-1645, and the clusters that it leaves out

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
	ReasonClusterSelectors,
}

// Condition is the condition Conflict that every constituent export gets (docs/spec/controller.md 6.2). Its
// LastTransitionTime is for the writer, who knows the earlier condition.
func Condition(conflicts []Conflict, generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: string(mcsv1beta1.ServiceExportConditionConflict), Status: metav1.ConditionFalse,
		ObservedGeneration: generation,
		Reason:             string(mcsv1beta1.ServiceExportReasonNoConflicts), Message: "All service exports agree.",
	}
	if len(conflicts) == 0 {
		return c
	}
	var why, text []string
	for _, conflict := range conflicts {
		if reason := string(conflict.Reason); !slices.Contains(why, reason) {
			why = append(why, reason)
		}
		text = append(text, conflict.Message)
	}
	c.Status, c.Reason = metav1.ConditionTrue, strings.Join(why, ",")
	c.Message = reason.Say(reason.Conflict, c.Reason, strings.Join(text, " "))
	return c
}
