// Package apiserver talks to an API server and follows it.
//
// A [Client] reads and writes every kind that this project knows, over shared connections and one rate limit. Built-in
// kinds travel as protobuf, others as JSON.
//
// A [Set] follows kinds, each by a watch of its own, also if the server is away, was restored from a backup, is another
// one, or lacks a kind, a right or a credential. The last known state stays until there is a better one. A watch fills
// either a shared informer ([Set.Add]) or a store of the caller ([Set.AddStore]).
//
//	                      ┌───────────────────────────────────────────────────────────────┐
//	                      │ Set                                                           │
//	┌────────────┐        │   checker ─────► serverCheck                                  │
//	│ API server │ ◄──────┼───┘  │ rollBack      ▲ await, request                         │
//	│            │        │      ▼               │                                        │
//	│            │ ◄──────┼─► listWatch ─────────┴─► watchProxy ─► reflector ─► informer  │ ──► handlers, Overlay
//	│            │ ◄──────┼─► listWatch ───────────► watchProxy ─► reflector ─► store     │ ──► the caller
//	└────────────┘        │      └──► Health                                              │
//	   Client             └───────────────────────────────────────────────────────────────┘
//
// Trouble is known per watch: [Set.Health] has the [WatchState] of one watch. The [Class] of its last error decides the
// reaction and the log line, once for each change. The server check finds errors of the whole server, such as a 401,
// and they are logged once for all watches.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// A Set follows kinds of one API server. Add its watches first, then call Run once. The other methods may be called at
// any time and from any goroutine.
type Set struct {
	cfg     SetConfig
	check   *serverCheck
	watches []*listWatch

	mu      sync.Mutex
	running bool
}

// NewSet makes a set without watches.
func NewSet(cfg SetConfig) *Set {
	cfg.Interval = cmp.Or(cfg.Interval, 30*time.Second)
	cfg.Log = cmp.Or(cfg.Log, logging.Discard)
	cfg.Barrier = cmp.Or(cfg.Barrier, &logging.Barrier{})
	if cfg.RolledBack == nil {
		cfg.RolledBack = func() {}
	}
	return &Set{cfg: cfg, check: newServerCheck(cfg.Client, cfg.UID)}
}

// Add makes an informer that lives as long as Run does. The caller may add handlers to it before Run and while it runs,
// and must not start it. Objects that are read from it must not be written to. Its [WatchID] is the kind of example and
// the namespace; a watch that is there already is a panic.
func (s *Set) Add(example runtime.Object, o WatchOptions) cache.SharedIndexInformer {
	if o.Transform == nil {
		o.Transform = dropManagedFields
	}
	w := newListWatch(s.cfg, s.check, ResourceOf(example), o)
	o = withBarrier(s.cfg.Barrier, w.id.Kind, o)
	informer := cache.NewSharedIndexInformer(w.source(), example, 0, o.Indexers)
	w.listed.informer, w.follow = informer, informer.RunWithContext
	err := errors.Join(informer.SetTransform(o.Transform),
		informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
	if err != nil {
		panic("apiserver: a new informer rejected its options: " + err.Error())
	}
	s.add(w)
	return informer
}

// AddStore makes a watch that fills store. The store gets every object once it is known to come from the right server;
// it may be a [ListReader], and have other methods that a reflector uses.
func (s *Set) AddStore(r Resource, o WatchOptions, store cache.ReflectorStore) {
	w := newListWatch(s.cfg, s.check, r, o)
	w.reader, _ = store.(ListReader)
	reflector := cache.NewReflectorWithOptions(w.source(), r.Example, store, cache.ReflectorOptions{
		Name: w.id.String(), TypeDescription: r.Kind, Backoff: backoffTo(answeredPause),
	})
	w.follow = reflector.RunWithContext
	s.add(w)
}

func (s *Set) add(w *listWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		panic("apiserver: a watch is added to a set that runs")
	}
	if slices.ContainsFunc(s.watches, func(other *listWatch) bool { return other.id == w.id }) {
		panic(fmt.Sprintf("apiserver: watch %s is added twice", w.id))
	}
	s.watches = append(s.watches, w)
}

// ExpectUID makes the cluster with this UID of kube-system the right one. It is called before Run.
func (s *Set) ExpectUID(uid types.UID) { s.check.expect(uid) }

