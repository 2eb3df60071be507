package broker

import (
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// listen adds a handler to every informer.
func (b *Broker) listen() {
	handle(b.namespaces, b.namespaceChanged)
	handle(b.members, b.memberChanged)
	handle(b.records, b.recordChanged)
	handle(b.slices, b.sliceChanged)
	handle(b.leases, b.leaseChanged)
}

// handle calls changed with what was and what is, either of which may be nil, but not both.
func handle[T metav1.Object](informer cache.SharedIndexInformer, changed func(was, is *T, initial bool)) {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			is := obj.(T)
			changed(nil, &is, initial)
		},
		UpdateFunc: func(from, to any) {
			was, is := from.(T), to.(T)
			changed(&was, &is, false)
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if was, ok := obj.(T); ok {
				changed(&was, nil, false)
			}
		},
	})
	if err != nil {
		panic("broker: an informer that did not run refused a handler: " + err.Error())
	}
}

// namespaceChanged passes over namespaces that no Member names: nobody's records are in them.
func (b *Broker) namespaceChanged(was, is **corev1.Namespace, _ bool) {
	ns := latest(was, is)
	if was != nil && is != nil && (*was).Labels[broker.LabelClusterID] == (*is).Labels[broker.LabelClusterID] && (*was).UID == (*is).UID {
		return
	}
	if ns.Name == b.cfg.Namespace || has(b.members, byNamespace, ns.Name) {
		b.membersChanged()
	}
}

// memberChanged passes over a new status: nothing follows from it.
func (b *Broker) memberChanged(was, is **v1alpha1.Member, _ bool) {
	if was != nil && is != nil && reflect.DeepEqual((*was).Spec, (*is).Spec) && (*was).UID == (*is).UID {
		return
	}
	b.membersChanged()
}

func (b *Broker) membersChanged() {
	b.reconsider()
	b.cfg.Everything()
}

func (b *Broker) recordChanged(was, is **v1alpha1.ExportedService, initial bool) {
	r := latest(was, is)
	if is == nil {
		b.judge(r, aRecord, nil)
	}
	switch svc, ok := serviceOf(r.Name); {
	case same(was, is):
	case ok:
		b.cfg.Changed(svc, initial)
	case is != nil && b.Synced():
		b.judgeRecord(r)
	}
}

func (b *Broker) sliceChanged(was, is **discoveryv1.EndpointSlice, initial bool) {
	if is == nil {
		b.judge(*was, aSlice, nil)
	}
	if same(was, is) {
		return
	}
	for _, s := range []**discoveryv1.EndpointSlice{was, is} {
		if s == nil {
			continue
		}
		if record, _ := sliceService(*s); len(record) > 0 && b.counts((*s).Namespace, record[0]) {
			svc, _ := serviceOf(record[0])
			b.cfg.Changed(svc, initial)
		}
	}
	if is != nil && b.Synced() {
		b.judgeSlice(*is)
	}
}

// counts reports whether anything follows from a slice. Of a member that has no record of the service nothing does: its
// record tells of both when it comes, and the first event of a service is the one that nobody waits for.
func (b *Broker) counts(namespace, record string) bool {
	_, exists, _ := b.records.GetStore().GetByKey(namespace + "/" + record)
	return exists || namespace == b.cfg.Namespace
}

// judgeUnasked refuses what nobody may ask for: records that have the name of no service, and slices, which count only where
// there is a record.
func (b *Broker) judgeUnasked() {
	for _, item := range b.records.GetStore().List() {
		if values, _ := recordService(item); len(values) == 0 {
			b.judgeRecord(item.(*v1alpha1.ExportedService))
		}
	}
	for _, item := range b.slices.GetStore().List() {
		b.judgeSlice(item.(*discoveryv1.EndpointSlice))
	}
}

func (b *Broker) leaseChanged(was, is **coordinationv1.Lease, _ bool) {
	l := latest(was, is)
	if l.Name != broker.HeartbeatName {
		return
	}
	if is == nil {
		b.heartbeats.forget(l.Namespace)
		return
	}
	if !b.heartbeats.take(l, l.Namespace == b.cfg.Namespace) {
		return
	}
	if id, _, err := b.admitted(l.Namespace); err == nil {
		b.cfg.Heartbeat(id)
	}
}

func latest[T any](was, is *T) T {
	if is != nil {
		return *is
	}
	return *was
}

// same reports whether an informer tells of an object that did not change, as it does after a list.
func same[T metav1.Object](was, is *T) bool {
	return was != nil && is != nil && (*was).GetUID() == (*is).GetUID() && (*was).GetResourceVersion() == (*is).GetResourceVersion()
}
