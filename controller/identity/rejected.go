package identity

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/shorten"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// rejectedExports returns the exports of this cluster that are rejected and not on the broker
// (docs/spec/controller.md 3.1).
func rejectedExports(c *member.Cluster, own *broker.OwnObjects) []v1alpha1.RejectedExport {
	var exports []*mcsv1beta1.ServiceExport
	for _, svc := range c.Exports() {
		exp := c.Export(svc)
		if record, _ := own.Objects(svc); record == nil && exp != nil && exp.DeletionTimestamp == nil {
			exports = append(exports, exp)
		}
	}
	return rejectedAmong(exports)
}

// rejectedAmong returns the rejected ones of exports, which are sorted. Namespaces take turns, so that one cannot
// displace the others.
func rejectedAmong(exports []*mcsv1beta1.ServiceExport) []v1alpha1.RejectedExport {
	var byTurn [][]v1alpha1.RejectedExport
	turns := make(map[string]int) // by namespace
	for _, exp := range exports {
		c := rejection(exp)
		if c == nil || !apibroker.IsLabel(exp.Name) || !apibroker.IsLabel(exp.Namespace) {
			continue
		}
		turn := turns[exp.Namespace]
		if turns[exp.Namespace]++; turn == len(byTurn) {
			byTurn = append(byTurn, nil)
		}
		message, _ := reason.Split(strings.Map(printable, c.Message))
		byTurn[turn] = append(byTurn[turn], v1alpha1.RejectedExport{
			Name: apibroker.RecordName(exp.Namespace, exp.Name), Reason: c.Reason,
			Message: shorten.Text(strings.TrimSuffix(message, "."), apibroker.MaxRejectedMessage),
		})
	}
	rejected := slices.Concat(byTurn...)
	return rejected[:min(len(rejected), apibroker.MaxRejected)]
}

// rejection returns the condition that rejects an export, or nil.
func rejection(exp *mcsv1beta1.ServiceExport) *metav1.Condition {
	for _, of := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid,
		mcsv1beta1.ServiceExportConditionReady} {
		c := meta.FindStatusCondition(exp.Status.Conditions, string(of))
		if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != exp.Generation {
			continue
		}
		code := cmp.Or(reason.Of(reason.Valid, c.Reason), reason.Of(reason.ExportReady, c.Reason))
		if code != "" && code != reason.ExportPending {
			return c
		}
	}
	return nil
}

// printable replaces what the broker does not take in a message.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return ' '
	}
	return r
}
