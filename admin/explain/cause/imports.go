package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// The checks in this file are about what this cluster has of the service: the ServiceImport and the EndpointSlices.

func checkImport(w *walk) {
	const name = "import"
	imp := w.in.Here.Import
	switch imp.State {
	case Present:
	case Absent:
		code, evidence := w.orWebhook(reason.ImportMissing, fmt.Sprintf("there is no ServiceImport %s/%s%s",
			w.target.Namespace, w.target.Service, exportersText(w)))
		w.wrong(name, code, "%s", evidence)
		return
	default:
		w.unknown(name, cmp.Or(imp.Why, "ServiceImports are not installed"))
		return
	}
	switch code, evidence := importFault(w); {
	case code != "":
		w.fault(w.hasAnswer(), name, code, "%s", evidence)
	case imp.Value.Object != nil:
		spec := imp.Value.Object.Spec
		w.ok(name, "%s, addresses [%s], clusters [%s]", spec.Type, strings.Join(spec.IPs, " "),
			idsOf(w.exporters, func(e *exporter) bool { return e.imported }))
	}
	for _, e := range w.exporters {
		if e.isExporting() && !e.imported && isOurs(imp.Value) {
			code, evidence := w.orWebhook(reason.ImportLacks, "status.clusters of the ServiceImport does not name "+e.id)
			w.clusterFault(w.sparesOthers(e), "import from "+e.id, code, "%s", evidence)
		}
	}
}

// orWebhook returns the code of a missing write of this cluster's controller, or that of the webhook which stops it.
// The controller names the imports that wait for one, up to a number, as of a minute ago.
func (w *walk) orWebhook(code reason.Code, evidence string) (reason.Code, string) {
	if !hasLeader(w.in) {
		return code, evidence
	}
	for _, f := range w.in.Here.Frozen {
		if f.Code != string(reason.ImportWebhook) {
			continue
		}
		_, imports, _ := strings.Cut(f.Detail, ": ")
		if slices.Contains(strings.Split(imports, ", "), w.target.Namespace+"/"+w.target.Service) {
			return reason.ImportWebhook, evidence + "; " + oneLine(f.Detail)
		}
		return code, evidence + "; perhaps by the same cause as others: " + oneLine(f.Detail)
	}
	return code, evidence
}

func exportersText(w *walk) string {
	if from := idsOf(w.exporters, (*exporter).isExporting); from != "" {
		return ", though the service is exported by " + from
	}
	return ""
}

