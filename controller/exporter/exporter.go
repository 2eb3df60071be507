// Package exporter publishes the services that this cluster exports on the broker, and reports in the conditions of
// each ServiceExport what became of it.
//
//	ServiceExport, Service, EndpointSlices, namespace policy, membership
//	        |
//	        v
//	       Own  ---- export.From (pure) ----> record and slices, or why there are none
//	        |                                      |
//	        v                                      v
//	  [Exporter.Reconcile] --> claims.review --> publisher --> broker: slices, then record, listed in the inventory (new)
//	        |                                       |               inventory, then slices and record             (withdrawn)
//	        |                                       +--> aggregates: the merged import, for people
//	        v
//	  conditions Valid and Ready of the ServiceExport
//
// [Exporter.Reconcile] is called by a queue for every service that changed, one call per service at a time. It reads
// memory only and writes the difference; without a difference it writes nothing, also after a restart.
package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// A Config sets the parts that an [Exporter] uses.
type Config struct {
	Member     *member.Cluster
	Broker     *broker.Broker
	Membership *identity.Membership
	Freezes    *safety.Freezes
	Conditions member.Conditions
	Metrics    *metrics.Metrics

	Log logging.Logger

	TTL              func() time.Duration // of the heartbeat; 0 with "lease 0"
	Policy           member.Policy
	Endpoints        string
	Merge            merge.Options             // VIPs and Reserved are not set
	Silent           func(cluster string) bool // whether a member is silent
	LegacyConditions bool                      // mirror the conditions under the names of the first KEP-1645
	Aggregates       bool                      // publish merged imports ("aggregate_view")

	RequeueNow func(types.NamespacedName)                // as Requeue, as a service that changed
	Requeue    func(types.NamespacedName)                // reconciles the export of a service again
	Retry      func(types.NamespacedName, time.Duration) // the same, after a time
	// RequeueAll reconciles these exports again. The returned function reports whether each was reconciled since, even
	// if it failed.
	RequeueAll func([]types.NamespacedName) (tried func() bool)
}

// An Exporter makes the broker have what this cluster exports (docs/spec/controller.md 2, docs/spec/controller.md 3,
// docs/spec/controller.md 6).
type Exporter struct {
	cfg       Config
	own       *Own
	claims    *claims
	inventory *inventory
	publisher publisher
	aggregate *aggregates
	waiting   *waiting // for a link, or the end of a freeze
	baselines baselines
	failed    *waiting // for writes to succeed again
	behind    *behind
	skipped   atomic.Uint64 // how often an export was not written, as something must happen before
}

// New returns an Exporter.
func New(cfg Config) *Exporter {
	v := &claims{
		broker: cfg.Broker, member: cfg.Member, silent: cfg.Silent, clusterID: cfg.Membership.Identity.ClusterID,
		options: cfg.Merge, metrics: cfg.Metrics, retry: cfg.Retry, now: time.Now,
		chosen: make(map[string]map[types.NamespacedName][]v1alpha1.Claim),
	}
	own := &Own{
		member: cfg.Member, broker: cfg.Broker, namespace: cfg.Membership.Namespace, policy: cfg.Policy,
		endpoints: cfg.Endpoints,
		wantsVIP:  v.wants,
	}
	v.export = func(svc types.NamespacedName) (*v1alpha1.ExportedService, bool) {
		r, _, readable := own.Export(svc, cfg.Membership.Status())
		return r.Record, readable
	}
	a := &aggregates{
		broker: cfg.Broker, imports: cfg.Broker.Aggregates, clusterID: cfg.Membership.Identity.ClusterID,
		options: cfg.Merge, enabled: cfg.Aggregates, requeue: cfg.Requeue,
		published: make(map[types.NamespacedName]*mcsv1beta1.ServiceImport),
	}
	e := &Exporter{cfg: cfg, own: own, claims: v, aggregate: a, waiting: &waiting{}, failed: &waiting{}, behind: &behind{}}
	e.inventory = &inventory{
		own: cfg.Broker.Own, wait: e.waitsFor, exported: e.exported, written: cfg.RequeueNow, behind: e.behind, claims: v,
		log: cfg.Log, wake: make(map[string]chan struct{}),
		vips:     make(map[string]map[types.NamespacedName]struct{}),
		complete: make(map[string]bool), wanted: make(map[string]map[types.NamespacedName]string),
	}
	for n := range apibroker.InventoryParts {
		e.inventory.wake[apibroker.InventoryPartName(n)] = make(chan struct{}, 1)
	}
	e.publisher = publisher{member: cfg.Member, own: cfg.Broker.Own, inventory: e.inventory, forget: a.set}
	return e
}

