// Package cache is everything between an API server, or manifests, and a published immutable state: it lists and
// watches, validates each object once, keeps the items that DNS needs, builds services and publishes an index.
//
//	API server ─► apiserver.Set ─► watchStore, one for each kind and namespace ─┐
//	                                     validates, logs rejections            │ items
//	manifests ──► fileWatch ─► watchStore                                      ▼
//	                                                                        objects     collects items, notes which services are dirty
//	snapshot file ─────────────────── restore ────────────────────────────────►│
//	     ▲                                                                     │ batch
//	     │                                                                     ▼
//	snapshotWriter ◄──────────────── State ◄── one atomic store ──────────── publisher  builds services, moves the serial
//	                                   │                                        │
//	                 Store.State: queries read it                    Store.Subscribe: serials
package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/cache/index"
)

// A Config says where objects come from and which of them count.
type Config struct {
	// REST is the API server, or Manifests are the files and folders that stand for one. Exactly one of them is set.
	REST      *rest.Config
	Manifests []string
	// Kubeconfig is the file that REST was read from, and ReadREST reads it again: when it changes, and when the API server
	// rejects the credential. Without a file ReadREST is nil, and REST stays.
	Kubeconfig string
	ReadREST   func() (*rest.Config, error)
	// Name is the source in words, for logs: "in-cluster", "kubeconfig FILE CONTEXT", "manifests PATHS".
	Name string

	// Namespaces are the only ones that count; nil means all. Each is listed by itself, so that rights in these
	// namespaces are enough, and so that nothing else is sent: one watch for each kind and namespace.
	Namespaces []string
	// NamespaceLabels selects by the labels of the Namespace; nil means all. It needs the right to watch Namespaces.
	NamespaceLabels labels.Selector
	// Labels selects ServiceImports, on the server; nil means all.
	Labels labels.Selector
	// NoEndpoints leaves EndpointSlices alone.
	NoEndpoints bool
	// Deny are networks whose addresses are rejected.
	Deny []netip.Prefix

	// Index says how services are built.
	Index index.Options
	// Reverse keeps the services of each address, for PTR records.
	Reverse bool
	// TopologyNode is the Node whose labels say zone and region, in place of those in Index; "" means no Node.
	TopologyNode string

	// Snapshot is the file that keeps the state for a start without the API; "" means none. SnapshotMaxAge is how old
	// it may be when it is read; 0 means 24 hours. It has no part in anything with Manifests.
	Snapshot       string
	SnapshotMaxAge time.Duration
	// ConfirmAfter is how long the watch must be healthy before ServiceImports that are gone at once are removed; 0 means
	// [apiserver.ConfirmAfter].
	ConfirmAfter time.Duration
	// withholdFor is that of [apiserver.Withheld], for tests.
	withholdFor time.Duration
	// CheckInterval is the time between two server checks; 0 means 30 seconds.
	CheckInterval time.Duration

	// Log takes changes of state; nil drops them.
	Log logging.Logger
	// Latency is called, if not nil, for each change that is published, with the time since it was written, which objects have
	// in whole seconds, and since it was received. It must not block.
	Latency func(sinceWritten, sinceReceived time.Duration)
}

// check fills in defaults.
func (c *Config) check() error {
	if (c.REST == nil) == (len(c.Manifests) == 0) {
		return errors.New("cache: want either an API server or manifests")
	}
	if len(c.Namespaces) > 0 && c.NamespaceLabels != nil {
		return errors.New("cache: want either namespaces or labels of namespaces")
	}
	c.Log = cmp.Or(c.Log, logging.Discard)
	c.SnapshotMaxAge = cmp.Or(c.SnapshotMaxAge, 24*time.Hour)
	c.CheckInterval = cmp.Or(c.CheckInterval, 30*time.Second)
	c.ConfirmAfter = cmp.Or(c.ConfirmAfter, apiserver.ConfirmAfter)
	return nil
}

// identity differs between configurations that see different objects. An API server may move: the UID of its cluster tells it from others.
func (c *Config) identity() string {
	var b strings.Builder
	fmt.Fprintf(&b, "source=%q namespaces=%q noendpoints=%t", c.Name, slices.Sorted(slices.Values(c.Namespaces)), c.NoEndpoints)
	if c.NamespaceLabels != nil {
		fmt.Fprintf(&b, " namespace_labels=%q", c.NamespaceLabels)
	}
	if c.Labels != nil {
		fmt.Fprintf(&b, " labels=%q", c.Labels)
	}
	if len(c.Deny) > 0 {
		fmt.Fprintf(&b, " deny=%q", c.Deny)
	}
	return b.String()
}

