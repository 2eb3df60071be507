// Package cache is everything between an API server, or manifests, and a published immutable state: it lists and
// watches, checks objects once at the door, keeps what DNS needs of them, builds services and publishes an index.
package cache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A Config says where objects come from and which of them count.
type Config struct {
	// REST is the API server, or Manifests are the files and folders that stand for one. Exactly one of them is set.
	REST      *rest.Config
	Manifests []string
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

	// Index says how services are built.
	Index index.Options
	// TopologyNode is the Node whose labels say zone and region, in place of those in Index; "" means that there is none.
	TopologyNode string

	// Snapshot is the file that keeps the state for a start without the API; "" means none. SnapshotMaxAge is how old
	// it may be when it is read; 0 means 24 hours. It has no part in anything with Manifests.
	Snapshot       string
	SnapshotMaxAge time.Duration
	// CheckInterval is the time between two looks for an API server that went back in time; 0 means 30 seconds.
	CheckInterval time.Duration

	// Log hears of changes of state; nil means nobody does.
	Log Logger
	// Latency hears how long after a write the change was published; nil means nobody does. It must not block.
	Latency func(time.Duration)
}

// A Logger takes what an operator should know. Package log of CoreDNS has one.
type Logger interface {
	Infof(format string, args ...any)
	Warningf(format string, args ...any)
	Errorf(format string, args ...any)
}

type noLog struct{}

func (noLog) Infof(string, ...any)    {}
func (noLog) Warningf(string, ...any) {}
func (noLog) Errorf(string, ...any)   {}

// check fills in defaults.
func (c *Config) check() error {
	if (c.REST == nil) == (len(c.Manifests) == 0) {
		return errors.New("cache: want either an API server or manifests")
	}
	if len(c.Namespaces) > 0 && c.NamespaceLabels != nil {
		return errors.New("cache: want either namespaces or labels of namespaces")
	}
	if c.Log == nil {
		c.Log = noLog{}
	}
	if c.SnapshotMaxAge == 0 {
		c.SnapshotMaxAge = 24 * time.Hour
	}
	if c.CheckInterval == 0 {
		c.CheckInterval = 30 * time.Second
	}
	return nil
}

// identity tells configurations apart that see different objects.
func (c *Config) identity() string {
	var b strings.Builder
	fmt.Fprintf(&b, "source=%q namespaces=%q noendpoints=%t", c.Name, slices.Sorted(slices.Values(c.Namespaces)), c.NoEndpoints)
	if c.REST != nil {
		fmt.Fprintf(&b, " host=%q", c.REST.Host)
	}
	if c.NamespaceLabels != nil {
		fmt.Fprintf(&b, " namespace_labels=%q", c.NamespaceLabels)
	}
	if c.Labels != nil {
		fmt.Fprintf(&b, " labels=%q", c.Labels)
	}
	return b.String()
}

// SameObjects tells whether a Store of other sees the same objects as one of c, with the same rights: then one may
// inherit from the other. How services are built and how objects are followed does not count.
func (c *Config) SameObjects(other *Config) bool {
	return c.identity() == other.identity() && slices.Equal(c.Manifests, other.Manifests) && sameAccess(c.REST, other.REST)
}

// Same tells whether a Store of other serves as well as one of c: then a reload keeps it. Log and Latency do not count.
func (c *Config) Same(other *Config) bool {
	a, b := *c, *other
	return a.check() == nil && b.check() == nil && a.SameObjects(&b) && a.Index == b.Index &&
		a.TopologyNode == b.TopologyNode && a.Snapshot == b.Snapshot && a.SnapshotMaxAge == b.SnapshotMaxAge &&
		a.CheckInterval == b.CheckInterval && (a.REST == nil || a.REST.QPS == b.REST.QPS && a.REST.Burst == b.REST.Burst)
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
	// Serial is the serial of every zone: the Unix second of the newest change that DNS can show, 0 before the first.
	Serial uint32
	// Ready says that answers may be given: every list was complete once, or a snapshot is loaded.
	Ready bool
	// Stale says that the state is from a snapshot, or held since another cluster answers at the address of ours.
	Stale bool
	// LocalCluster and ClusterSet are what this cluster says of itself (KEP-2149), "" if it says nothing.
	LocalCluster, ClusterSet string
}

// A Store follows one source. Its methods may be called from any goroutine.
type Store struct {
	cfg     Config
	objects *objects
	refused refusals
	feeds   []*feed
	guard   guard
	client  *client       // nil with manifests
	files   *manifests    // nil with an API server
	stamps  stamps        // of files
	seeds   chan seed     // at most one: the snapshot
	lost    chan struct{} // holds a token once the API was found out of reach

	publisher publisher

	state   atomic.Pointer[State]
	synced  chan struct{}
	contact atomic.Int64
	held    atomic.Bool

	publishes, rewinds atomic.Uint64

	// restart ends the running watches and starts new ones.
	restart atomic.Pointer[context.CancelFunc]

	mu          sync.Mutex // guards what follows, and the progress of feeds
	subscribers map[chan uint32]struct{}
}

