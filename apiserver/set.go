// Package apiserver talks to an API server and follows it.
//
// A [Client] reads and writes every kind that this project knows, over shared connections and one rate limit. Built-in kinds
// travel as protobuf, others as JSON.
//
// A [Set] follows kinds, each by a watch of its own, through anything that happens to the server: it is away, it was restored
// from a backup, another one answers at its address, it lacks a kind, a right or a credential. What is known stays until it
// is known better. A watch fills either a shared informer ([Set.Add]) or a store of the caller ([Set.AddStore]).
//
//	                      ┌─────────────────────────────────────────────────────────────┐
//	                      │ Set                                                         │
//	┌────────────┐        │  serverCheck ◄── requestCheck ──┐    UID, newest version    │
//	│ API server │ ◄──────┼──────┬── passed, failed         │                           │
//	│            │        │      │ awaitCheck, rollBack     │                           │
//	│            │ ◄──────┼─► listWatch ───► watchProxy ────┴─► reflector ──► informer  │ ──► handlers, Overlay
//	│            │ ◄──────┼─► listWatch ───► watchProxy ──────► reflector ──► store     │ ──► the caller
//	└────────────┘        │      └──► Health                                            │
//	   Client             └─────────────────────────────────────────────────────────────┘
//
// Trouble is known per watch: [Set.Health] has the [State] of one watch, and the [Class] of its last error decides what
// follows and what is logged, once for each change. An error that says something about the whole server, such as a 401, is
// found by the server check, and logged once for all watches.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// A SetConfig says which API server a [Set] follows, and whom it notifies. Its functions must not block, and those that are
// called under a lock must not call the set.
type SetConfig struct {
	Client *Client
	Name   string    // in log lines, such as "broker"
	UID    types.UID // of kube-system; "" means that of the first check
	// Interval is the time between two server checks when nothing requests one. It is 30 s if 0.
	Interval time.Duration
	Log      logging.Logger // nil drops every line
	// Barrier is around the Transform and the Indexers of watches; nil counts and logs no panic. An object on which they panic
	// stays as it came, and is in no index.
	Barrier *logging.Barrier
	// RolledBack is called after the server went back to an older state, when its watches begin to follow it there.
	RolledBack func()
	// Checked is called, nil or not, with the error of a server check whose outcome is another one than that of the check
	// before: nil if it passed.
	Checked func(err error)
	// Adopt is called when another cluster answers than the one that is followed. If it returns true, the other one is
	// followed from then on. Without it nothing is read until the right cluster is back.
	Adopt func() bool
}

// A Set follows kinds of one API server. Add its watches first, then call Run once. The other methods may be called at any
// time and from any goroutine.
type Set struct {
	cfg      SetConfig
	check    *serverCheck
	versions versions
	watches  []*listWatch
	wake     chan struct{} // of runChecks
	limit    time.Duration // of a request of runChecks
	began    time.Time     // when runChecks began its last check
	asked    time.Time     // when runChecks began the last check that asked the server
	heard    Contact       // of the last list, event or bookmark of any watch
	doubt    atomic.Bool   // a request got no answer, or an error of the server, since runChecks last verified the history

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
	return &Set{cfg: cfg, check: newServerCheck(cfg.UID), wake: make(chan struct{}, 1)}
}

// WatchOptions say which objects of a kind are followed, and what is kept of them.
type WatchOptions struct {
	Namespace string // "" for all
	Labels    string // selectors; "" for everything
	Fields    string
	// Transform and Indexers are those of an informer. No Transform drops managedFields.
	Transform cache.TransformFunc
	Indexers  cache.Indexers
	// Undecodable is called for each version of an object that does not decode. The informer does not have the object then.
	Undecodable func(*Undecodable)
	// Changed is called with the health of the watch after each change of its state or class, in order and under a lock.
	Changed func(Health)
	// Contact is marked whenever Health.LastContact moves, if not nil: who has it reads the time without a lock.
	Contact *Contact
}

// A ListReader is what a store for [Set.AddStore] may be, too: lists are then not decoded as a whole but read by it.
type ListReader interface {
	// ReadList reads a list from the body of a response. It returns what [meta.ExtractListWithAlloc] understands, with the
	// resource version of the list. Half a list is an error.
	ReadList(body io.Reader) (runtime.Object, error)
}