// exported returns the UIDs of the exports of one part of the inventory, and whether all could be read.
func (e *Exporter) exported(part string) (uids map[types.NamespacedName]string, complete bool) {
	status := e.cfg.Membership.Status()
	uids, complete = make(map[types.NamespacedName]string), status.Leaving || status.Known && status.ClusterID != "" &&
		e.cfg.Member.ExportsKnown()
	for _, svc := range e.cfg.Member.Exports() {
		if apibroker.InventoryPart(svc.Namespace, svc.Name) == part {
			r, _, readable := e.own.Export(svc, status)
			if complete = complete && readable; r.Record != nil {
				uids[svc] = r.Record.Spec.ExportUID
			}
		}
	}
	return uids, complete
}

// retryFull is the time until an export beyond the most is tried again: others may have ended.
const retryFull = time.Minute

// Run writes the inventory until ctx ends.
func (e *Exporter) Run(ctx context.Context) error {
	e.inventory.Run(ctx)
	return nil
}

// Own returns the exports of this cluster, which the importer needs, too.
func (e *Exporter) Own() *Own { return e.own }

// Review reconciles the exports that wait for the broker, once it takes writes. It marks exports as behind that failed
// for a TTL. Call it every second.
func (e *Exporter) Review() {
	e.claims.count()
	if e.waitsFor() == "" {
		e.requeue(e.waiting.take())
		// Without own heartbeats the broker may take no writes at all.
		now, ttl := time.Now(), cmp.Or(e.cfg.TTL(), apibroker.MaxHeartbeatTTL)
		if now.Sub(e.cfg.Broker.Heartbeats.Echo()) < ttl/2 {
			e.inventory.mark(e.behind.mark(now.Add(-ttl), e.cfg.Broker.Own.Stamp()))
		}
	}
}

// Resumed reports that the broker takes writes of this member again: what failed meanwhile need not wait for the end of
// its back-off. Exports that the broker rejects for reasons of their own fail once more.
func (e *Exporter) Resumed() {
	e.behind.restart(time.Now())
	e.requeue(e.failed.take())
}

// PublishAll starts a pass: it compares all exports with the broker and writes the difference. The returned function
// reports the end of the pass: the watches have delivered all writes, and the inventory marks the failed exports. With
// mark they are marked after the first attempt, otherwise after a TTL. One goroutine calls the function until it is
// true.
func (e *Exporter) PublishAll(mark bool) (done func() bool) {
	var tried func() bool // nil until they are queued
	var skipped uint64    // before that
	var ended time.Time   // when all were tried; zero before
	return func() bool {
		all := tried != nil && tried() // before it is seen whether one of them was skipped
		switch {
		case e.waitsFor() != "":
			tried = nil
		case tried == nil || e.skipped.Load() != skipped:
			skipped, ended = e.skipped.Load(), time.Time{}
			tried = e.cfg.RequeueAll(slices.Concat(e.cfg.Member.Exports(), e.cfg.Broker.Own.Services(), e.failed.take()))
		case ended.IsZero() && all:
			ended = time.Now()
		}
		if mark && !ended.IsZero() { // also what fails meanwhile
			e.inventory.mark(e.behind.mark(time.Now(), e.cfg.Broker.Own.Stamp()))
		}
		return tried != nil && !ended.IsZero() && e.behind.marked() && e.inventory.marked() &&
			e.cfg.Broker.Own.Delivered(ended)
	}
}

// Blind names a part of the inventory that the broker has rejected since a time, or returns "".
func (e *Exporter) Blind(since time.Time) string {
	if part := e.inventory.stuckSince(since); part != "" {
		return fmt.Sprintf("the broker rejects part %s of the inventory", part)
	}
	return ""
}

func (e *Exporter) requeue(services []types.NamespacedName) {
	for _, svc := range services {
		e.cfg.Requeue(svc)
	}
}

