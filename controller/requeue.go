package controller

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/queue"
)

// A requeuer maps changes to the services that have to be reconciled, and puts those into the queues. Its methods may
// be called by several goroutines.
type requeuer struct {
	member           *member.Cluster
	broker           *broker.Broker
	exports, imports *queue.Queue
	ruled            *queue.Queue // of services with a rule, or with an export by one
	hasRule          func(types.NamespacedName) bool
}

func newRequeuer(cfg Config, m *member.Cluster, b *broker.Broker, hasRule func(types.NamespacedName) bool) requeuer {
	named := func(name string) *queue.Queue { return newQueue(name, cfg.Log, cfg.Metrics) }
	return requeuer{member: m, broker: b, exports: named(queueExports), imports: named(queueImports),
		ruled: named(queueRules), hasRule: hasRule}
}

// all queues every service, behind all that changed.
func (r requeuer) all() {
	for _, svc := range r.member.Exports() {
		r.exports.Add(svc, queue.Backlog)
		r.imports.Add(svc, queue.Backlog)
	}
	for _, svc := range slices.Concat(r.member.Imports(), r.member.Leftovers()) {
		r.imports.Add(svc, queue.Backlog)
	}
	for _, svc := range r.broker.Own.Services() {
		r.exports.Add(svc, queue.Backlog)
	}
	r.rulesChanged("", queue.Backlog)
	for _, svc := range r.broker.Services() {
		r.imports.Add(svc, queue.Backlog)
	}
}

// exportLater queues the export of a service behind all that changed.
func (r requeuer) exportLater(svc types.NamespacedName) { r.exports.Add(svc, queue.Backlog) }

// exportNow queues the export of a changed service.
func (r requeuer) exportNow(svc types.NamespacedName) { r.exports.Add(svc, queue.Live) }

// brokerChanged queues a service with changed records, slices or inventory entries of any member. Our own export is
// reconciled, too: it is restored if someone else changed it, and follows the claims of others. A lost endpoint or the
// end of an export does not wait for other changes.
func (r requeuer) brokerChanged(c broker.Change) {
	if r.concernsImport(c) {
		addChange(r.imports, c.Member, c.Service, c.Initial, c.Urgent)
	}
	if r.concernsExport(c) {
		addChange(r.exports, c.Member, c.Service, c.Initial, false)
	}
}

// concernsUs reports whether this cluster imports or exports the service of a change, or may do so.
func (r requeuer) concernsUs(c broker.Change) bool { return r.concernsImport(c) || r.concernsExport(c) }

func (r requeuer) concernsImport(c broker.Change) bool {
	return !c.Listed || r.member.Import(c.Service) != nil || r.broker.HasRecord(c.Service)
}

func (r requeuer) concernsExport(c broker.Change) bool {
	record, slices := r.broker.Own.Objects(c.Service)
	return record != nil || len(slices) > 0 || r.member.Export(c.Service) != nil || len(r.broker.Own.Claims(c.Service)) > 0
}

// memberChanged queues the services that a change of an object of this cluster affects.
func (r requeuer) memberChanged(a member.Affected) {
	for _, svc := range a.Sources {
		if r.member.Export(svc) != nil || r.broker.Own.ListedUID(svc) != "" { // its ServiceExport may have gone with its CRD
			a.Exports, a.Imports = append(a.Exports, svc), append(a.Imports, svc)
		}
	}
	for _, svc := range slices.Concat(a.Sources, a.Exports) {
		if r.hasRule(svc) {
			addChange(r.ruled, ofThisCluster, svc, a.Initial, false)
		}
	}
	for _, svc := range a.Exports {
		addChange(r.exports, ofThisCluster, svc, a.Initial, a.Lost)
	}
	for _, svc := range a.Imports {
		addChange(r.imports, ofThisCluster, svc, a.Initial, a.Lost)
	}
	if a.Initial {
		return // every service is queued at the start
	}
	if a.All {
		r.all()
	}
	if a.Namespace != "" {
		r.namespaceChanged(a.Namespace)
	}
}

// rulesChanged queues the services with a rule in a namespace or, without one, in all.
func (r requeuer) rulesChanged(namespace string, p queue.Priority) {
	for _, svc := range slices.Concat(r.member.Services(), r.member.Exports()) {
		if (namespace == "" || svc.Namespace == namespace) && r.hasRule(svc) {
			r.ruled.Add(svc, p)
		}
	}
}

// namespaceChanged queues the services of a namespace.
func (r requeuer) namespaceChanged(name string) {
	r.rulesChanged(name, queue.Live)
	exports := r.member.Exports()
	for _, svc := range exports {
		if svc.Namespace == name {
			r.exports.Add(svc, queue.Live)
		}
	}
	for _, services := range [][]types.NamespacedName{exports, r.member.Imports(), r.broker.Services()} {
		for _, svc := range services {
			if svc.Namespace == name {
				r.imports.Add(svc, queue.Live)
			}
		}
	}
}

// ofThisCluster stands for a member where this cluster itself changed.
const ofThisCluster = ""

// addChange queues a service that a member changed, behind all others if it is one of the initial list. Lost endpoints
// do not wait for its further changes (docs/spec/controller.md 10.3).
func addChange(q *queue.Queue, member string, svc types.NamespacedName, initial, lost bool) {
	switch {
	case lost:
		q.AddUrgent(member, svc)
	case initial:
		q.AddOf(member, svc, queue.Backlog)
	default:
		q.AddOf(member, svc, queue.Live)
	}
}
