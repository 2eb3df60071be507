package controller

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/queue"
)

// A requeuer maps changes to the services that have to be reconciled, and puts those into the queues. Its methods may be called
// by several goroutines.
type requeuer struct {
	member           *member.Cluster
	broker           *broker.Broker
	exports, imports *queue.Queue
}

// all queues every service, behind all that changed.
func (r requeuer) all() {
	for _, svc := range r.member.Exports() {
		r.exports.Add(svc, queue.Backlog)
		r.imports.Add(svc, queue.Backlog)
	}
	for _, svc := range r.member.Imports() {
		r.imports.Add(svc, queue.Backlog)
	}
	for _, svc := range r.broker.OwnServices() {
		r.exports.Add(svc, queue.Backlog)
	}
	for _, svc := range r.broker.Services() {
		r.imports.Add(svc, queue.Backlog)
	}
}

// exportLater queues the export of a service behind all that changed.
func (r requeuer) exportLater(svc types.NamespacedName) { r.exports.Add(svc, queue.Backlog) }

// importLater queues the import of a service behind all that changed.
func (r requeuer) importLater(svc types.NamespacedName) { r.imports.Add(svc, queue.Backlog) }

// importNow queues the import of a service as one that changed.
func (r requeuer) importNow(svc types.NamespacedName) { r.imports.Add(svc, queue.Live) }

// brokerChanged queues a service whose records or slices changed, whichever member they belong to. Our own export is
// reconciled, too: it is restored if someone else changed it, and follows the allocations of others. A lost endpoint does not wait for other changes.
func (r requeuer) brokerChanged(svc types.NamespacedName, initial, lost bool) {
	priority := priorityOf(initial)
	if lost {
		r.imports.AddUrgent(svc)
	} else {
		r.imports.Add(svc, priority)
	}
	record, slices := r.broker.Own(svc)
	if record != nil || len(slices) > 0 || r.member.Export(svc) != nil {
		r.exports.Add(svc, priority)
	}
}

// memberChanged queues the services that a change of an object of this cluster affects.
func (r requeuer) memberChanged(a member.Affected) {
	add := func(q *queue.Queue, svc types.NamespacedName) { q.Add(svc, priorityOf(a.Initial)) }
	if a.Lost {
		add = (*queue.Queue).AddUrgent
	}
	for _, svc := range a.Exports {
		add(r.exports, svc)
	}
	for _, svc := range a.Imports {
		add(r.imports, svc)
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

// namespaceChanged queues the services of a namespace.
func (r requeuer) namespaceChanged(name string) {
	exports := r.member.Exports()
	for _, svc := range exports {
		if svc.Namespace == name {
			r.exports.Add(svc, queue.Live)
		}
	}
	for _, of := range [][]types.NamespacedName{exports, r.member.Imports(), r.broker.Services()} {
		for _, svc := range of {
			if svc.Namespace == name {
				r.imports.Add(svc, queue.Live)
			}
		}
	}
}

// priorityOf returns the priority of a change; the initial list is backlog.
func priorityOf(initial bool) queue.Priority {
	if initial {
		return queue.Backlog
	}
	return queue.Live
}
