// Package importer makes this cluster have one ServiceImport, its derived Service and its EndpointSlices for every
// service that a member of the clusterset exports.
//
// [Importer.Reconcile] is called by a queue for every service that changed, one call per service at a time. The path of
// one import:
//
//	Reconcile       is this a member, is everything read, is something frozen?
//	    |
//	    |  frozen or unknown: refreshOwn keeps this cluster's own endpoints current, all else stays as it is
//	    v
//	reader.read     one reading of what the broker and the own API server have: inputs
//	    |
//	    v
//	sharesOf        the part of each cluster, as its owner wants it --> protocol.Service (pure)
//	    |
//	    v
//	planner.plan    records and slices that count, own ones from the own API server --> merge.Merge (pure)
//	    |
//	    |  the broker lost a record that its owner lists, or has an old one, or slices lack the ports of their record: refreshOthers
//	    |  keeps the endpoints of all clusters current
//	    v
//	writer.write    compare --> desired.ObjectsOf, desired.Diff (pure) --> write.Import.Apply, until nothing differs
//	    |
//	    v
//	conditions      Conflict of this cluster's own ServiceExport
//
// It reads memory only and writes the difference; without a difference it writes nothing, also after a restart.
package importer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/exporter"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/importer/write"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// A Config sets the parts that an [Importer] uses.
type Config struct {
	Member     *member.Cluster
	Broker     *broker.Broker
	Membership *identity.Membership
	Own        *exporter.Own // what this cluster exports itself
	Freezes    *safety.Freezes
	Expiry     *safety.Expiry
	Rejections *Rejections
	Conditions member.Conditions
	Metrics    *metrics.Metrics
	Log        logging.Logger

	Policy member.Policy
	Merge  merge.Options                             // VIPs and Reserved are not set
	Retry  func(types.NamespacedName, time.Duration) // reconciles the import of a service again, after a time

	// of services about which neither Namespace nor exports say which clusters traffic goes to
	Selectors selection.Selectors
	// ExportedAffinity is whether traffic follows the clusters and zones that exports prefer.
	ExportedAffinity bool
	FailbackDelay    time.Duration // how long preferred clusters must have been back before traffic returns to them

	ImportLacks    []string // the fields of ServiceImport that the API server does not have
	ImportObserves bool     // it has status.observedGeneration
}

// An Importer makes this cluster have the import of each service (docs/spec/controller.md 4, docs/spec/controller.md 5,
// docs/spec/controller.md 6, docs/spec/controller.md 8).
type Importer struct {
	cfg       Config
	reader    reader
	planner   planner
	creates   *namespaces
	writers   writerConfig
	conflicts byService[[]merge.Conflict]
	unserved  unserved
	kept      byService[[]string] // the clusters with objects that stay imported although the broker lacks them
	webhooks  byService[string]   // the admission webhook that could not be called for the last write
}

// New returns an Importer.
func New(cfg Config) *Importer {
	id := cfg.Membership.Identity.ClusterID
	i := &Importer{
		cfg:    cfg,
		reader: reader{member: cfg.Member, broker: cfg.Broker, expiry: cfg.Expiry, clusterID: id, options: cfg.Merge},
		planner: planner{
			clusterID: id, policy: cfg.Policy, onExpiry: cfg.Expiry.OnExpiry,
			selectors: cfg.Selectors, exportedAffinity: cfg.ExportedAffinity,
			limits: newLimits(cfg.Member, id, func() int { return len(cfg.Broker.Members.All()) - 1 }, cfg.Broker.RecordsOf),
		},
		writers: writerConfig{
			writes: write.New(write.Config{
				Member: cfg.Member, Events: cfg.Conditions.Events, Policy: cfg.Policy, Metrics: cfg.Metrics, Log: cfg.Log,
				Retry: cfg.Retry, Observes: cfg.ImportObserves,
			}),
			rejections: cfg.Rejections, foreign: &logging.OnChangeOf[types.NamespacedName, string]{}, log: cfg.Log,
			lacks: cfg.ImportLacks, choices: &choices{hold: cfg.FailbackDelay}, retry: cfg.Retry,
		},
	}
	i.creates = &namespaces{
		member: cfg.Member, policy: cfg.Policy, limits: i.planner.limits, rejections: cfg.Rejections,
		events: cfg.Conditions.Events, log: cfg.Log,
		retry: cfg.Retry, turn: make(chan struct{}, 1),
	}
	return i
}

// Conflicts returns the services with conflicting exports, and the conflicts.
func (i *Importer) Conflicts() map[types.NamespacedName][]merge.Conflict { return i.conflicts.all() }

// Selections returns which clusters the traffic of services goes to that prefer some, sorted.
func (i *Importer) Selections() []Selection { return i.writers.choices.selections() }

