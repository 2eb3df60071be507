package broker

import (
	"cmp"
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// Handle sets the handlers. It must be called at most once, before Run, and before anything else uses the Broker.
func (b *Broker) Handle(h Handlers) { *b.handlers = h.complete() }

// Run follows the broker until ctx ends; it then returns nil, and no goroutine that it started is left. It may be
// called once.
func (b *Broker) Run(ctx context.Context) error {
	b.listen()
	var wg sync.WaitGroup
	wg.Go(func() { b.review(ctx) })
	err := b.set.Run(ctx)
	wg.Wait()
	return err
}

// review does what no event triggers, until ctx ends: it validates the objects that no read asks for, once everything
// was listed, and asks the broker whether this member was removed.
func (b *Broker) review(ctx context.Context) {
	const soon, seldom = time.Second, 10 * time.Second
	what := func() string { return "of the broker" }
	for all := true; ctx.Err() == nil; {
		synced, pause := b.Synced(), soon+rand.N(soon)
		b.cfg.Barrier.Do("review", what, func() {
			if synced { // else it is not known which member a namespace belongs to
				if all {
					b.validateUnread()
				}
				b.reportUndecodables()
			}
			if doubtful := b.reviewRemoval(ctx); synced && !doubtful {
				pause = seldom
			}
		})
		all = !synced
		select {
		case <-ctx.Done():
		case <-b.undecodable:
		case <-b.removal.wake:
			all = true
		case <-time.After(pause):
		}
	}
}

// listen adds a handler to every informer.
func (b *Broker) listen() {
	handle(b, b.Members.namespaces, b.namespaceChanged)
	handle(b, b.Members.members, b.memberChanged)
	handle(b, b.records, b.recordChanged)
	handle(b, b.slices, b.sliceChanged)
	handle(b, b.inventories, func(_, i *v1alpha1.Inventory, initial bool) {
		if i != nil {
			b.inventoryChanged(i, initial)
		}
	})
	handle(b, b.leases, b.leaseChanged)
}

// handle is [apiserver.Handle] for an informer that does not run yet.
func handle[T apiserver.Pointer](
	b *Broker, informer cache.SharedIndexInformer, changed func(before, after T, initial bool),
) {
	if _, err := apiserver.Handle(b.cfg.Barrier, informer, changed); err != nil {
		panic("broker: an informer that did not run rejected a handler: " + err.Error())
	}
}

// namespaceChanged ignores namespaces without Member, since their records are not accepted; marks of removed members
// count.
func (b *Broker) namespaceChanged(before, after *corev1.Namespace, initial bool) {
	ns := cmp.Or(after, before)
	marked := after != nil && isMarked(after)
	if marked {
		b.newest.forget(ns.Name)
	}
	if after != nil {
		b.Members.memory.seeNamespace(ns)
	}
	if before != nil && after != nil &&
		before.Labels[broker.LabelClusterID] == after.Labels[broker.LabelClusterID] &&
		identify(before) == identify(after) &&
		isMarked(before) == marked {
		return
	}
	marked = marked && !initial
	if marked || ns.Name == b.cfg.Namespace || b.Members.names(ns.Name) {
		b.membersChanged()
	}
}

// memberChanged ignores a new status, but for the properties by which clusters are selected.
func (b *Broker) memberChanged(before, after *v1alpha1.Member, _ bool) {
	if after != nil {
		b.Members.memory.seeMember(after)
	} else {
		b.Members.validity.Delete(before.Name)
	}
	same := before != nil && after != nil && before.UID == after.UID &&
		reflect.DeepEqual(before.Spec, after.Spec)
	if same && slices.Equal(before.Status.Properties, after.Status.Properties) {
		return
	}
	if before != nil {
		b.Heartbeats.recordLoss(before.Spec.Namespace, false)
	}
	if after != nil {
		_, rejected := after.Status.ValidProperties()
		for _, err := range rejected {
			b.handlers.Rejected(merge.Rejection{Cluster: after.Name, Object: "Member", Reason: merge.BadProperty,
				Detail: err.Error()})
		}
	}
	if same {
		b.handlers.PropertiesChanged(after.Name)
		return
	}
	b.membersChanged()
}

func (b *Broker) membersChanged() {
	b.checkRemoval()
	b.handlers.MembersChanged()
}

func (b *Broker) recordChanged(before, after *v1alpha1.ExportedService, initial bool) {
	r := cmp.Or(after, before)
	if after == nil {
		b.report(r, kindRecord, nil)
	}
	switch svc, ok := ServiceOf(r.Name); {
	case same(before, after):
	case ok:
		altered := r.Namespace != b.cfg.Namespace && before != nil && after != nil && mayWait(before, after)
		b.handlers.Changed(Change{Service: svc, Member: r.Namespace, Initial: initial, Altered: altered})
	case after != nil && b.Synced():
		b.acceptRecord(r)
	}
}

// mayWait reports whether a change of a record may take effect late. A change of its slices or target clusters must
// not: it may end an export.
func mayWait(before, after *v1alpha1.ExportedService) bool {
	a, b := before.Spec, after.Spec
	a.Stamp, a.Slices = b.Stamp, b.Slices
	return equality.Semantic.DeepEqual(a.ToClusters, b.ToClusters) && !equality.Semantic.DeepEqual(a, b)
}

func (b *Broker) sliceChanged(before, after *discoveryv1.EndpointSlice, initial bool) {
	if after == nil {
		b.report(before, kindSlice, nil)
	}
	if same(before, after) {
		return
	}
	lost := cmp.Or(after, before).Namespace != b.cfg.Namespace && broker.LosesLastReady(before, after)
	for _, s := range []*discoveryv1.EndpointSlice{before, after} {
		if s == nil {
			continue
		}
		if record, _ := sliceService(s); len(record) > 0 && b.counts(s.Namespace, record[0]) {
			svc, _ := ServiceOf(record[0])
			b.handlers.Changed(Change{Service: svc, Member: s.Namespace, Initial: initial, Urgent: lost})
		}
	}
	if after != nil && b.Synced() {
		b.acceptSlice(after)
	}
}

// validateUnread validates objects that no read may ask for, so that rejections are reported: records with a name that
// is not of a service, and slices without a record.
func (b *Broker) validateUnread() {
	for _, item := range b.records.GetStore().List() {
		if values, _ := recordService(item); len(values) == 0 {
			b.acceptRecord(item.(*v1alpha1.ExportedService))
		}
	}
	for _, item := range b.slices.GetStore().List() {
		b.acceptSlice(item.(*discoveryv1.EndpointSlice))
	}
}

// reportUndecodables reports what does not decode.
func (b *Broker) reportUndecodables() {
	for _, kind := range []string{kindMember, kindRecord, kindInventory} {
		for _, bad := range b.set.Undecodables(apiserver.WatchID{Kind: kind}) {
			b.reportUndecodable(bad)
		}
	}
}

func (b *Broker) leaseChanged(before, after *coordinationv1.Lease, _ bool) {
	l := cmp.Or(after, before)
	if l.Name != broker.HeartbeatName {
		return
	}
	if after == nil {
		b.Heartbeats.recordLoss(l.Namespace, true)
		return
	}
	own := l.Namespace == b.cfg.Namespace
	if own {
		b.Own.stamps.clock.See(HeartbeatOf(l).Stamp) // whoever wrote it
	}
	b.Heartbeats.observe(l, own)
}

// same reports whether an informer repeats an unchanged object, as it does after a list.
func same[T apiserver.Pointer](before, after T) bool {
	var none T
	return before != none && after != none && before.GetUID() == after.GetUID() &&
		before.GetResourceVersion() == after.GetResourceVersion()
}