// Run follows all kinds until ctx ends; it then returns nil, and nothing that it started is alive. It may be called
// once.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	// The set logs by itself. client-go would log every attempt.
	ctx = klog.NewContext(ctx, logr.Discard())
	var wg sync.WaitGroup
	wg.Go(func() { s.checker().run(ctx) })
	for _, w := range s.watches {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
	return nil
}

// checker returns a checker of the watches.
func (s *Set) checker() *checker {
	return &checker{cfg: s.cfg, check: s.check, watches: s.watches, limit: checkTimeout,
		pending: make(map[schema.GroupResource]*history)}
}

// ListAnew restarts all watches with a list from no version. Call it when something else shows that the server was
// restored from a backup.
func (s *Set) ListAnew() {
	rollBack(s.watches, errRolledBack)
	s.cfg.RolledBack()
}

// Health returns the health of one watch. While the server check fails, each watch has its error.
func (s *Set) Health(id WatchID) Health { return s.healthOf(s.watch(id)) }

func (s *Set) healthOf(w *listWatch) Health {
	h := w.health.current()
	err := s.check.failure()
	if err == nil {
		return h
	}
	h.Class, h.Err = Classify(err), err
	if !errors.Is(err, errUnchecked) {
		h.State = Failing
	}
	return h
}

// watch returns a watch by its name. A name of no watch is a panic.
func (s *Set) watch(id WatchID) *listWatch {
	for _, w := range s.watches {
		if w.id == id {
			return w
		}
	}
	panic(fmt.Sprintf("apiserver: %s: no watch of that name in set %s", id, s.cfg.Name))
}

// named iterates over the watches that are named, or over all.
func (s *Set) named(ids []WatchID) func(yield func(*listWatch) bool) {
	for _, id := range ids {
		s.watch(id)
	}
	return func(yield func(*listWatch) bool) {
		for _, w := range s.watches {
			if (len(ids) == 0 || slices.Contains(ids, w.id)) && !yield(w) {
				return
			}
		}
	}
}

// Undecodable returns the object of a watch with a key if it exists and does not decode, else nil.
func (s *Set) Undecodable(id WatchID, key string) *Undecodable { return s.watch(id).bad.get(key) }

// Undecodables returns all objects of a watch that do not decode, sorted by key.
func (s *Set) Undecodables(id WatchID) []*Undecodable { return s.watch(id).bad.all() }

// Synced reports whether the watches that are named, or all, were listed once.
func (s *Set) Synced(ids ...WatchID) bool {
	for w := range s.named(ids) {
		if !w.synced() {
			return false
		}
	}
	return true
}

// Waiting returns which of the named watches, or of all, was not listed yet and why, or "".
func (s *Set) Waiting(ids ...WatchID) string {
	for w := range s.named(ids) {
		if w.synced() {
			continue
		}
		if err := s.Err(w.id); err != nil {
			return fmt.Sprintf("%s: %s", w.id, logging.Line(err))
		}
		return w.id.String() + ": the list is under way"
	}
	return ""
}

// Err is why the API server, or else one of the watches that are named, or of all, cannot be followed right now; nil if
// all can. [Classify] has its class. A watch that lists anew after a rollback is followed: the server answers.
func (s *Set) Err(ids ...WatchID) error {
	for w := range s.named(ids) {
		if h := s.healthOf(w); h.Err != nil && h.Class != RolledBack {
			return h.Err
		}
	}
	return s.check.failure()
}

// Absent returns the kinds that the API server does not serve, sorted. They are tried until it does.
func (s *Set) Absent() []string {
	var absent []string
	for _, w := range s.watches {
		if w.health.current().Class == Absent {
			absent = append(absent, w.id.Kind)
		}
	}
	slices.Sort(absent)
	return slices.Compact(absent)
}

// LastContact is the oldest last contact of the named watches, or of all: zero if one had no contact.
func (s *Set) LastContact(ids ...WatchID) time.Time {
	var last time.Time
	first := true
	for w := range s.named(ids) {
		if at := w.health.current().LastContact; first || at.Before(last) {
			last, first = at, false
		}
	}
	return last
}

// Replaced reports that another cluster answers, by the UID of its kube-system. The state stays until the right one is
// back.
func (s *Set) Replaced() bool {
	return Classify(s.check.failure()) == Replaced
}

// Silent reports whether the last server check got no answer.
func (s *Set) Silent() bool {
	err := s.check.failure()
	return hasNoAnswer(err) && !errors.Is(err, errUnchecked)
}

// UID is the UID of kube-system that is followed, "" before the first check.
func (s *Set) UID() types.UID { return s.check.identity() }
