package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// A feed is one kind in one namespace, or in all. It is the store of its reflector.
type feed struct {
	store    *Store
	kind     Kind
	scope    string // a namespace, or "" for all
	selector labels.Selector

	contact atomic.Int64
	seen    atomic.Uint64 // the newest version that the API server told of, 0 if not known

	// Guarded by Store.mu.
	synced  bool    // the list was complete once
	pending bool    // the list is under way, or out of reach, and can succeed
	trouble trouble // of the last attempt
	version string  // the one that is watched
	streams bool    // the list comes with the watch, which is open
	well    bool    // this attempt got to a complete list and an open watch
}

// trouble is why a kind cannot be watched.
type trouble uint8

const (
	fine      trouble = iota
	lost              // out of reach
	absent            // no CRD
	forbidden         // rights are missing
)

func newFeeds(s *Store) []*feed {
	all := labels.Everything()
	exported, err := labels.NewRequirement(labelService, "exists", nil)
	if err != nil {
		panic("cache: the label of a service is one")
	}
	orAll := func(l labels.Selector) labels.Selector {
		if l == nil {
			return all
		}
		return l
	}
	scopes := s.cfg.Namespaces
	if len(scopes) == 0 {
		scopes = []string{""}
	}
	var feeds []*feed
	add := func(kind Kind, scope string, selector labels.Selector) {
		feeds = append(feeds, &feed{store: s, kind: kind, scope: scope, selector: selector, pending: true})
	}
	for _, scope := range scopes {
		add(ServiceImport, scope, orAll(s.cfg.Labels))
		if !s.cfg.NoEndpoints {
			add(EndpointSlice, scope, labels.NewSelector().Add(*exported))
		}
	}
	if s.cfg.NamespaceLabels != nil {
		add(Namespace, "", s.cfg.NamespaceLabels)
	}
	add(ClusterProperty, "", all)
	return feeds
}

// needed reports whether there is no state without this list. Without properties a cluster is just not known by name.
func (f *feed) needed() bool { return f.kind != ClusterProperty }

// name is the kind, and the namespace if it is but one.
func (f *feed) name() string {
	if f.scope == "" {
		return f.kind.String()
	}
	return f.kind.String() + " in " + f.scope
}

// touch notes that the API server was heard of.
func (f *feed) touch() {
	now := time.Now().UnixNano()
	f.contact.Store(now)
	f.store.contact.Store(now)
}

// What a feed waits before it tries again, at first and at most.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
)

// run lists and watches until ctx ends.
func (f *feed) run(ctx context.Context) error {
	// The feed tells what matters by itself.
	ctx = klog.NewContext(ctx, logr.Discard())
	var fo *follower
	defer func() { fo.close() }()
	pause := firstPause
	for {
		gv, err := f.bestVersion(ctx)
		if err == nil && (fo == nil || gv != fo.version) {
			fo.close()
			fo, err = f.newFollower(ctx, gv)
		}
		if err == nil {
			err = fo.reflector.ListAndWatchWithContext(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		f.fail(ctx, err)
		if f.wasWell() {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause + rand.N(pause/2)):
		}
		pause = min(2*pause, lastPause)
	}
}

// bestVersion returns the version to watch.
func (f *feed) bestVersion(ctx context.Context) (schema.GroupVersion, error) {
	return f.store.client.version(ctx, f.kind, f.scope)
}

// newest asks for the version up to which the API server knows what f watches.
func (f *feed) newest(ctx context.Context) (uint64, error) {
	gv, err := f.bestVersion(ctx)
	if err != nil {
		return 0, err
	}
	return f.store.client.newest(ctx, gv, resources[f.kind], f.scope)
}

// fail notes why an attempt ended, and tells it if that is news.
func (f *feed) fail(ctx context.Context, err error) {
	t := troubleOf(err)
	if t == fine || ctx.Err() != nil {
		return
	}
	s := f.store
	s.mu.Lock()
	news := t != f.trouble
	f.trouble = t
	// Nothing to wait for: what is there is shown without this list.
	if t == absent || t == forbidden {
		f.pending = false
	}
	forget := !f.needed() && !f.synced && t != lost
	s.mu.Unlock()
	if forget {
		s.objects.replace(f.kind, f.scope, nil) // what a snapshot says
	}
	if t == lost {
		select {
		case s.lost <- struct{}{}:
		default:
		}
	} else {
		s.contact.Store(time.Now().UnixNano())
		s.objects.stir()
	}
	if !news {
		return
	}
	switch t {
	case absent:
		s.cfg.Log.Warningf("%s: %s: not installed; looking again until it is", s.cfg.Name, f.name())
	case forbidden:
		s.cfg.Log.Errorf("%s: %s: rights are missing; trying again until they are there: %s", s.cfg.Name, f.name(), short(err))
	case lost:
		s.cfg.Log.Warningf("%s: %s: out of reach: %s", s.cfg.Name, f.name(), short(err))
	}
}

// opened notes that a watch is open: one that streams the list, so that a first list can succeed from now on, or one that
// goes on from a complete list.
func (f *feed) opened(version string, streams bool) {
	f.touch()
	f.store.mu.Lock()
	f.version, f.streams = version, streams
	f.pending = f.pending || !f.synced
	f.store.mu.Unlock()
	if !streams {
		f.recovered()
	}
}

// recovered notes that the list is complete and the watch is open. An API server that opens a watch may be no better than
// it was.
func (f *feed) recovered() {
	f.store.mu.Lock()
	was, version := f.trouble, f.version
	f.trouble, f.well = fine, true
	f.store.mu.Unlock()
	if was != fine {
		f.store.cfg.Log.Infof("%s: %s: watching %s", f.store.cfg.Name, f.name(), version)
	}
}

// lists notes that a list is under way by itself: it may be complete without a watch.
func (f *feed) lists() {
	f.touch()
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.streams = false
	f.pending = f.pending || !f.synced
}

// wasWell reports whether the last attempt got to what it wanted, and begins a new one.
func (f *feed) wasWell() bool {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	well := f.well
	f.well, f.streams = false, false
	return well
}

// troubleOf says what err means for the next attempt.
func troubleOf(err error) trouble {
	switch {
	case err == nil, errors.Is(err, errGuard), errors.Is(err, errMoved):
		return fine
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err),
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return fine // The reflector lists anew.
	case errors.Is(err, errAbsent), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return absent
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return forbidden
	}
	return lost
}

