package cause

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// The checks in this file are about the exports of the service: that of this cluster, the records of all, and whether
// they agree.

func checkOwnExport(w *walk, name string) {
	switch exp := w.in.Here.Export; exp.State {
	case Present:
		if code, partial, evidence := ownExport(w, exp.Value); code != "" {
			w.fault(partial, name, code, "%s", evidence)
			return
		}
		w.ok(name, "the broker has it")
	case Absent, NotInstalled:
		w.skip(name, "this cluster does not export it")
	default:
		w.unknown(name, exp.Why)
	}
}

// ownExport returns the fault of the ServiceExport of this cluster, and whether others export the service nevertheless.
func ownExport(w *walk, exp *mcsv1beta1.ServiceExport) (_ reason.Code, partial bool, evidence string) {
	partial = w.hasAnswer() ||
		slices.ContainsFunc(w.exporters, func(e *exporter) bool { return !e.own && e.isExporting() })
	valid, is := CurrentCondition(exp, mcsv1beta1.ServiceExportConditionValid),
		CurrentCondition(exp, mcsv1beta1.ServiceExportConditionReady)
	switch {
	case valid == nil, valid.Status == metav1.ConditionTrue && is == nil:
		return reason.ExportNotReconciled, partial, "it has no conditions Valid and Ready for its generation"
	case valid.Status != metav1.ConditionTrue:
		return codeOf(reason.Valid, valid, reason.ExportPending), partial, conditionText(valid)
	case is.Status != metav1.ConditionTrue:
		return codeOf(reason.ExportReady, is, reason.ExportPending), partial, conditionText(is)
	case w.in.Broker.Records.State == Present && !slices.ContainsFunc(w.exporters,
		func(e *exporter) bool { return e.own && e.record != nil }):
		return reason.RecordMissing, partial, conditionText(is)
	case codeOf(reason.ExportReady, is, "") != "":
		return codeOf(reason.ExportReady, is, ""), true, conditionText(is)
	case codeOf(reason.Valid, valid, "") != "":
		return codeOf(reason.Valid, valid, ""), true, conditionText(valid)
	}
	return "", false, ""
}

// codeOf returns the first code at the end of the condition's message, or the code of its reason. Another
// implementation of the MCS API may have neither: then it returns otherwise.
func codeOf(from reason.Source, c *metav1.Condition, otherwise reason.Code) reason.Code {
	_, codes := reason.Split(c.Message)
	first, _, _ := strings.Cut(strings.Trim(codes, " []"), ",")
	return cmp.Or(reason.Code(first), reason.Of(from, c.Reason), otherwise)
}

// CurrentCondition returns a condition of a ServiceExport if it is about the current generation, else nil.
func CurrentCondition(exp *mcsv1beta1.ServiceExport, of mcsv1beta1.ServiceExportConditionType) *metav1.Condition {
	c := meta.FindStatusCondition(exp.Status.Conditions, string(of))
	if c == nil || c.ObservedGeneration != 0 && c.ObservedGeneration < exp.Generation {
		return nil
	}
	return c
}

func checkRecords(w *walk, name string) {
	if w.in.Broker.Records.State != Present {
		w.unknown(name, cmp.Or(w.in.Broker.Records.Why, "the records on the broker were not read"))
		return
	}
	some, before := idsOf(w.exporters, (*exporter).isExporting), len(w.steps)
	for _, e := range w.exporters {
		switch {
		case e.record == nil && e.rejectedExport != nil && (some == "" || w.clusterAsked() == e.id):
			r := e.rejectedExport
			code := cmp.Or(reason.Of(reason.Valid, r.Reason), reason.Of(reason.ExportReady, r.Reason), reason.NotExported)
			w.fault(w.hasAnswer(), "export of "+e.id, code,
				"cluster %q has an export of %s/%s, which is rejected: %s: %s", e.id, w.target.Namespace, w.target.Service,
				r.Reason, r.Message)
		case e.record == nil:
		case e.invalid != "":
			w.fault(some != "", "export of "+e.id, reason.RecordInvalid, "ExportedService %s/%s: %s", e.record.Namespace,
				e.record.Name, e.invalid)
		case e.elsewhere && some != "" && w.clusterAsked() != e.id:
			w.skip("export of "+e.id, "it is for other clusters")
		case e.elsewhere:
			w.wrong("export of "+e.id, reason.NotExportedHere, "ExportedService %s/%s selects other clusters, by toClusters",
				e.record.Namespace, e.record.Name)
		case !e.admitted:
			w.fault(some != "", "export of "+e.id, reason.SourceNotAllowed,
				"namespace %s does not name it in its annotation", w.target.Namespace)
		}
	}
	for _, text := range w.in.Broker.Undecodable {
		w.fault(some != "", name, reason.RecordInvalid, "%s", text)
	}
	switch {
	case some != "":
		w.ok(name, "exported by %s", some)
	case len(w.steps) == before && w.in.Here.Export.State != Present:
		w.fault(w.hasAnswer(), name, reason.NotExported, "the broker has no record of %s/%s", w.target.Namespace,
			w.target.Service)
	}
}

