package exporter

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// An outcome is the result of an attempt to export. The zero value belongs to an export that was not attempted.
type outcome struct {
	waitsFor     string // why it was not attempted
	old          bool   // the broker has an older state of the export: the attempt was not made, or the export is behind
	full         bool   // it was not attempted, as this cluster exports too many
	undecided    bool   // a clusterset IP is being chosen
	noVIP        string // why there is no clusterset IP although one was asked for; the rest is exported
	err          error  // of the last write of the record or a slice
	aggregateErr error  // of the aggregate, which the export does not need
}

// outlivesRestart reports whether the Ready of an earlier instance, which may be nil, stays until the broker is known:
// a restart alone changes nothing.
func outlivesRestart(before, after *metav1.Condition) bool {
	return before != nil && after.Status == metav1.ConditionUnknown &&
		before.ObservedGeneration == after.ObservedGeneration &&
		before.Reason != string(mcsv1beta1.ServiceExportReasonPending)
}

// readiness returns status, reason and message of Ready. published: the broker has the record of r.
func readiness(r export.Result, o outcome, published bool) metav1.Condition {
	c := readinessOf(r, o, published)
	c.Message = reason.Say(reason.ExportReady, c.Reason, c.Message)
	return c
}

func readinessOf(r export.Result, o outcome, published bool) metav1.Condition {
	const pending, failed = string(mcsv1beta1.ServiceExportReasonPending), string(mcsv1beta1.ServiceExportReasonFailed)
	const retrying = "Waiting for the broker: the last attempt failed and is repeated."
	rejection := member.Rejection(o.err)
	switch {
	case r.Reason != mcsv1beta1.ServiceExportReasonValid:
		const invalid = "Nothing is exported until the export is valid."
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: pending, Message: invalid}
	case r.Failed != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed, Message: r.Failed}
	case o.full:
		tooMany := fmt.Sprintf("This cluster exports %d services, the most that one may: end others.", apibroker.MaxExports)
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed, Message: tooMany}
	case apiserver.IsUnknownField(o.err):
		const outdated = "The CRDs of the broker are older than this controller: update them with clusterset broker init."
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed, Message: outdated}
	case rejection != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed,
			Message: rejectionMessage(rejection, published)}
	case o.noVIP != "" && published:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed, Message: o.noVIP}
	case published && !o.old && r.Waits != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: pending, Message: r.Waits}
	case published && !o.old:
		exported := string(mcsv1beta1.ServiceExportReasonExported)
		if r.Undeclared > 0 {
			exported = wellknown.ReasonUndeclaredAddresses
		}
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: exported, Message: exportedMessage(r.Dropped)}
	}
	message := cmp.Or(o.waitsFor, retrying)
	if o.old {
		message += " Until then other clusters have an older state of this export."
	}
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: pending, Message: message}
}

// rejectionMessage returns the message about a rejection by the broker; over a quota, with effect and remedy.
// published: the broker has the record, so that all of it stays in use, also where the endpoints move to other slices
// (docs/spec/controller.md 3.7).
func rejectionMessage(rejection string, published bool) string {
	text := "The broker rejects the export: " + rejection
	if !strings.Contains(rejection, "exceeded quota") {
		return text
	}
	text = strings.TrimSuffix(text, ".") + "."
	if published {
		text += " What it has of this export stays in use."
	}
	return text +
		" End other exports of this cluster, or raise its quota with clusterset join --quota-exports=NUMBER --quota-slices=NUMBER."
}

// exportedMessage returns the message that the service is exported, with the parts that are not.
func exportedMessage(dropped []string) string {
	const maxShown = 10
	text := append([]string{"The broker has this export."}, dropped[:min(len(dropped), maxShown)]...)
	if more := len(dropped) - maxShown; more > 0 {
		text = append(text, fmt.Sprintf("%d more are not exported.", more))
	}
	return strings.Join(text, " ")
}

// idText lists ids with commas between them. A list that is too long ends with the number of the others.
func idText(ids []string) string {
	text := strings.Join(ids, ",")
	if len(text) <= apibroker.MaxExportedTo {
		return text
	}
	end := strings.LastIndexByte(text[:apibroker.MaxExportedTo], ',')
	return fmt.Sprintf("%s,+%d", text[:end], strings.Count(text[end:], ","))
}