func short(err error) string {
	s := strings.ReplaceAll(err.Error(), "\n", " ")
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}

// accept takes one object through the door, and tells of what was refused for the first time.
func (f *feed) accept(obj any) item {
	f.touch()
	it, rejected := read(f.kind, obj)
	for _, r := range f.store.refused.note(f.kind, it.key, rejected) {
		f.store.cfg.Log.Warningf("%s %s: %s", f.kind, it.key, r.Detail)
	}
	return it
}

// Transformer makes the temporary store of the reflector hold items, not objects.
func (f *feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if _, ok := obj.(*item); ok {
			return obj, nil
		}
		it := f.accept(obj)
		return &it, nil
	}
}

// Add takes an object that is new.
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update takes an object that changed.
func (f *feed) Update(obj any) error {
	f.store.objects.put(f.kind, f.accept(obj), writeTime(obj.(metav1.Object)))
	return nil
}

// Delete takes an object that is gone, or is no longer selected.
func (f *feed) Delete(obj any) error {
	f.touch()
	key := keyOf(obj.(metav1.Object))
	f.store.refused.forget(f.kind, key)
	f.store.objects.remove(f.kind, key)
	return nil
}

// Replace takes a whole list.
func (f *feed) Replace(list []any, version string) error {
	items := make([]item, len(list))
	for i, obj := range list {
		if it, ok := obj.(*item); ok {
			items[i] = *it
		} else {
			items[i] = f.accept(obj)
		}
	}
	f.UpdateResourceVersion(version)
	f.replace(items)
	return nil
}

func (f *feed) replace(items []item) {
	f.touch()
	s := f.store
	s.mu.Lock()
	first := !f.synced
	f.synced = true
	s.mu.Unlock()
	s.objects.replace(f.kind, f.scope, items)
	s.refused.retain(f.kind, f.scope, items)
	s.mu.Lock()
	f.pending = false
	streams := f.streams
	s.mu.Unlock()
	if first {
		s.cfg.Log.Infof("%s: %s: listed %d objects", s.cfg.Name, f.name(), len(items))
	}
	if streams {
		f.recovered()
	}
	s.objects.stir()
}

// Resync has nothing to do: nothing that is kept can drift.
func (f *feed) Resync() error { return nil }

// Bookmark takes the sign that nothing happened.
func (f *feed) Bookmark(string) error {
	f.touch()
	return nil
}

// UpdateResourceVersion takes the version up to which everything is known.
func (f *feed) UpdateResourceVersion(version string) {
	if v, ok := parseVersion(version); ok {
		f.seen.Store(v)
	}
}

var (
	_ cache.TransformingStore      = (*feed)(nil)
	_ cache.ReflectorBookmarkStore = (*feed)(nil)
	_ cache.ResourceVersionUpdater = (*feed)(nil)
)