// Reconcile makes this cluster have what the export records of a service come to, which may be nothing, and writes the
// conflicts between them to the condition Conflict of our own ServiceExport.
//
// A new service of n slices takes 2+n writes: import, slices, status; with a derived Service, whose addresses the
// import then gets, 4+n. A change of endpoints takes one write for each slice with them, a change of ports one for the
// import and one for the derived Service.
func (i *Importer) Reconcile(ctx context.Context, svc types.NamespacedName) error {
	err := i.reconcile(ctx, svc, i.cfg.Membership.Status())
	name := member.Webhook(err)
	i.webhooks.set(svc, name, name != "")
	return err
}

// reconcile is [Importer.Reconcile] with a given membership state.
func (i *Importer) reconcile(ctx context.Context, svc types.NamespacedName, status identity.Status) error {
	switch {
	case member.IsBrokerNamespace(i.cfg.Member.Namespace(svc.Namespace)):
		return nil // its objects have our label, too, and belong to the members
	case i.cfg.Member.Unreadable(svc):
		i.cfg.Retry(svc, member.UnreadableRetry)
		return nil
	case status.ClusterID == "" && !status.Known:
		return nil
	case status.ClusterID == "":
		return i.withdraw(ctx, svc)
	}
	result, exp, readable := i.cfg.Own.Export(svc, status)
	own := ownExport{result, exp, status.ClusterID}
	switch {
	case !readable:
		i.cfg.Retry(svc, member.UnreadableRetry)
		return nil
	case !status.Known || !i.synced() || i.cfg.Freezes.Suspended(safety.Import) != "":
		return i.refreshOwn(ctx, svc, own)
	}
	return i.follow(ctx, i.reader.read(svc, own))
}

// follow applies the import plan. The spec of an import stays while a record is unknown, or slices lack the ports of
// their record.
func (i *Importer) follow(ctx context.Context, in inputs) error {
	svc := in.service
	before := i.planner.limits.contributions(svc)
	in.follow(i.planner.withoutEmpty(in, sharesOf(in)))
	p := i.planner.plan(in)
	p.shares = in.shares
	if p.again > 0 {
		i.cfg.Retry(svc, p.again)
	}
	i.report(svc, p.rejected)
	lagging := lackPorts(in, p)
	if wait := i.unserved.wait(svc, len(lagging) > 0, time.Now()); wait > 0 {
		i.cfg.Retry(svc, wait)
	} else {
		lagging = nil
	}
	i.retryBehind(in)
	unknown, freezes := unknownIn(in.shares)
	i.kept.set(svc, unknown, len(unknown) > 0)
	if freezes || len(lagging) > 0 {
		i.planner.limits.keep(svc, before)
		return i.refreshOthers(ctx, in, p, lagging)
	}
	i.cfg.Metrics.SetService(svc, reasonsOf(p.conflicts), len(p.exporters))
	i.conflicts.set(svc, p.conflicts, len(p.conflicts) > 0)
	return errors.Join(newWriter(i.writers, svc).write(ctx, p), i.reportConflicts(ctx, in.own, p.conflicts),
		i.creates.ensure(ctx, svc, p.exporters))
}

// retryBehind reconciles the service again when a last resort of an export that is behind ends. No event tells.
func (i *Importer) retryBehind(in inputs) {
	for cluster := range in.shares {
		if i.planner.behind(in, cluster) == liveness.LastResort {
			i.cfg.Retry(in.service, time.UnixMicro(int64(in.entries[cluster].Behind)).Add(i.planner.onExpiry.Limit).Sub(in.now))
		}
	}
}

// vipRetry is the time until a service with a rejected clusterset IP is reconciled again: another service may have
// released the address.
const vipRetry = time.Minute

// report reports the rejections of a plan. It reconciles the service again when other services free room below a limit.
func (i *Importer) report(svc types.NamespacedName, rejected []merge.Rejection) {
	for _, r := range rejected {
		if isNew := i.cfg.Rejections.report(r); isNew && r.Cluster == merge.Local {
			i.ignored(svc.Namespace, r.Detail)
		}
	}
	for _, r := range rejected {
		switch r.Reason {
		case merge.BeyondLimit:
			i.cfg.Retry(svc, limitRetry)
		case merge.AlienVIP:
			i.cfg.Retry(svc, vipRetry)
		}
	}
}

// ignored writes an Event about an annotation of a Namespace of this cluster that does not count.
func (i *Importer) ignored(namespace, detail string) {
	if ns := i.cfg.Member.Namespace(namespace); ns != nil {
		i.cfg.Conditions.Events.Namespace(ns, corev1.EventTypeWarning, wellknown.ReasonAnnotationIgnored,
			"Ignored: "+detail+".")
	}
}

// synced reports whether the caches of both API servers are complete. Nothing is removed before.
func (i *Importer) synced() bool {
	return i.cfg.Member.Synced() && i.cfg.Member.ImportsUnknown() == "" && i.cfg.Broker.Synced()
}

