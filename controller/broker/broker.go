// Package broker is the broker of a clusterset as one member sees it: what all members publish there, validated object
// by object (docs/spec/controller.md 9), and what this member writes to its own namespace.
//
//	broker API server                       validate                              reads
//	Namespaces, Members      --watch-->  which namespace belongs to        --> Members, State
//	                                     which cluster id
//	ExportedServices, slices --watch-->  does an object belong to its      --> Records, Slices
//	of all members                       namespace, and is it well-formed?     (of accepted objects only)
//	Inventories              --watch-->  which copy is the newest?         --> Entry, claims
//	Leases                   --watch-->  when was each seen to change?     --> Liveness
//
//	this member's namespace  <--apply--  Own: ApplyRecord, ApplySlice, ... ; it reads its own writes at once
//
// Every object is decoded and validated by itself: a hostile member's object is rejected, reported once for each of its
// versions, and costs no other member anything.
//
// Use: [New] makes a Broker without contacting it. [Broker.Handle] sets the handlers. [Broker.Run] follows the broker
// until its context ends, however often and long the broker is away; reads return the last known state.
package broker

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// A Config names the broker of a member.
type Config struct {
	REST      *rest.Config // with the credential of this member, its rate limit and its transport
	Namespace string       // of this member on the broker
	ClusterID string       // of this member
	UID       types.UID    // of the broker's kube-system at the join; "" means that of the first check
	Log       logging.Logger
	Barrier   *logging.Barrier // nil counts and logs no panic
	Noted     wellknown.Noted  // by an earlier process

	// Interval is the time between two checks of the broker, 10 s if 0. The link is lost after Silence without contact, 25
	// s if 0.
	Interval, Silence time.Duration
}

// A Broker is the broker of one clusterset. The objects that it returns are shared with its caches: callers must not
// change them. All methods may be called by several goroutines, but [Broker.Handle] is called once and before
// [Broker.Run].
//
// Its parts are fields, for consumers that need no more: Members (which namespace belongs to which cluster), Exports
// (valid objects of all members), Own (objects of this member, and their writes), Heartbeats (Leases of all members),
// Aggregates (published imports). Its own methods are in files by their job: watch.go (informers to handlers), state.go
// (does this cluster belong to the clusterset, or was it removed).
//
// Reads answer from the caches at any time: before the first list with nothing, while the broker is away with what was
// known last. Nobody acts on objects that the broker lost, or has in an older copy (package protocol). The overlays add
// this member's own writes to the caches, until the watch has delivered them.
type Broker struct {
	Members *Members
	*Exports
	Own        *OwnObjects
	Heartbeats *Heartbeats
	Aggregates *Aggregates

	link
	cfg    Config
	client *apiserver.Client
	leases cache.SharedIndexInformer

	removal removal
	// undecodable has a value when an object was found that does not decode; capacity 1.
	undecodable chan struct{}
}

// removal records whether the broker itself confirmed that this member was removed. A watch that omits the namespace is
// no reason to leave the clusterset, and neither is a right that is missing.
//
//	namespace absent, or marked as removed --+
//	                                         +--> ask the broker --> confirmed --> cleared when the namespace can be read again
//	namespaces may not be read (403) --------+
type removal struct {
	wake      chan struct{}
	confirmed atomic.Bool
	asked     time.Time // used by [Broker.review] alone
}