// Reconcile makes the broker have what this cluster exports under the name of the service, which may be nothing, and
// writes the conditions Valid and Ready of the ServiceExport.
func (e *Exporter) Reconcile(ctx context.Context, svc types.NamespacedName) error {
	return e.reconcile(ctx, svc, e.cfg.Membership.Status())
}

// reconcile takes the membership, which its caller has read once.
func (e *Exporter) reconcile(ctx context.Context, svc types.NamespacedName, status identity.Status) error {
	isMember := status.ClusterID != ""
	if !isMember && !status.Known {
		return nil
	}
	if e.cfg.Member.Unreadable(svc) {
		e.postpone(svc)
		return nil
	}
	if err := e.catchUp(ctx, svc); err != nil {
		e.behind.fail(svc, time.Now())
		return err
	}
	r, exp, readable := e.own.Export(svc, status)
	if !readable {
		e.postpone(svc)
		return nil
	}
	e.cfg.Metrics.SetUndeclared(svc, r.Undeclared)
	if exp == nil {
		e.cfg.Conditions.Forget(svc)
	}
	var o outcome
	if isMember || status.Leaving {
		o = e.export(ctx, svc, r)
	}
	if imp := e.cfg.Member.Import(svc); r.Record != nil && imp != nil && !member.IsOurs(imp) {
		r.Dropped = append(
			r.Dropped, "A ServiceImport of this name that is not ours exists: this cluster does not import the service.")
	}
	return errors.Join(o.err, o.aggregateErr, e.report(ctx, exp, r, o))
}

// postpone retries an unreadable export later. It counts as a failed write meanwhile.
func (e *Exporter) postpone(svc types.NamespacedName) {
	e.behind.fail(svc, time.Now())
	e.cfg.Retry(svc, member.UnreadableRetry)
}