// withdraw removes the import in a cluster that is not a member: slices, derived Service and import, in this order.
func (i *Importer) withdraw(ctx context.Context, svc types.NamespacedName) error {
	i.planner.limits.release(svc, func(string) bool { return true })
	i.cfg.Metrics.SetService(svc, nil, 0)
	i.conflicts.set(svc, nil, false)
	i.kept.set(svc, nil, false)
	return errors.Join(newWriter(i.writers, svc).write(ctx, plan{}),
		i.reportConflicts(ctx, ownExport{exp: i.cfg.Member.Export(svc)}, nil))
}

// refreshOwn keeps this cluster's own endpoints in an existing import current while the broker is unknown or not to be
// believed; all else stays as it is.
func (i *Importer) refreshOwn(ctx context.Context, svc types.NamespacedName, own ownExport) error {
	if i.cfg.Policy.Of(i.cfg.Member.Namespace(svc.Namespace)) != export.Allowed {
		return nil
	}
	return i.refresh(ctx, svc, ownSlices(own))
}

// refreshOthers makes the slices of all clusters in an existing import current, but of those that lag behind their
// records. All else stays (docs/spec/controller.md 4.3, docs/spec/controller.md 8.6).
func (i *Importer) refreshOthers(ctx context.Context, in inputs, p plan, lagging []string) error {
	if !member.IsOurs(in.imported) {
		return nil
	}
	var all []currentSlices
	for _, c := range in.imported.Status.Clusters {
		switch s, counts := in.shares[c.Cluster]; {
		case slices.Contains(lagging, c.Cluster):
		case c.Cluster == in.own.cluster:
			all = append(all, ownSlices(in.own))
		case counts && s.unknown:
			retained := i.planner.current(in, c.Cluster, s.kept)
			all = append(all, currentSlices{desired.Source{Cluster: c.Cluster, Kept: retained,
				LastResort: i.planner.lastResort(in, c.Cluster)}, nil})
		case !p.accepts(c.Cluster):
			all = append(all, currentSlices{desired.Source{Cluster: c.Cluster}, nil})
		case p.specOf(c.Cluster) != nil:
			all = append(all, currentSlices{p.sourceOf(c.Cluster), p.specOf(c.Cluster)})
		}
	}
	return i.refresh(ctx, in.service, all...)
}

// currentSlices are the slices of one cluster, which are updated while the rest of the import is frozen. Without a
// record (spec is nil) only the kept ones stay.
type currentSlices struct {
	desired.Source
	spec *v1alpha1.ExportedServiceSpec
}

func ownSlices(own ownExport) currentSlices {
	all := currentSlices{Source: desired.Source{Cluster: own.cluster, Slices: own.Local, Local: true}}
	if own.Record != nil {
		all.spec = &own.Record.Spec
	}
	return all
}

// refresh updates the slices of some clusters in an existing import.
func (i *Importer) refresh(ctx context.Context, svc types.NamespacedName, all ...currentSlices) error {
	w := newWriter(i.writers, svc)
	existing := w.written.Objects()
	var clusters []string
	var sources []desired.Source
	var wanted []*discoveryv1.EndpointSlice
	for _, src := range all {
		if !hasCluster(existing.Import, src.Cluster) {
			continue
		}
		clusters, sources = append(clusters, src.Cluster), append(sources, src.Source)
		if src.spec == nil {
			for _, e := range src.Kept {
				wanted = append(wanted, desired.ShownCopy(e))
			}
			continue
		}
		contributed, rejections := contributionOf(src.Source, *src.spec, existing.Import, existing.Service, i.cfg.Merge)
		wanted = append(wanted, contributed...)
		for _, r := range rejections {
			i.cfg.Rejections.Report(r)
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(existing.Slices), func(e *discoveryv1.EndpointSlice) bool {
		return slices.Contains(clusters, e.Labels[mcsv1beta1.LabelSourceCluster])
	})
	wanted = desired.LastResort(sources, wanted, others)
	if existing.Service != nil {
		// The API server may have dropped the field from one of them.
		distribution := cmp.Or(existing.Service.Spec.TrafficDistribution, existing.Import.Spec.TrafficDistribution)
		desired.SetHints(distribution, wanted)
	}
	return w.replaceSlices(ctx, clusters, wanted)
}

// reportConflicts writes the condition Conflict of our own ServiceExport, or removes it where nothing is exported.
func (i *Importer) reportConflicts(ctx context.Context, own ownExport, conflicts []merge.Conflict) error {
	exp := own.exp
	if exp == nil || exp.DeletionTimestamp != nil {
		return nil
	}
	var want []metav1.Condition
	if own.Record != nil {
		want = append(want, merge.Condition(conflicts, exp.Generation))
	}
	// When they are overwritten, so are those of the exporter. Its next attempt leads here again.
	_, err := i.cfg.Conditions.Set(ctx, exp, wellknown.ManagerImporter, want, nil)
	return err
}

func reasonsOf(conflicts []merge.Conflict) []string {
	var reasons []string
	for _, c := range conflicts {
		if reason := string(c.Reason); !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}