// Add makes an informer that lives as long as Run does. The caller may add handlers to it before Run and while it runs, and
// must not start it. Objects that are read from it must not be written to. Its [WatchID] is the kind of example and the
// namespace; a watch that is there already is a panic.
func (s *Set) Add(example runtime.Object, o WatchOptions) cache.SharedIndexInformer {
	if o.Transform == nil {
		o.Transform = dropManagedFields
	}
	w := newListWatch(s, ResourceOf(example), o)
	o = guarded(s.cfg.Barrier, w.id.Kind, o)
	w.informer = cache.NewSharedIndexInformer(w.source(), example, 0, o.Indexers)
	w.follow = w.informer.RunWithContext
	err := errors.Join(w.informer.SetTransform(o.Transform),
		w.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
	if err != nil {
		panic("apiserver: a new informer rejected its options: " + err.Error())
	}
	s.add(w)
	return w.informer
}

// guarded returns o with a barrier around its functions.
func guarded(b *logging.Barrier, kind string, o WatchOptions) WatchOptions {
	transform, indexers := o.Transform, o.Indexers
	name := func(obj any) func() string {
		return func() string {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			return cmp.Or(key, fmt.Sprint(err))
		}
	}
	o.Transform = func(obj any) (result any, err error) {
		if !b.Do(kind, name(obj), func() { result, err = transform(obj) }) {
			return obj, nil
		}
		return result, err
	}
	o.Indexers = make(cache.Indexers, len(indexers))
	for index, keys := range indexers {
		o.Indexers[index] = func(obj any) (result []string, err error) {
			b.Do(kind, name(obj), func() { result, err = keys(obj) })
			return result, err
		}
	}
	return o
}

// AddStore makes a watch that fills store. The store gets every object once it is known to come from the right server; it may
// be a [ListReader], and whatever else a reflector makes use of.
func (s *Set) AddStore(r Resource, o WatchOptions, store cache.ReflectorStore) {
	w := newListWatch(s, r, o)
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
	s.watches = append(s.watches, w)
}

// ExpectUID makes the cluster with this UID of kube-system the right one. It is called before Run.
func (s *Set) ExpectUID(uid types.UID) { s.check.expect(uid) }

// Run follows all kinds until ctx ends; it then returns nil, and nothing that it started is alive. It may be called once.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	// The set logs by itself. client-go would log every attempt.
	ctx = klog.NewContext(ctx, logr.Discard())
	var wg sync.WaitGroup
	wg.Go(func() { s.runChecks(ctx) })
	for _, w := range s.watches {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
	return nil
}

// Health returns the health of one watch. While the server check fails, that is what is wrong with each of them.
func (s *Set) Health(id WatchID) Health {
	for _, w := range s.watches {
		if w.id == id {
			return s.healthOf(w)
		}
	}
	return Health{}
}

// Healths returns the health of the watches that are named, or of all.
func (s *Set) Healths(of ...WatchID) map[WatchID]Health {
	healths := make(map[WatchID]Health, len(s.watches))
	for w := range s.named(of) {
		healths[w.id] = s.healthOf(w)
	}
	return healths
}

func (s *Set) healthOf(w *listWatch) Health {
	h := w.current()
	since, err := s.check.failure()
	if err == nil {
		return h
	}
	h.Class, h.Err = Classify(err), err
	if !errors.Is(err, errUnchecked) {
		h.State, h.Since = Failing, since
	}
	return h
}

// named iterates over the watches that are named, or over all. A name of no watch is a panic.
func (s *Set) named(of []WatchID) func(yield func(*listWatch) bool) {
	for _, id := range of {
		if !slices.ContainsFunc(s.watches, func(w *listWatch) bool { return w.id == id }) {
			panic(fmt.Sprintf("apiserver: %s: no watch of that name in set %s", id, s.cfg.Name))
		}
	}
	return func(yield func(*listWatch) bool) {
		for _, w := range s.watches {
			if (len(of) == 0 || slices.Contains(of, w.id)) && !yield(w) {
				return
			}
		}
	}
}

// Undecodable returns the object of a watch with a key if it exists and does not decode, else nil.
func (s *Set) Undecodable(id WatchID, key string) *Undecodable {
	for w := range s.named([]WatchID{id}) {
		return w.undecodable(key)
	}
	return nil
}

// Undecodables returns all objects of a watch that do not decode, sorted by key.
func (s *Set) Undecodables(id WatchID) (all []*Undecodable) {
	for w := range s.named([]WatchID{id}) {
		w.mu.Lock()
		for _, key := range slices.Sorted(maps.Keys(w.bad.current)) {
			all = append(all, w.bad.current[key])
		}
		w.mu.Unlock()
	}
	return all
}

// Synced reports whether the watches that are named, or all, were listed once.
func (s *Set) Synced(of ...WatchID) bool {
	for w := range s.named(of) {
		if !w.synced() {
			return false
		}
	}
	return true
}

// Waiting says which of the watches that are named, or of all, was not listed yet and why, "" if all were.
func (s *Set) Waiting(of ...WatchID) string {
	for w := range s.named(of) {
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

// Err is why the API server, or else one of the watches that are named, or of all, cannot be followed right now; nil if all
// can. [Classify] has its class. A watch that lists anew after a rollback is followed: the server answers.
func (s *Set) Err(of ...WatchID) error {
	for w := range s.named(of) {
		if h := s.healthOf(w); h.Err != nil && h.Class != RolledBack {
			return h.Err
		}
	}
	_, err := s.check.failure()
	return err
}

// Absent returns the kinds that the API server does not serve, sorted. They are tried until it does.
func (s *Set) Absent() []string {
	var absent []string
	for _, w := range s.watches {
		if w.current().Class == Absent {
			absent = append(absent, w.id.Kind)
		}
	}
	slices.Sort(absent)
	return slices.Compact(absent)
}

// LastContact is the oldest last contact of the watches that are named, or of all: zero as long as one had none.
func (s *Set) LastContact(of ...WatchID) time.Time {
	var last time.Time
	first := true
	for w := range s.named(of) {
		if at := w.current().LastContact; first || at.Before(last) {
			last, first = at, false
		}
	}
	return last
}

// Replaced reports that another cluster answers, by the UID of its kube-system: what is known stays until the right one is
// back.
func (s *Set) Replaced() bool {
	_, err := s.check.failure()
	return Classify(err) == Replaced
}

// Silent reports whether the last server check got no answer.
func (s *Set) Silent() bool {
	_, err := s.check.failure()
	return unanswered(err) && !errors.Is(err, errUnchecked)
}

// UID is the UID of kube-system that is followed, "" before the first check.
func (s *Set) UID() types.UID { return s.check.identity() }

// dropManagedFields forgets which manager owns which field: that is most of an object, and no handler reads it.
func dropManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
