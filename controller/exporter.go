package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// lookAgain is when an export of which the broker lacks something is looked at again while the broker is away.
const lookAgain = 10 * time.Second

// reconcileExport makes the broker have what this cluster exports under the name of the service, which may be nothing, and
// says so in the conditions of the ServiceExport (sections 2, 3 and 6).
func (s *session) reconcileExport(ctx context.Context, svc types.NamespacedName) error {
	member, leaving := s.member.ClusterID() != "", s.leaving()
	if !member && !s.member.Settled() {
		return nil
	}
	if err := s.catchUp(ctx, svc); err != nil {
		return err
	}
	s.vips.note(svc)
	r, exp := s.exported(svc)
	var o outcome
	if member || leaving {
		o = s.export(ctx, svc, r)
	}
	return errors.Join(o.err, o.view, s.report(ctx, exp, r, o))
}

// catchUp asks the API server for what an export needs and the caches lack. The watch of ServiceExports may be ahead of the
// others: who creates everything at once should not be told that something is missing.
func (s *session) catchUp(ctx context.Context, svc types.NamespacedName) error {
	if s.local.Export(svc) == nil {
		return nil
	}
	if s.local.Namespace(svc.Namespace) == nil {
		namespace := &corev1.Namespace{}
		switch err := s.local.client.Get(ctx, namespace, "", svc.Namespace); {
		case err == nil:
			s.local.written(namespace)
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	if s.local.Service(svc) == nil {
		service := &corev1.Service{}
		switch err := s.local.client.Get(ctx, service, svc.Namespace, svc.Name); {
		case err == nil:
			s.local.written(service)
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}

// export writes to the broker what the result says.
func (s *session) export(ctx context.Context, svc types.NamespacedName, r export.Result) (o outcome) {
	if o.awaited = s.awaited(); o.awaited != "" {
		if s.broker.Synced() && !s.published(svc, r) {
			s.exports.AddAfter(svc, lookAgain) // nobody tells that a link is back
		}
		return o
	}
	o.failed = s.vips.allocate(svc, r.Record)
	if o.err = s.publish(ctx, svc, r); o.err == nil {
		s.vips.settle(svc) // nothing is released on an error path
		o.view = s.views.publish(ctx, svc)
	}
	return o
}

// leaving reports that the cluster is being taken out of the clusterset: everything is withdrawn.
func (s *session) leaving() bool { return s.evidence().leaving }

// exported returns what this cluster exports under the name of the service, and the ServiceExport, nil if there is none. It
// only reads.
func (s *session) exported(svc types.NamespacedName) (export.Result, *mcsv1beta1.ServiceExport) {
	exp := s.local.Export(svc)
	if exp == nil {
		return export.Result{}, nil
	}
	o := export.Options{Namespace: s.namespacePolicy(svc.Namespace), Endpoints: s.cfg.Endpoints}
	if id := s.member.ClusterID(); id != "" && !s.leaving() {
		o.ClusterID, o.BrokerNamespace, o.VIP = id, s.member.Namespace(), s.vips.of(svc)
	}
	return export.From(exp, s.local.Service(svc), s.local.SourceSlices(svc), o), exp
}

// recordsWith returns the export records of the service, with own, if there is one, for this cluster: straight from its
// API server. From the broker it has only the times by which it takes precedence (section 5).
func (s *session) recordsWith(svc types.NamespacedName, own *v1alpha1.ExportedService) []merge.Record {
	ours := merge.Record{Cluster: s.member.id}
	records := slices.DeleteFunc(s.broker.Records(svc), func(r merge.Record) bool {
		if r.Cluster == ours.Cluster {
			ours.Admitted, ours.Created = r.Admitted, r.Created
		}
		return r.Cluster == ours.Cluster
	})
	if own != nil {
		ours.Spec = own.Spec
		records = append(records, ours)
	}
	return records
}

// awaited says, in one sentence, what has to be before anything is written to the broker; "" if it can be.
func (s *session) awaited() string {
	state := s.broker.State()
	switch {
	case s.holds.any(holdBrokerIdentity, holdBrokerEmpty):
		return "Waiting for the broker: " + s.holds.detail(holdBrokerIdentity, holdBrokerEmpty) + "."
	case s.holds.any(holdCredential):
		return "Waiting for the broker: it refuses the credential of this cluster."
	case !state.Link || !s.broker.Synced() || state.Standing != broker.Admitted:
		return "Waiting for the broker: it does not answer."
	}
	return ""
}

// publish writes to the broker what is not there as it should be. A new record is made after its slices, and one is taken away
// before them: slices without a record count for nothing, and so others see each export come and go as one change, and never
// a service that nobody serves.
func (s *session) publish(ctx context.Context, svc types.NamespacedName, r export.Result) error {
	record, existing := s.broker.Own(svc)
	switch {
	case r.Record == nil && record != nil:
		if err := s.broker.DeleteRecord(ctx, record); err != nil {
			return err
		}
	case r.Record != nil && record == nil && !s.refusedBefore(svc):
		return s.publishNew(ctx, svc, r, existing)
	case r.Record != nil:
		if err := s.publishRecord(ctx, svc, r, record); err != nil {
			return err
		}
	}
	return s.publishSlices(ctx, r.Slices, existing)
}

// publishNew writes the slices and then the record. What the broker refuses for good does not hold the rest back, but where
// it is the record, the slices go again: they would count against the quota.
func (s *session) publishNew(
	ctx context.Context, svc types.NamespacedName, r export.Result, existing []*discoveryv1.EndpointSlice,
) error {
	sliceErr := s.publishSlices(ctx, r.Slices, existing)
	if sliceErr != nil && refusal(sliceErr) == "" {
		return sliceErr
	}
	recordErr := s.publishRecord(ctx, svc, r, nil)
	if refusal(recordErr) != "" {
		_, written := s.broker.Own(svc)
		recordErr = errors.Join(recordErr, s.publishSlices(ctx, nil, written))
	}
	return errors.Join(recordErr, sliceErr)
}

// refusedBefore reports that the condition of an export tells of a refusal: its record is tried first, lest slices are
// written in vain at each attempt.
func (s *session) refusedBefore(svc types.NamespacedName) bool {
	exp := s.local.Export(svc)
	if exp == nil {
		return false
	}
	ready := meta.FindStatusCondition(exp.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
	return ready != nil && ready.Reason == string(mcsv1beta1.ServiceExportReasonFailed)
}

func (s *session) publishRecord(
	ctx context.Context, svc types.NamespacedName, r export.Result, record *v1alpha1.ExportedService,
) error {
	if sameRecord(r.Record, record) {
		return nil
	}
	if record == nil { // perhaps the broker was restored
		s.views.note(svc, nil)
	}
	return s.broker.ApplyRecord(ctx, r.Record)
}

// published reports whether publish has nothing to write.
func (s *session) published(svc types.NamespacedName, r export.Result) bool {
	record, existing := s.broker.Own(svc)
	if r.Record == nil {
		return record == nil && len(existing) == 0
	}
	return sameRecord(r.Record, record) && slices.EqualFunc(r.Slices, existing, func(w, e *discoveryv1.EndpointSlice) bool {
		return w.Name == e.Name && w.AddressType == e.AddressType && sameExportedSlice(w, e)
	})
}

// publishSlices writes what is new before it deletes what is old: a service whose endpoints move from one slice to another
// has some all the time. A slice that the broker refuses costs itself alone.
func (s *session) publishSlices(ctx context.Context, want, existing []*discoveryv1.EndpointSlice) error {
	stale := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, e := range existing {
		stale[e.Name] = e
	}
	var refused []error
	for _, w := range want {
		e := stale[w.Name]
		delete(stale, w.Name)
		switch err := s.publishSlice(ctx, w, e); {
		case refusal(err) != "":
			refused = append(refused, err)
		case err != nil:
			return err
		}
	}
	for _, e := range existing {
		if stale[e.Name] == nil {
			continue
		}
		if err := s.broker.DeleteSlice(ctx, e); err != nil {
			return err
		}
	}
	return errors.Join(refused...)
}

// publishSlice writes one slice; existing is nil if there is none of its name.
func (s *session) publishSlice(ctx context.Context, w, existing *discoveryv1.EndpointSlice) error {
	if existing != nil && existing.AddressType != w.AddressType { // which cannot change
		if err := s.broker.DeleteSlice(ctx, existing); err != nil {
			return err
		}
		existing = nil
	}
	if existing != nil && sameExportedSlice(w, existing) {
		return nil
	}
	return s.broker.ApplySlice(ctx, w)
}

// sameRecord reports whether the broker has the record.
func sameRecord(want, got *v1alpha1.ExportedService) bool {
	return got != nil && hasLabels(want.Labels, got.Labels) && equality.Semantic.DeepEqual(want.Spec, got.Spec)
}

// sameExportedSlice reports whether the broker has the slice. The time of the change alone is no change: a pod that moved to
// another node is nobody else's business.
func sameExportedSlice(want, got *discoveryv1.EndpointSlice) bool {
	return hasLabels(want.Labels, got.Labels) && equality.Semantic.DeepEqual(want.Endpoints, got.Endpoints) &&
		equality.Semantic.DeepEqual(want.Ports, got.Ports)
}

func hasLabels(want, got map[string]string) bool {
	for key, value := range want {
		if has, ok := got[key]; has != value || !ok {
			return false
		}
	}
	return true
}

// An outcome is what became of an attempt to export. The zero value is one that there was no reason for.
type outcome struct {
	awaited string // why nothing was tried
	failed  string // what was asked for and cannot be, though the rest is exported
	err     error  // of the last write of the record or a slice
	view    error  // of the view, which the export does not need
}

// report writes Valid and Ready.
func (s *session) report(ctx context.Context, exp *mcsv1beta1.ServiceExport, r export.Result, o outcome) error {
	if exp == nil || exp.DeletionTimestamp != nil {
		return nil
	}
	var has bool
	if r.Record != nil {
		record, _ := s.broker.Own(keyOf(exp))
		has = sameRecord(r.Record, record)
	}
	valid := r.Valid(exp.Generation)
	ready := readiness(r, o, has)
	ready.Type, ready.ObservedGeneration = string(mcsv1beta1.ServiceExportConditionReady), exp.Generation
	if was := meta.FindStatusCondition(exp.Status.Conditions, ready.Type); !s.broker.Synced() && outlivesRestart(was, &ready) {
		ready = *was
	}
	want := []metav1.Condition{valid, ready}
	if s.cfg.LegacyConditions {
		want = withLegacy(valid, ready)
	}
	return s.setConditions(ctx, exp, exportManager, want)
}

// outlivesRestart reports whether an earlier instance's Ready stands while the broker is not known yet: a restart alone is no
// news.
func outlivesRestart(was, is *metav1.Condition) bool {
	return was != nil && is.Status == metav1.ConditionUnknown && was.ObservedGeneration == is.ObservedGeneration &&
		was.Reason != string(mcsv1beta1.ServiceExportReasonPending)
}

// readiness returns status, reason and message of Ready. has says whether the broker has the record of r.
func readiness(r export.Result, o outcome, has bool) metav1.Condition {
	const pending, failed = string(mcsv1beta1.ServiceExportReasonPending), string(mcsv1beta1.ServiceExportReasonFailed)
	const again = "Waiting for the broker: the last attempt failed and is repeated."
	no := refusal(o.err)
	switch {
	case r.Reason != mcsv1beta1.ServiceExportReasonValid:
		const invalid = "Nothing is exported until the export is valid."
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: pending, Message: invalid}
	case r.Failed != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed, Message: r.Failed}
	case no != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed, Message: "The broker refuses the export: " + no}
	case o.failed != "" && has:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: failed, Message: o.failed}
	case has:
		exported := string(mcsv1beta1.ServiceExportReasonExported)
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: exported, Message: exportedMessage(r.Dropped)}
	}
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: pending, Message: cmp.Or(o.awaited, again)}
}

// exportedMessage says that the service is exported, and what of it is not.
func exportedMessage(dropped []string) string {
	const shown = 10
	text := append([]string{"The broker has this export."}, dropped[:min(len(dropped), shown)]...)
	if more := len(dropped) - shown; more > 0 {
		text = append(text, fmt.Sprintf("%d more are not exported.", more))
	}
	return strings.Join(text, " ")
}

// refusal returns why the broker will not take something as it is, "" if the error may pass by itself. A text that changed
// with each attempt would be a write with each.
func refusal(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return ""
	}
	// An admission policy of which the API server has not read the parameters yet, some seconds after it started.
	if strings.Contains(status.Status().Message, "failed to configure ") {
		return ""
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return cutText(status.Status().Message, maxEventNote)
	}
	return ""
}