// checkConflicts merges the records as this cluster does.
func checkConflicts(w *walk) {
	const name = "agreement"
	var records []merge.Record
	for _, e := range w.exporters {
		if e.record == nil || e.invalid != "" || e.elsewhere {
			continue
		}
		r := merge.Record{Cluster: e.id, Created: e.record.CreationTimestamp, Spec: e.record.Spec}
		for i := range w.in.Broker.Namespaces.Value {
			if ns := &w.in.Broker.Namespaces.Value[i]; ns.Name == e.record.Namespace {
				r.Admitted = ns.CreationTimestamp
			}
		}
		records = append(records, r)
	}
	if len(records) < 2 {
		w.skip(name, "there are not two exports to compare")
		return
	}
	merged := merge.Merge(types.NamespacedName{Namespace: w.target.Namespace, Name: w.target.Service}, records,
		mergeOptions(w.in))
	c := merge.Condition(merged.Conflicts, 0)
	switch {
	case c.Status != metav1.ConditionTrue:
		w.ok(name, "the %d exports agree", len(records))
	case merged.Withheld():
		w.fault(w.hasAnswer(), name, reason.ConflictWithheld, "%s: %s", c.Reason, messageOf(&c))
	default:
		w.fault(true, name, reason.All(reason.Conflict, c.Reason)[0], "%s: %s", c.Reason, messageOf(&c))
	}
}

// mergeOptions returns the options of this cluster that its Member names, with the clusterset IPs that its import has.
func mergeOptions(in *Input) merge.Options {
	m := ownMember(in)
	if m == nil {
		return merge.Options{}
	}
	vip, _, _ := strings.Cut(m.Status.VIP, " ")
	o := merge.Options{Mode: merge.Mode(m.Status.Merge), VIP: merge.VIPMode(vip)}
	o.VIPs.Has = merge.AddressesOf(in.Here.Import.Value.Object, merge.VIPNetworks{})
	return o
}

func checkHeartbeats(w *walk, name string) {
	if w.in.Broker.Heartbeats.State != Present {
		w.unknown(name, cmp.Or(w.in.Broker.Heartbeats.Why, "the heartbeats on the broker were not read"))
		return
	}
	fine := 0
	for _, e := range w.exporters {
		switch {
		case e.own || !e.isExporting():
		case !e.beats:
			w.clusterFault(w.sparesOthers(e), "heartbeat of "+e.id, reason.ExporterNeverRan,
				"there is no heartbeat in namespace %s", e.record.Namespace)
		case e.expired:
			w.clusterFault(w.sparesOthers(e), "heartbeat of "+e.id, reason.ExporterExpired, "it was last renewed %s",
				agoText(e.heartbeat))
		default:
			fine++
		}
	}
	if fine > 0 {
		w.ok(name, "%d other exporting clusters renew theirs", fine)
	}
}

// DecidingCondition returns the condition Valid of an export or, unless that is False or Unknown, Ready; nil if the
// controller has not set it for the current generation.
func DecidingCondition(e *mcsv1beta1.ServiceExport) *metav1.Condition {
	c := CurrentCondition(e, mcsv1beta1.ServiceExportConditionValid)
	if c == nil || c.Status == metav1.ConditionTrue {
		c = CurrentCondition(e, mcsv1beta1.ServiceExportConditionReady)
	}
	return c
}

// ExportReason returns reason and message of [DecidingCondition], NotReconciled without one.
func ExportReason(e *mcsv1beta1.ServiceExport) (reason, message string) {
	if c := DecidingCondition(e); c != nil {
		return c.Reason, c.Message
	}
	return "NotReconciled", "no controller has processed it yet"
}