// SameObjects reports whether a Store of other sees the same objects as one of c, with the same rights: then one may
// inherit from the other. How services are built and how objects are followed does not count.
func (c *Config) SameObjects(other *Config) bool {
	return c.identity() == other.identity() && slices.Equal(c.Manifests, other.Manifests) && sameRights(c, other)
}

// Same reports whether a Store of other serves as well as one of c: then a reload keeps it. Log and Latency do not count.
func (c *Config) Same(other *Config) bool {
	a, b := *c, *other
	return a.check() == nil && b.check() == nil && a.SameObjects(&b) && a.Index.Equal(&b.Index) &&
		a.Reverse == b.Reverse && a.TopologyNode == b.TopologyNode && a.Snapshot == b.Snapshot && a.SnapshotMaxAge == b.SnapshotMaxAge &&
		a.CheckInterval == b.CheckInterval && (a.REST == nil || a.REST.Host == b.REST.Host && a.REST.QPS == b.REST.QPS && a.REST.Burst == b.REST.Burst)
}

// sameRights reports whether two configurations reach the API server as the same user. What a kubeconfig says of the user at
// one moment does not count: a Store follows the file.
func sameRights(a, b *Config) bool {
	if a.Kubeconfig != b.Kubeconfig {
		return false
	}
	if a.Kubeconfig != "" {
		return true
	}
	return sameAccess(a.REST, b.REST)
}

func sameAccess(a, b *rest.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Host == b.Host && a.APIPath == b.APIPath && a.Username == b.Username && a.Password == b.Password &&
		a.BearerToken == b.BearerToken && a.BearerTokenFile == b.BearerTokenFile &&
		reflect.DeepEqual(a.Impersonate, b.Impersonate) && reflect.DeepEqual(a.TLSClientConfig, b.TLSClientConfig) &&
		reflect.DeepEqual(a.AuthProvider, b.AuthProvider) && reflect.DeepEqual(a.ExecProvider, b.ExecProvider)
}

// A State is what is served at one moment. It never changes.
type State struct {
	// Index is never nil.
	Index *index.Index
	// Reverse is of Index; nil unless it is configured.
	Reverse *index.Reverse
	// Serial is the serial of every zone: the Unix second of the newest change that DNS can show, 0 before the first.
	Serial uint32
	// Ready says that answers may be given: those that Knows says, from lists that were complete once or from a snapshot.
	Ready bool
	// Frozen says that another cluster answers at the address of ours.
	Frozen bool
	// coverage says what of the state is missing, or from a snapshot.
	coverage *coverage
	// LocalCluster and ClusterSet are what this cluster says of itself (KEP-2149), "" if it says nothing.
	LocalCluster, ClusterSet string
}

// digest is a hash of what is served, the same in every process: see [index.Index.Digest].
func (s *State) digest() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.LocalCluster)) // It cannot fail.
	return s.Index.Digest() ^ h.Sum64()
}

// A Store follows one source, and publishes what DNS answers from as a [State] that never changes. The picture is in the comment of the
// package.
//
// What may be answered depends on the lists that came, and on the API server:
//
//	not ready ───────── lists came ────────► ready ◄──── the right cluster is back ────┐
//	    │                                      ▲ └─────── another cluster answers ───► frozen
//	    └── snapshot read ──► restored ─ lists ┘
//
// Not ready: State.Ready is false, and queries get SERVFAIL. Ready: changes are published as they come. Restored is ready, but the
// coverage of the state names the watches whose items are from the snapshot; each list that comes replaces those of its watch.
// Frozen: the state stays, with State.Frozen set, until the right cluster answers. A store never becomes "not ready" again.
//
// Who writes what: the watches, which a fileWatch fills where there are manifests, and findNode write into objects. Only the publisher
// writes the state. The progress of each watch is guarded by mu. Locks are taken in the order publisher.mu, mu, objects.mu.
//
// [New] makes a Store without contacting the API server. [Store.Run] follows the source, and is called once. All other methods may be
// called at any time, by any goroutine; [Store.Inherit] must be called before Run.
type Store struct {
	cfg        Config
	objects    *objects
	read       func(Kind, any, ...netip.Prefix) (item, []Rejection) // validates an object
	rejections rejections
	watches    []*watchStore
	needs      map[string][]*watchStore // by namespace, "" for the whole zone: see Silence
	client     *apiserver.Client        // nil with manifests
	set        *apiserver.Set           // of all watches; nil with manifests
	files      *manifests               // nil with an API server
	stamps     stamps                   // of files
	orphans    orphans
	restored   chan restored // at most one: the snapshot
	// failing holds a token once the API server, or a watch that answers need, was found to fail.
	failing chan struct{}
	// rejected holds a token once the API server rejected the credential.
	rejected chan struct{}

	publisher publisher

	// noSnapshot says that no snapshot stands for lists that do not come: none is configured, or it was read and is of no use.
	noSnapshot atomic.Bool

	state  atomic.Pointer[State]
	synced chan struct{}
	frozen atomic.Bool // another cluster answers

	publishes, rollbacks atomic.Uint64

	mu          sync.Mutex // guards what follows, and the progress of watches
	subscribers map[chan uint32]struct{}
	givingUp    bool // see giveUpUnneeded
}