// catchUp asks the API server for objects that an export needs and the caches lack. The watch of ServiceExports may be
// ahead of the others: without this, a user who creates everything at once would read for a moment that something is
// missing.
func (e *Exporter) catchUp(ctx context.Context, svc types.NamespacedName) error {
	m := e.cfg.Member
	if m.Export(svc) == nil {
		return nil
	}
	if m.Namespace(svc.Namespace) == nil {
		namespace := &corev1.Namespace{}
		switch err := m.Client().Get(ctx, namespace, "", svc.Namespace); {
		case err == nil:
			m.Wrote(namespace)
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	if m.Service(svc) == nil {
		service := &corev1.Service{}
		switch err := m.Client().Get(ctx, service, svc.Namespace, svc.Name); {
		case err == nil:
			m.Wrote(service)
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}

// export writes r to the broker.
func (e *Exporter) export(ctx context.Context, svc types.NamespacedName, r export.Result) (o outcome) {
	if o.waitsFor = e.waitsFor(); o.waitsFor != "" {
		e.skipped.Add(1)
		switch {
		case !e.cfg.Broker.Synced():
			ready := e.publisher.readyBefore(svc)
			o.old = e.baselines.changed(svc, r, ready != nil && ready.Status == metav1.ConditionTrue)
		case !e.publisher.upToDate(svc, r):
			e.waiting.add(svc) // no event follows when the link is back
			record, _ := e.cfg.Broker.Own.Objects(svc)
			o.old = record != nil
		}
		return o
	}
	e.baselines.forget(svc)
	if o.full = r.Record != nil && e.cfg.Broker.Own.ListedUID(svc) == "" &&
		e.inventory.size() >= apibroker.MaxExports; o.full {
		e.cfg.Retry(svc, retryFull)
		return o
	}
	vips, due := e.claims.review(svc, r.Record)
	if o.noVIP, o.undecided = vips.noVIP, len(vips.lacks) > 0; due {
		e.inventory.claim(svc)
		// publish has set the UID, for the same write
		defer e.inventory.wakeUp(apibroker.InventoryPart(svc.Namespace, svc.Name))
	}
	o.err = e.publisher.publish(ctx, svc, r)
	entry, _ := e.cfg.Broker.Own.Entry(svc)
	if o.err != nil {
		e.failed.add(svc)
		e.behind.fail(svc, time.Now())
		o.old = entry.Behind != 0
		return o
	}
	if e.behind.wrote(svc, entry.Behind != 0); entry.Behind != 0 {
		e.inventory.mark([]types.NamespacedName{svc})
	}
	if r.Record == nil && !e.inventory.lists(svc, "") {
		e.skipped.Add(1) // deleted after the write of the inventory
	}
	if o.aggregateErr = e.aggregate.publish(ctx, svc, r.Record); o.aggregateErr != nil {
		e.failed.add(svc)
	} else {
		e.failed.remove(svc)
	}
	return o
}

// waitsFor returns, in one sentence, the reason to write nothing to the broker yet, or "".
func (e *Exporter) waitsFor() string {
	switch why := e.cfg.Freezes.Suspended(safety.Export); {
	case e.cfg.Freezes.AnyInForce(safety.Credential):
		return "Waiting for the broker: it rejects the credential of this cluster."
	case why != "":
		return "Waiting for the broker: " + why + "."
	case e.cfg.Broker.MayExport() != nil || e.cfg.Broker.State().Membership != broker.Admitted:
		return "Waiting for the broker: it does not answer."
	case !e.cfg.Membership.IsOriginal():
		return "Waiting for the broker: it is not known yet whose heartbeat it has."
	}
	return ""
}

// report writes Valid and Ready.
func (e *Exporter) report(ctx context.Context, exp *mcsv1beta1.ServiceExport, r export.Result, o outcome) error {
	if exp == nil || exp.DeletionTimestamp != nil {
		return nil
	}
	var found bool
	if r.Record != nil {
		record, _ := e.cfg.Broker.Own.Objects(member.KeyOf(exp))
		found = sameRecord(r.Record, record)
	}
	valid := r.Valid(exp.Generation)
	ready := readiness(r, o, found)
	ready.Type, ready.ObservedGeneration = string(mcsv1beta1.ServiceExportConditionReady), exp.Generation
	before := meta.FindStatusCondition(exp.Status.Conditions, ready.Type)
	if o.undecided && o.err == nil && e.inventory.stuckSince(time.Now()) == "" && before != nil ||
		!e.cfg.Broker.Synced() && !o.old && outlivesRestart(before, &ready) {
		ready = *before
	}
	reached, known := e.reached(r.Record, found)
	if !known {
		reached = member.ReachedClusters(exp)
	}
	wait, err := e.cfg.Conditions.Set(ctx, exp, wellknown.ManagerExporter, e.conditions(exp, valid, ready), reached)
	if wait > 0 {
		e.cfg.Retry(member.KeyOf(exp), wait)
	}
	switch restricted := r.Record != nil && len(r.Record.Spec.ToClusters) > 0; {
	case restricted && !known:
		return err
	case !restricted:
		reached = nil
	}
	return errors.Join(err, e.reportReached(ctx, exp, reached))
}

// conditions returns Valid and Ready as they are written. Where this cluster or the namespace does not take part, the
// export may belong to another implementation of the MCS API: then it gets at most that one condition, while no one
// else writes any.
func (e *Exporter) conditions(exp *mcsv1beta1.ServiceExport, valid, ready metav1.Condition) []metav1.Condition {
	outside := valid.Reason == string(export.ReasonNotMember) || valid.Reason == string(export.ReasonNamespaceNotAllowed)
	switch {
	case outside && len(member.OtherWriters(exp)) > 0:
		return nil
	case outside:
		return []metav1.Condition{valid}
	case e.cfg.LegacyConditions:
		return member.WithLegacy(valid, ready)
	}
	return []metav1.Condition{valid, ready}
}

// reached returns the members that an export reaches, as far as they are reported (docs/spec/controller.md 3.8). record
// is the export record, or nil. found: the broker has the record; until then they are not known.
func (e *Exporter) reached(record *v1alpha1.ExportedService, found bool) (ids []string, known bool) {
	switch {
	case record == nil || len(record.Spec.ToClusters) == 0 && !e.cfg.Member.ExportClusters():
		return nil, true
	case !found || !e.cfg.Broker.Synced():
		return nil, false
	}
	return e.cfg.Broker.Reached(merge.Record{Cluster: e.cfg.Membership.Identity.ClusterID, Spec: record.Spec}), true
}

// reportReached writes the reached members to the annotation of an export for some clusters.
func (e *Exporter) reportReached(ctx context.Context, exp *mcsv1beta1.ServiceExport, ids []string) error {
	wait, err := e.cfg.Conditions.SetExportedTo(ctx, exp, idText(ids))
	if wait > 0 {
		e.cfg.Retry(member.KeyOf(exp), wait)
	}
	return err
}