func importFault(w *walk) (reason.Code, string) {
	imp := w.in.Here.Import.Value
	if imp.Object == nil {
		return reason.ImportInvalid, imp.Undecodable
	}
	if imp.Object.DeletionTimestamp != nil {
		return reason.ImportTerminating, fmt.Sprintf("finalizers [%s]", strings.Join(imp.Object.Finalizers, " "))
	}
	if !isOurs(imp) && w.in.Here.ClusterSet.State == Present && exportersText(w) != "" {
		return reason.ImportForeign, "it lacks the label " + broker.LabelManagedBy + "=" + broker.ManagedBy + exportersText(w)
	}
	for _, r := range w.evaluated.Rejections {
		if code := cache.CodeOf(cache.ServiceImport, r.Reason); code != "" {
			return code, r.Detail
		}
	}
	c := meta.FindStatusCondition(imp.Object.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
	if c == nil || c.Status != metav1.ConditionFalse {
		return "", ""
	}
	return codeOf(reason.ImportReady, c, reason.ImportPending), conditionText(c)
}

func checkEndpoints(w *walk) {
	const name = "endpoints"
	if w.in.Here.Import.State != Present {
		w.skip(name, "there is no import that could be read")
		return
	}
	if s := w.in.Here.Slices; s.State != Present {
		if w.evaluated.Service != nil && w.evaluated.Service.HasVIP() && w.target.Left == "" {
			w.skip(name, "the answer is the address of the import; EndpointSlices were not read: "+s.Why)
			return
		}
		w.unknown(name, s.Why)
		return
	}
	before, usable := len(w.steps), w.usable()
	w.addEndpointFaults()
	if imp := w.in.Here.Import.Value; w.target.Left == "" && isOurs(imp) &&
		desired.LacksLocal(imp.Object, w.in.Here.Slices.Value, w.in.Here.ClusterID.Value.Value) {
		w.fault(true, name, reason.EndpointsNotLocal,
			"internalTrafficPolicy of the ServiceImport is Local, and no endpoint of its EndpointSlices is on a node of this cluster")
	}
	switch {
	case usable > 0:
		w.ok(name, "%d ready, of %s", usable, idsOf(w.exporters, func(e *exporter) bool { return e.here.usable > 0 }))
	case len(w.steps) == before && !w.hasCause():
		w.fault(w.hasAnswer(), name, reason.EndpointsNone, "no EndpointSlice has the label %s=%s",
			mcsv1beta1.LabelServiceName, w.target.Service)
	}
}

// addEndpointFaults adds a step for each cluster with a fault, and one for all clusters without endpoints.
func (w *walk) addEndpointFaults() {
	var without []string
	spared := true
	for _, e := range w.exporters {
		switch code, evidence := endpointFault(w, e); code {
		case "":
		case reason.EndpointsNone:
			without, spared = append(without, idText(e.id)), spared && w.sparesOthers(e)
		default:
			w.clusterFault(w.sparesOthers(e), "endpoints of "+idText(e.id), code, "%s", evidence)
		}
	}
	if of := strings.Join(without, ", "); of != "" {
		w.clusterFault(spared, "endpoints of "+of, reason.EndpointsNone, "no endpoint in %s", of)
	}
}

func idText(id string) string {
	return cmp.Or(id, "no cluster")
}

// endpointFault returns why a cluster has no endpoint here, or why some are missing.
func endpointFault(w *walk, e *exporter) (reason.Code, string) {
	for _, r := range e.rejected {
		if code := cache.CodeOf(cache.EndpointSlice, r.Reason); code != "" {
			return code, r.Detail
		}
	}
	if e.id == "" && e.here.slices > 0 {
		return reason.SliceClusterID, "a slice lacks the label " + mcsv1beta1.LabelSourceCluster
	}
	if code, evidence := brokerFault(w, e); code != "" {
		return code, evidence
	}
	switch {
	case e.here.usable > 0 || !e.imported && e.here.slices == 0:
		return "", ""
	case e.here.all > 0:
		return unready(e, e.here.all)
	}
	return reason.EndpointsNone, ""
}

func unready(e *exporter, all int) (reason.Code, string) {
	return reason.EndpointsNotReady, fmt.Sprintf("0 of %d endpoints in %s are ready", all, idText(e.id))
}

// brokerFault compares the state of a cluster on the broker with its imports here.
func brokerFault(w *walk, e *exporter) (reason.Code, string) {
	switch {
	case w.in.Broker.Slices.State != Present || !e.isExporting() || e.own || e.expired:
		return "", ""
	case len(e.there.undeclared) > 0:
		return reason.EndpointsUndeclared, fmt.Sprintf("%s in none of the networks [%s] of %s",
			shortList(e.there.undeclared),
			strings.Join(e.member.Spec.CIDRs(), " "), e.id)
	case len(e.there.overlap) > 0:
		return reason.EndpointsOverlap, fmt.Sprintf("%s in a network of this cluster", shortList(e.there.overlap))
	case e.there.all == 0:
		return reason.EndpointsNone, ""
	case e.there.ready == 0:
		return unready(e, e.there.all)
	case e.here.usable == 0:
		return w.orWebhook(reason.EndpointsBehind,
			fmt.Sprintf("%d ready endpoints on the broker, none here", e.there.ready))
	}
	return "", ""
}