// New makes a Store. With manifests it reads them, and fails if they are not consistent.
func New(cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg:         cfg,
		objects:     newObjects(cfg.Index, cfg.NamespaceLabels != nil),
		restored:    make(chan restored, 1),
		read:        read,
		failing:     make(chan struct{}, 1),
		rejected:    make(chan struct{}, 1),
		synced:      make(chan struct{}),
		subscribers: map[chan uint32]struct{}{},
	}
	s.state.Store(&State{Index: new(index.Index)})
	s.noSnapshot.Store(cfg.Snapshot == "")
	s.publisher = newPublisher(s, s.State().Index)
	s.watches = newWatchStores(s)
	s.needs = needsOf(s.watches)
	var err error
	if cfg.REST != nil {
		err = s.connect()
	} else {
		s.files, s.stamps, err = readManifests(cfg.Manifests)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// connect makes the watches, without contacting the API server.
func (s *Store) connect() error {
	client, err := apiserver.NewClient(s.cfg.REST)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	s.client = client
	s.set = apiserver.NewSet(apiserver.SetConfig{
		Client: client, Name: s.cfg.Name, Interval: s.cfg.CheckInterval, Log: s.cfg.Log,
		RolledBack: func() { s.rollbacks.Add(1) }, Checked: s.checked, Adopt: s.adopt,
	})
	for _, w := range s.watches {
		w.follow()
	}
	return nil
}

// Run follows the source until ctx ends; it then returns nil. A Store runs once.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.publisher.run(ctx) }) // objects -> state; the only writer of s.state
	if s.files != nil {
		g.Go(func() error { return s.followFiles(ctx) })
		return g.Wait()
	}
	defer s.client.Close()
	g.Go(func() error { return s.set.Run(ctx) }) // API -> objects
	g.Go(func() error { return s.releaseWithheld(ctx) })
	if s.cfg.ReadREST != nil {
		g.Go(func() error { return s.followAccess(ctx) })
	}
	if s.cfg.TopologyNode != "" {
		g.Go(func() error { return s.findNode(ctx) })
	}
	if s.cfg.Snapshot != "" {
		g.Go(func() error { return s.loadSnapshot(ctx) })
		g.Go(func() error { return s.writeSnapshots(ctx) })
	}
	return g.Wait()
}

// State returns what is to be served now. It costs one atomic load.
func (s *Store) State() *State { return s.state.Load() }

// Synced is closed once answers may be given.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Waiting says for what the first state waits, as long as it can come: "" once it is there, and also where there is
// nothing to wait for, because a CRD is not installed or rights are missing.
func (s *Store) Waiting() string {
	if s.State().Ready {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.progress.pending() {
			return "waiting for the list of " + w.id().String() + " from " + s.cfg.Name
		}
	}
	if s.consistentLocked() { // The publisher has it in hand.
		return "building the first state from " + s.cfg.Name
	}
	return ""
}

// Unreachable reports whether the API server does not answer and no snapshot stands for it.
func (s *Store) Unreachable() bool { return s.set != nil && s.set.Silent() && s.noSnapshot.Load() }

