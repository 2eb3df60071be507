// Package cache is everything between an API server, or manifests, and a published immutable state: it lists and
// watches, validates each object once, keeps the items that DNS needs, builds services and publishes an index.
//
//	API server ─► apiserver.Set ─► watchStore, one for each kind and namespace ─┐
//	                                     validates, logs rejections            │ items
//	manifests ──► fileWatch ─► watchStore                                      ▼
//	                                                                        objects     collects items, notes which services are dirty
//	snapshot file ─────────────────── restorer ───────────────────────────────►│
//	     ▲                                                                     │ batch
//	     │                                                                     ▼
//	snapshotWriter ◄──────────────── State ◄── one atomic store ──────────── publisher  builds services, moves the serial
//	                                   │                                        │
//	                 Store.State: queries read it                    Store.Subscribe: serials
package cache

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/clusterset-dns/clusterset/apiserver"
)

// A Store follows one source, and publishes what DNS answers from as a [State] that never changes. The picture is in
// the comment of the package.
//
// Answers depend on the complete lists, and on the API server:
//
//	not ready ───────── lists came ────────► ready ◄──── the right cluster is back ────┐
//	    │                                      ▲ └─────── another cluster answers ───► frozen
//	    └── snapshot read ──► restored ─ lists ┘
//
// Not ready: State.Ready is false, and queries get SERVFAIL. Ready: changes are published as they come. Restored is
// ready, but the coverage of the state names the watches with items from the snapshot; each new list replaces those of
// its watch. Frozen: the state stays, with State.Frozen set, until the right cluster answers. A store never becomes
// "not ready" again.
//
// A watchStore for each watch, which a fileWatch fills where there are manifests, the restorer and findNode write into
// objects. Only the publisher writes the state. Locks are taken in the order publisher.mu, watches.mu, objects.mu.
//
// [New] makes a Store without contacting the API server. [Store.Run] follows the source, and is called once. All other
// methods may be called at any time, by any goroutine; [Store.Inherit] must be called before Run.
type Store struct {
	*published // has State, Synced and Subscribe
	*watches   // has Waiting, Silence and Silent
	cfg        *Config
	objects    *objects
	rejections *rejections
	publisher  *publisher
	withheld   *withheld
	stores     []*watchStore // of all watches
	restorer   *restorer

	client    *apiserver.Client // nil with manifests, as is set
	set       *apiserver.Set    // of all watches
	rejected  chan struct{}     // holds a token once the API server rejected the credential
	rollbacks atomic.Uint64
	files     fileWatch // runs with manifests
}

// New makes a Store. With manifests it reads them, and fails if they are not consistent.
func New(cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{cfg: &cfg, published: newPublished(), rejections: new(rejections), rejected: make(chan struct{}, 1)}
	s.objects = newObjects(cfg.Index, cfg.NamespaceLabels != nil)
	s.watches = newWatches(s.cfg, s.objects, s.published)
	s.publisher = newPublisher(s.cfg, s.watches, s.rejections)
	latest, seen, err := readManifests(cfg.Manifests) // empty with an API server
	if cfg.REST != nil {
		err = s.connect()
	}
	if err != nil {
		return nil, err
	}
	s.restorer = &restorer{cfg: s.cfg, set: s.set, watches: s.watches, published: s.published}
	s.withheld = &withheld{cfg: s.cfg, set: s.set, watches: s.watches, objects: s.objects, published: s.published,
		orphans: map[string]string{}}
	for _, w := range s.all {
		store := &watchStore{
			watch: w, cfg: s.cfg, watches: s.watches, objects: s.objects, withheld: s.withheld, rejections: s.rejections,
			validate: validateObject,
		}
		if s.stores = append(s.stores, store); s.set != nil {
			store.follow(s.set)
		}
	}
	s.files = fileWatch{cfg: s.cfg, watches: s.watches, stores: s.stores, latest: latest, seen: seen}
	return s, nil
}

// connect makes the client and its set, without contacting the API server.
func (s *Store) connect() (err error) {
	if s.client, err = apiserver.NewClient(s.cfg.REST); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	s.set = apiserver.NewSet(apiserver.SetConfig{
		Client: s.client, Name: s.cfg.Name, Interval: s.cfg.CheckInterval, Log: s.cfg.Log,
		RolledBack: func() { s.rollbacks.Add(1) }, Checked: s.serverChecked, Adopt: s.adoptCluster,
	})
	return nil
}

// Run follows the source until ctx ends; it then returns nil. A Store runs once.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.publisher.run(ctx) }) // objects -> state; the only writer of shown
	if s.set == nil {
		g.Go(func() error { return s.files.run(ctx) })
		return g.Wait()
	}
	defer s.client.Close()
	g.Go(func() error { return s.set.Run(ctx) }) // API -> objects
	g.Go(func() error { return s.withheld.run(ctx) })
	if s.cfg.ReadREST != nil {
		f := accessFile{cfg: s.cfg, reconnect: s.client.Reconnect, rejected: s.rejected, current: s.cfg.REST, seen: stamps{}}
		g.Go(func() error { return f.run(ctx) })
	}
	if s.cfg.TopologyNode != "" {
		g.Go(func() error { return findNode(ctx, s.cfg, s.client, s.objects) })
	}
	if s.cfg.Snapshot != "" {
		g.Go(func() error { return s.restorer.run(ctx) })
		g.Go(func() error { return s.snapshotWriter().run(ctx) })
	}
	return g.Wait()
}

// snapshotWriter makes the writer of the snapshot file.
func (s *Store) snapshotWriter() *snapshotWriter {
	return &snapshotWriter{
		cfg: s.cfg, claim: claimOf(filepath.Clean(s.cfg.Snapshot)), set: s.set, watches: s.watches, published: s.published,
		publisher: s.publisher,
	}
}

// Unreachable reports whether the API server does not answer and no snapshot stands for it.
func (s *Store) Unreachable() bool {
	return s.set != nil && s.set.Silent() && (s.cfg.Snapshot == "" || s.restorer.useless.Load())
}

// adoptCluster decides about another cluster at the address of ours, and reports whether it is followed from now on:
// only if nothing was served, since only a state that a client may have seen is worth freezing (docs/spec/dns.md 6).
func (s *Store) adoptCluster() bool {
	s.publisher.mu.Lock() // Nothing becomes ready meanwhile.
	defer s.publisher.mu.Unlock()
	if s.State().Ready {
		return false
	}
	s.cfg.Log.Warningf("%s: another cluster answers; nothing of the one before was served, listing all kinds anew",
		s.cfg.Name)
	s.handleEvent(otherCluster)
	return true
}

// serverChecked takes the outcome of a server check that differs from the one before.
func (s *Store) serverChecked(err error) {
	class := apiserver.Classify(err)
	switch class {
	case apiserver.Unreachable:
		signal(s.failing)
	case apiserver.Unauthorized: // nothing to wait for
		signal(s.failing)
		signal(s.rejected)
		s.handleEvent(hopeless, awaited)
		s.objects.signal()
	}
	if frozen := class == apiserver.Replaced; class == apiserver.OK || frozen {
		s.publisher.frozen.Store(frozen)
		s.objects.signal()
	}
}