// New makes a Broker without contacting it.
func New(cfg Config) (*Broker, error) {
	client, err := apiserver.NewClient(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	cfg.Interval, cfg.Silence = cmp.Or(cfg.Interval, 10*time.Second), cmp.Or(cfg.Silence, 25*time.Second)
	cfg.Log = cmp.Or(cfg.Log, logging.Discard)
	cfg.Barrier = cmp.Or(cfg.Barrier, &logging.Barrier{})
	b := &Broker{cfg: cfg, client: client, undecodable: make(chan struct{}, 1)}
	b.Aggregates = &Aggregates{client: client, namespace: cfg.Namespace, log: cfg.Log}
	b.removal.wake = make(chan struct{}, 1)
	b.silence, b.set = cfg.Silence, apiserver.NewSet(apiserver.SetConfig{
		Client: client, Name: "broker", UID: cfg.UID, Interval: b.cfg.Interval, Log: b.cfg.Log,
		Barrier: b.cfg.Barrier, RolledBack: b.rolledBack,
	})
	b.Members = &Members{
		link: b.link, client: client, namespace: cfg.Namespace, clusterID: cfg.ClusterID, brokerUID: cfg.UID,
		memory: newMemory(cfg.Noted),
	}
	handlers := Handlers{}.complete()
	b.Exports = &Exports{members: b.Members, own: cfg.Namespace, clusterID: cfg.ClusterID, handlers: &handlers}
	b.follow()
	b.Own = &OwnObjects{
		client: client, namespace: cfg.Namespace, stamps: &stamps{}, newest: &b.newest,
		records:     apiserver.NewOverlay[*v1alpha1.ExportedService](b.records),
		slices:      apiserver.NewOverlay[*discoveryv1.EndpointSlice](b.slices),
		inventories: apiserver.NewOverlay[*v1alpha1.Inventory](b.inventories),
		changed:     func(i *v1alpha1.Inventory) { b.inventoryChanged(i, false) },
	}
	b.Heartbeats = &Heartbeats{
		link: b.link, client: client, namespace: cfg.Namespace, self: cfg.ClusterID + "/" + rand.String(10),
		members: b.Members, stamps: b.Own.stamps, seen: make(map[string]renewal),
		lists: []listed{
			{watchRecords, &v1alpha1.ExportedService{}, mcsv1beta1.LabelSourceCluster, b.records},
			{watchSlices, &discoveryv1.EndpointSlice{}, mcsv1beta1.LabelSourceCluster, b.slices},
			{watchInventories, &v1alpha1.Inventory{}, "", b.inventories},
		},
	}
	return b, nil
}

// follow adds the kinds that are read.
func (b *Broker) follow() {
	undecodable := func(*apiserver.Undecodable) {
		select {
		case b.undecodable <- struct{}{}:
		default: // a report is due already
		}
	}
	b.Members.namespaces = b.set.Add(&corev1.Namespace{}, apiserver.WatchOptions{Labels: broker.LabelClusterID})
	b.Members.members = b.set.Add(&v1alpha1.Member{}, apiserver.WatchOptions{
		Indexers: cache.Indexers{byNamespace: memberNamespace}, Transform: b.Members.memory.complete,
		Undecodable: undecodable,
	})
	b.records = b.set.Add(&v1alpha1.ExportedService{}, apiserver.WatchOptions{
		Labels: mcsv1beta1.LabelSourceCluster, Transform: dropUnused, Undecodable: undecodable,
		Indexers: cache.Indexers{byService: recordService, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	b.slices = b.set.Add(&discoveryv1.EndpointSlice{}, apiserver.WatchOptions{
		Labels: mcsv1beta1.LabelSourceCluster, Transform: dropUnusedOfSlice(b.cfg.Namespace),
		Indexers: cache.Indexers{byService: sliceService, byOwner: sliceOwner,
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	b.inventories = b.set.Add(&v1alpha1.Inventory{}, apiserver.WatchOptions{
		Transform: dropUnused, Undecodable: undecodable,
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	b.leases = b.set.Add(&coordinationv1.Lease{}, apiserver.WatchOptions{
		Labels: broker.LabelManagedBy + "=" + broker.ManagedBy, Fields: "metadata.name=" + broker.HeartbeatName,
	})
}

// Close ends the connections. Run must have returned.
func (b *Broker) Close() { b.client.Close() }

// Synced reports whether members, their namespaces, records, slices and inventories were listed once.
func (b *Broker) Synced() bool { return b.synced() }

// MayExport returns nil if records, slices and inventories can be compared with what the broker has: all are followed,
// and were listed once. Other watches may fail.
func (b *Broker) MayExport() error {
	switch err := b.failure(watchRecords, watchSlices, watchInventories); {
	case err != nil:
		return err
	case !b.Synced():
		return errors.New(b.Waiting())
	}
	return nil
}

// Waiting names a kind that [Broker.Synced] waits for and the reason, "" if it waits for nothing.
func (b *Broker) Waiting() string { return b.set.Waiting(synced...) }

// ListAnew lists all kinds anew after a restore of the broker.
func (b *Broker) ListAnew() { b.set.ListAnew() }

// rolledBack forgets our own writes after the broker was restored: its state may not have them.
func (b *Broker) rolledBack() {
	b.Own.reset()
	b.handlers.MembersChanged()
}
