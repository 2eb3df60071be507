// Package apiserver talks to an API server and follows it.
//
// A [Client] reads and writes every kind that this project knows, over shared connections and one rate limit. Built-in kinds
// travel as protobuf, others as JSON. A [Set] follows kinds with shared informers and detects what client-go does not: an
// etcd restored to an older state (kubernetes/kubernetes#107457), and another cluster behind the same address.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// A Logger takes what an operator should know.
type Logger interface {
	Infof(format string, args ...any)
	Warningf(format string, args ...any)
	Errorf(format string, args ...any)
}

// A SetConfig says which API server a [Set] follows, and whom it tells.
type SetConfig struct {
	Client *Client
	Name   string    // in log lines, such as "broker"
	UID    types.UID // of kube-system; "" means that of the first look
	// Interval is the time between two looks at a server from which nothing else makes one look. It is 30 s if 0.
	Interval time.Duration
	Log      Logger // nil means that nobody listens
	// Rewound is called after the server went back to an older state, when its caches begin to follow it there.
	Rewound func()
}

// A Set follows kinds of one API server. What it knows serves on while the server is away, is another one, or lacks a kind.
type Set struct {
	cfg   SetConfig
	guard guard
	feeds []*feed
	wake  chan struct{} // of the loop that looks

	compared time.Time // when that loop last compared all versions; zero if it could not

	mu      sync.Mutex
	running bool
}

// NewSet makes a set without kinds.
func NewSet(cfg SetConfig) *Set {
	if cfg.Interval == 0 {
		cfg.Interval = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = silent{}
	}
	if cfg.Rewound == nil {
		cfg.Rewound = func() {}
	}
	s := &Set{cfg: cfg, wake: make(chan struct{}, 1)}
	s.guard.uid, s.guard.looked = cfg.UID, make(chan struct{})
	return s
}

type silent struct{}

func (silent) Infof(string, ...any)    {}
func (silent) Warningf(string, ...any) {}
func (silent) Errorf(string, ...any)   {}

// WatchOptions say which objects of a kind are followed, and what is kept of them.
type WatchOptions struct {
	Namespace string // "" for all
	Labels    string // selectors; "" for everything
	Fields    string
	Transform cache.TransformFunc // nil drops managedFields
	Indexers  cache.Indexers
	// Listed is called when the server sent a list, be it the first, and the informer does not show it yet: what it lacks
	// was not said to be deleted. With a list that is streamed it is called when that begins.
	Listed func()
}

// Add makes an informer that lives as long as Run does. The caller may add handlers to it before Run, and must not start it.
// Whoever reads from it must not write to what it reads.
func (s *Set) Add(example runtime.Object, o WatchOptions) cache.SharedIndexInformer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		panic("watch: a kind is added before the set runs")
	}
	f := newFeed(s, example, o)
	s.feeds = append(s.feeds, f)
	return f.informer
}

// Run follows all kinds until ctx ends; it then returns nil, and nothing that it started is alive. It may be called once.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	// What matters, the set tells by itself.
	ctx = klog.NewContext(ctx, logr.Discard())
	var wg sync.WaitGroup
	wg.Go(func() { s.look(ctx) })
	for _, f := range s.feeds {
		wg.Go(func() { f.run(ctx) })
	}
	wg.Wait()
	return nil
}

// Synced reports whether every kind was listed once.
func (s *Set) Synced() bool {
	return !slices.ContainsFunc(s.feeds, func(f *feed) bool { return !f.informer.HasSynced() })
}

// Settled reports whether every kind with a callback Listed was listed once, and its informer shows the last list.
func (s *Set) Settled() bool {
	return !slices.ContainsFunc(s.feeds, func(f *feed) bool { return f.options.Listed != nil && !f.settled() })
}

// Waiting says which kind was not listed yet and why, "" if there is none.
func (s *Set) Waiting() string {
	for _, f := range s.feeds {
		if f.informer.HasSynced() {
			continue
		}
		if err := s.Err(); err != nil {
			return fmt.Sprintf("%s: %s", f.name, short(err))
		}
		return f.name + ": the list is under way"
	}
	return ""
}

// Err is why the API server, or else one of the kinds, cannot be followed right now; nil if all of it can.
func (s *Set) Err() error {
	if err := s.guard.failure(); err != nil {
		return err
	}
	for _, f := range s.feeds {
		if err := f.failure(); err != nil {
			return err
		}
	}
	return nil
}

// Absent returns the kinds that the API server does not serve, sorted. They are looked for until it does.
func (s *Set) Absent() []string {
	var absent []string
	for _, f := range s.feeds {
		if apierrors.IsNotFound(f.failure()) {
			absent = append(absent, f.name)
		}
	}
	slices.Sort(absent)
	return absent
}

// LastContact is when the server was last heard of: the last event, bookmark or check of the kind that is silent longest. It
// is zero as long as one kind has never been heard of.
func (s *Set) LastContact() time.Time {
	var last time.Time
	for i, f := range s.feeds {
		if at := f.heard(); i == 0 || at.Before(last) {
			last = at
		}
	}
	return last
}

// Replaced reports that another cluster answers, by the UID of its kube-system: everything is held until the right one is
// back.
func (s *Set) Replaced() bool { return errors.Is(s.guard.failure(), errReplaced) }

// UID is the UID of kube-system that is followed, "" before the first look.
func (s *Set) UID() types.UID { return s.guard.identity() }

// short is an error as a log line has it.
func short(err error) string {
	const limit = 300
	text := err.Error()
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return text
}

func nameOf(example runtime.Object) string { return reflect.TypeOf(example).Elem().Name() }