// Silence is how long ago the last contact of a watch was, of those that answers in a namespace need, or ("") any answer in
// the zone: the longest time counts. An answer that does not depend on EndpointSlices needs no slices. It is the greatest
// duration as long as one of the watches had no contact. It costs an atomic load for each watch.
func (s *Store) Silence(namespace string, slices bool) time.Duration {
	watches, ok := s.needs[namespace]
	if !ok {
		watches = s.needs[""]
	}
	var oldest *apiserver.Contact
	for _, w := range watches {
		if (slices || w.kind != EndpointSlice) && (oldest == nil || w.contact.Before(oldest)) {
			oldest = &w.contact
		}
	}
	return oldest.Age() // there is always a watch of ServiceImports
}

// Silent names the watch whose contact is the oldest of all that answers need.
func (s *Store) Silent() string {
	var oldest *watchStore
	for _, w := range s.needs[""] {
		if oldest == nil || w.contact.Before(&oldest.contact) {
			oldest = w
		}
	}
	return oldest.id().String()
}

// needsOf groups the watches that answers need by the namespace of the answer. Under "" are all.
func needsOf(watches []*watchStore) map[string][]*watchStore {
	needs := map[string][]*watchStore{}
	for _, w := range watches {
		if w.needed() && w.namespace != "" {
			needs[w.namespace] = append(needs[w.namespace], w)
		}
		if w.needed() {
			needs[""] = append(needs[""], w)
		}
	}
	return needs
}

// Subscribe returns a channel that gets the serial whenever it moves. A reader that is slow gets the newest one only.
// The channel is closed by cancel, which may be called more than once.
func (s *Store) Subscribe() (serials <-chan uint32, cancel func()) {
	ch := make(chan uint32, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ok := s.subscribers[ch]; ok {
			delete(s.subscribers, ch)
			close(ch)
		}
	}
}

func (s *Store) notify(serial uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.subscribers {
		select {
		case <-ch:
		default:
		}
		ch <- serial // The only sender has just made room.
	}
}

// consistentLocked reports whether the items may be shown: there are some to answer from, and no list is under way that has to be
// waited for. The caller holds s.mu.
func (s *Store) consistentLocked() bool {
	ready := s.State().Ready
	for _, w := range s.watches {
		// What is served does without a list that was never there.
		if w.progress == outdated && (w.needed() || s.set == nil) || w.progress == awaited && !ready {
			return false
		}
	}
	_, some := s.coverageLocked(nil)
	return some
}

// unneededWait is how long the first state waits for the kinds that answers can do without, once all others are there.
const unneededWait = time.Second

// giveUpUnneeded makes the first state wait no longer than [unneededWait] once it has all that answers need, or will not get it.
func (s *Store) giveUpUnneeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := false
	for _, w := range s.watches {
		if w.progress == awaited && w.needed() {
			return
		}
		waits = waits || w.progress == awaited
	}
	if !waits || s.givingUp {
		return
	}
	s.givingUp = true
	time.AfterFunc(unneededWait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.givingUp = false
		for _, w := range s.watches {
			if !w.needed() && w.progress == awaited {
				w.happened(hopeless)
			}
		}
		s.objects.signal()
	})
}

// adopt decides about another cluster at the address of ours, and reports whether it is followed from now on: only if
// nothing was served, since only a state that a client may have seen is worth freezing (docs/spec/dns.md 6).
func (s *Store) adopt() bool {
	s.publisher.mu.Lock() // Nothing becomes ready meanwhile.
	defer s.publisher.mu.Unlock()
	if s.State().Ready {
		return false
	}
	s.cfg.Log.Warningf("%s: another cluster answers; nothing of the one before was served, listing all kinds anew", s.cfg.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.happened(otherCluster)
	}
	return true
}

// checked takes the outcome of a server check that differs from the one before.
func (s *Store) checked(err error) {
	class := apiserver.Classify(err)
	switch class {
	case apiserver.Unreachable:
		signal(s.failing)
	case apiserver.Unauthorized: // nothing to wait for
		signal(s.failing)
		signal(s.rejected)
		s.mu.Lock()
		for _, w := range s.watches {
			if w.progress == awaited {
				w.happened(hopeless)
			}
		}
		s.mu.Unlock()
		s.objects.signal()
	}
	if frozen := class == apiserver.Replaced; class == apiserver.OK || frozen {
		s.frozen.Store(frozen)
		s.objects.signal()
	}
}

// signal puts a token into ch, unless it holds one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