// New makes a Store. With manifests it reads them, and fails if they are not sound.
func New(cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg:         cfg,
		objects:     newObjects(cfg.Index, cfg.NamespaceLabels != nil),
		seeds:       make(chan seed, 1),
		lost:        make(chan struct{}, 1),
		synced:      make(chan struct{}),
		subscribers: map[chan uint32]struct{}{},
	}
	s.state.Store(&State{Index: new(index.Index)})
	s.publisher = publisher{store: s, index: s.State().Index, now: time.Now}
	s.feeds = newFeeds(s)
	var err error
	if cfg.REST != nil {
		s.client, err = newClient(cfg.REST)
	} else {
		s.files, s.stamps, err = readManifests(cfg.Manifests)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Run follows the source until ctx ends; it then returns nil. A Store runs once.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.publisher.run(ctx) }) // objects -> state; the only writer of s.state
	if s.files != nil {
		g.Go(func() error { return s.followFiles(ctx) })
		return g.Wait()
	}
	defer s.client.close()
	g.Go(func() error { return s.followAPI(ctx) }) // API -> objects
	if s.cfg.TopologyNode != "" {
		g.Go(func() error { return s.findNode(ctx) })
	}
	if s.cfg.Snapshot != "" {
		g.Go(func() error { return s.loadSnapshot(ctx) })
		g.Go(func() error { return s.keepSnapshot(ctx) })
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
	for _, f := range s.feeds {
		if f.pending {
			return "waiting for the list of " + f.name() + " from " + s.cfg.Name
		}
	}
	return ""
}

// LastContact is when the source was last heard of: the zero time if never.
func (s *Store) LastContact() time.Time {
	if t := s.contact.Load(); t != 0 {
		return time.Unix(0, t)
	}
	return time.Time{}
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

func (s *Store) tell(serial uint32) {
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

// whole reports whether what is kept may be shown: every list that is needed is complete, and none is under way that
// has to be waited for.
func (s *Store) whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.complete()
}

// complete is whole for a caller that holds s.mu.
func (s *Store) complete() bool {
	ready := s.State().Ready
	for _, f := range s.feeds {
		switch {
		case f.needed() && !f.synced:
			return false
		case f.synced || !ready: // What is served does without a list that was never there.
			if f.pending {
				return false
			}
		}
	}
	return true
}

// replaced acts upon another cluster at the address of ours, and reports whether it is followed from now on. Only a state
// that somebody may have seen is worth to be held.
func (s *Store) replaced() (followed bool) {
	s.publisher.mu.Lock() // Nothing becomes ready meanwhile.
	defer s.publisher.mu.Unlock()
	if s.State().Ready {
		s.hold()
		return false
	}
	s.cfg.Log.Warningf("%s: another cluster answers; nothing of the one before was served, listing all kinds anew", s.cfg.Name)
	s.mu.Lock()
	for _, f := range s.feeds {
		f.pending, f.synced = true, false
	}
	s.mu.Unlock()
	s.relist()
	return true
}

// hold keeps the state as it is until the end: the source has become another one.
func (s *Store) hold() {
	if s.held.Swap(true) {
		return
	}
	s.cfg.Log.Errorf("%s: another cluster answers; its objects are not served, the last state of ours is, until restart or reload",
		s.cfg.Name)
	s.objects.stir()
	s.relist()
}

// rewound starts all over: the API server has lost writes that it had told of.
func (s *Store) rewound(f *feed, seen, now uint64) {
	s.rewinds.Add(1)
	s.cfg.Log.Warningf("%s: %s went back from version %d to %d; listing all kinds anew", s.cfg.Name, f.name(), seen, now)
	s.mu.Lock()
	for _, f := range s.feeds {
		f.pending = true
	}
	s.mu.Unlock()
	s.relist()
}

func (s *Store) relist() {
	if cancel := s.restart.Load(); cancel != nil {
		(*cancel)()
	}
}

// followAPI runs the watches, and starts them anew when the API server went back in time.
func (s *Store) followAPI(ctx context.Context) error {
	for ctx.Err() == nil && !s.held.Load() {
		s.mu.Lock()
		for _, f := range s.feeds {
			f.pending = true
			f.seen.Store(0)
		}
		s.mu.Unlock()
		g, life := errgroup.WithContext(ctx)
		life, cancel := context.WithCancel(life)
		s.restart.Store(&cancel)
		for _, f := range s.feeds {
			g.Go(func() error { return f.run(life) })
		}
		g.Go(func() error { return s.watchVersion(life) })
		err := g.Wait()
		cancel()
		if err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}
