// Package broker is the broker of a clusterset as one member sees it: what all members say there, checked (section 9 of the
// controller's rules), and what this member writes to its own namespace. Nothing that it reads is believed, and nothing that
// a hostile member writes there costs more than itself.
package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// FieldManager is the name under which a member applies what is its own on the broker.
const FieldManager = "clusterset-exporter"

// A Config says which broker a member has, and who is told of what happens there. Callbacks come from several goroutines and
// should return soon; any of them may be nil.
type Config struct {
	REST      *rest.Config // with the credential of this member, its rate limit and its transport
	Namespace string       // of this member on the broker
	ClusterID string       // of this member
	UID       types.UID    // of the broker's kube-system, as the join saw it; "" means that of the first look
	Log       logging.Logger

	// Interval is the time between two looks at the broker, 10 s if 0. The link is lost after Silence without a sign of it,
	// 25 s if 0.
	Interval, Silence time.Duration

	// Changed is told that an export record or a slice of some member for svc came, changed or went; initial while the first
	// list is read.
	Changed func(svc types.NamespacedName, initial bool)
	// Everything is told that members or their namespaces changed, so that any service may be affected.
	Everything func()
	// Heartbeat is told that the Lease of a member was seen to change.
	Heartbeat func(clusterID string)
	// Refused is told what counts for nothing, once for each version of an object.
	Refused func(merge.Refusal)
	// Rewound is told that the broker went back to an older state, before anything is read from there.
	Rewound func()
	// Listed is told that members, their namespaces or their export records were listed anew, before that is to be read from
	// here: what a list lacks was not said to be deleted.
	Listed func()
}

// A Broker is the broker of one clusterset. What it returns is shared with its caches: nobody may write to it.
type Broker struct {
	cfg    Config
	client *apiserver.Client
	set    *apiserver.Set

	namespaces, members, leases cache.SharedIndexInformer
	records                     cache.SharedIndexInformer
	slices                      cache.SharedIndexInformer
	ownRecords                  *apiserver.Overlay[*v1alpha1.ExportedService]
	ownSlices                   *apiserver.Overlay[*discoveryv1.EndpointSlice]

	refusals   refusals
	heartbeats heartbeats
	expulsion  expulsion
	noImports  sync.Once // tells that the broker has no ServiceImports
}

// New makes a broker without contacting it.
func New(cfg Config) (*Broker, error) {
	client, err := apiserver.NewClient(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	b := &Broker{cfg: withDefaults(cfg), client: client}
	b.expulsion.wake = make(chan struct{}, 1)
	b.heartbeats.seen = make(map[string]beat)
	b.refusals.told = make(map[string]string)
	b.set = apiserver.NewSet(apiserver.SetConfig{
		Client: client, Name: "broker", UID: cfg.UID, Interval: b.cfg.Interval, Log: b.cfg.Log, RolledBack: b.rewound,
	})
	b.follow()
	b.listen()
	return b, nil
}

func withDefaults(cfg Config) Config {
	if cfg.Interval == 0 {
		cfg.Interval = 10 * time.Second
	}
	if cfg.Silence == 0 {
		cfg.Silence = 25 * time.Second
	}
	if cfg.Changed == nil {
		cfg.Changed = func(types.NamespacedName, bool) {}
	}
	if cfg.Everything == nil {
		cfg.Everything = func() {}
	}
	if cfg.Heartbeat == nil {
		cfg.Heartbeat = func(string) {}
	}
	if cfg.Refused == nil {
		cfg.Refused = func(merge.Refusal) {}
	}
	if cfg.Rewound == nil {
		cfg.Rewound = func() {}
	}
	if cfg.Listed == nil {
		cfg.Listed = func() {}
	}
	return cfg
}

// follow adds the kinds that are read.
func (b *Broker) follow() {
	b.namespaces = b.set.Add(&corev1.Namespace{}, apiserver.WatchOptions{Labels: broker.LabelClusterID, Listed: b.cfg.Listed})
	b.members = b.set.Add(&v1alpha1.Member{}, apiserver.WatchOptions{
		Indexers: cache.Indexers{byNamespace: memberNamespace}, Listed: b.cfg.Listed,
	})
	b.records = b.set.Add(&v1alpha1.ExportedService{}, apiserver.WatchOptions{
		Labels: mcsv1beta1.LabelSourceCluster, Transform: dropUnused, Listed: b.cfg.Listed,
		Indexers: cache.Indexers{byService: recordService, byAddress: recordAddresses, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	b.slices = b.set.Add(&discoveryv1.EndpointSlice{}, apiserver.WatchOptions{
		Labels: mcsv1beta1.LabelSourceCluster, Transform: dropUnused,
		Indexers: cache.Indexers{byService: sliceService, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	b.leases = b.set.Add(&coordinationv1.Lease{}, apiserver.WatchOptions{
		Labels: broker.LabelManagedBy + "=" + broker.ManagedBy, Fields: "metadata.name=" + broker.HeartbeatName,
	})
	b.ownRecords = apiserver.NewOverlay[*v1alpha1.ExportedService](b.records)
	b.ownSlices = apiserver.NewOverlay[*discoveryv1.EndpointSlice](b.slices)
}

// Run follows the broker until ctx ends, however often and long it is away; it then returns nil, and nothing that it
// started is alive. It may be called once.
func (b *Broker) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { b.attend(ctx) })
	err := b.set.Run(ctx)
	wg.Wait()
	return err
}

// Close ends the connections. Run has to be over.
func (b *Broker) Close() { b.client.Close() }

// Synced reports whether everything was read once.
func (b *Broker) Synced() bool { return b.set.Synced() }

// Settled reports whether what was listed last of members, their namespaces and their records is what can be read.
func (b *Broker) Settled() bool { return b.set.Consistent() }

// Waiting says what was not read yet and why, "" if there is nothing.
func (b *Broker) Waiting() string { return b.set.Waiting() }

// rewound follows a broker that was restored: nobody wrote what it does not know.
func (b *Broker) rewound() {
	b.cfg.Rewound() // first: nothing may be concluded from what is missing
	b.ownRecords.Reset()
	b.ownSlices.Reset()
	b.cfg.Everything()
}
