package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A feed is one kind of a [Set]: the informer, and the server as the informer sees it.
type feed struct {
	set      *Set
	name     string
	example  runtime.Object
	options  WatchOptions
	source   cache.ListerWatcherWithContext
	informer cache.SharedIndexInformer
	started  sync.WaitGroup // lists that the reflector does not wait for, and taps

	mu      sync.Mutex
	err     error
	contact time.Time
	seen    uint64 // the newest version that the server told of
	rewound bool   // the server went back behind it
	listing listing
	tap     *tap // the open watch
	closed  bool
}

func newFeed(s *Set, example runtime.Object, o WatchOptions) *feed {
	if o.Transform == nil {
		o.Transform = dropManagedFields
	}
	f := &feed{set: s, name: nameOf(example), example: example, options: o}
	f.source = s.cfg.Client.ListWatch(example, o.Namespace, o.Labels, o.Fields)
	lw := &cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}
	f.informer = cache.NewSharedIndexInformer(lw, example, 0, o.Indexers)
	err := errors.Join(f.informer.SetTransform(o.Transform),
		f.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
	if err != nil {
		panic("watch: a new informer refused its options: " + err.Error())
	}
	return f
}

// dropManagedFields forgets who owns which field: that is most of an object, and nothing here reads it.
func dropManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func (f *feed) run(ctx context.Context) {
	f.informer.RunWithContext(ctx)
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.started.Wait()
}

// begin counts a list or a tap in, unless the feed is over.
func (f *feed) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.started.Add(1)
	return true
}

func (f *feed) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *feed) heard() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.contact
}

func (f *feed) version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// note takes a sign of the server: what came by t, or nil for a list, is as new as version.
func (f *feed) note(t *tap, version string) {
	v, err := strconv.ParseUint(version, 10, 64)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tap != t || f.rewound {
		return // what is left of a watch that was ended
	}
	f.contact = time.Now()
	if err == nil && v > f.seen {
		f.seen = v
	}
}

// checked takes the sign that a look found nothing wrong. It counts for a watch that is open: a kind that cannot be watched
// stays silent, whatever else the server answers.
func (f *feed) checked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tap != nil {
		f.contact = time.Now()
	}
}

// rewind ends the open watch, so that the reflector asks for another one and is told to list.
func (f *feed) rewind() {
	f.mu.Lock()
	open := f.tap
	f.rewound, f.seen, f.listing = true, 0, awaited
	f.mu.Unlock()
	if open != nil {
		open.Stop()
	}
}

// A listing is a list that the informer may not show yet. The zero value is none.
type listing struct {
	version uint64 // of the list
	before  uint64 // what the informer shows until then, if that is a later one
}

// awaited is a listing whose version is not known yet.
var awaited = listing{version: math.MaxUint64}

// listed says that the server sent a list, of a version that is "" as long as it streams, before the informer shows it.
func (f *feed) listed(version string) {
	f.mu.Lock()
	f.listing = awaited
	if version != "" {
		f.complete(version)
	}
	f.mu.Unlock()
	if f.options.Listed != nil {
		f.options.Listed()
	}
}

// complete says of which version a list is. The caller holds f.mu.
func (f *feed) complete(version string) {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		v = 0 // nothing can be compared with it
	}
	f.listing = listing{version: v}
	if shown := f.shown(); shown > v {
		f.listing.before = shown
	}
}

// streamed says that a list that came by t is complete.
func (f *feed) streamed(t *tap, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tap == t && !f.rewound {
		f.complete(version)
	}
}

// shown is the version that the informer shows, 0 before the first.
func (f *feed) shown() uint64 {
	text := cmp.Or(f.informer.GetStore().LastStoreSyncResourceVersion(), f.informer.LastSyncResourceVersion())
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// settled reports whether the informer shows the last list.
func (f *feed) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	shown := f.shown()
	return f.informer.HasSynced() && shown >= f.listing.version && (f.listing.before == 0 || shown != f.listing.before)
}

// fail notes why the kind cannot be followed and tells if that is news. nil means that it can.
func (f *feed) fail(err error) {
	f.mu.Lock()
	was := f.err
	f.err = err
	f.mu.Unlock()
	log, name := f.set.cfg.Log, f.set.cfg.Name
	switch {
	case err == nil && was == nil, err != nil && was != nil && classOf(err) == classOf(was):
	case err == nil:
		log.Infof("%s: %s: watching", name, f.name)
	case apierrors.IsNotFound(err):
		log.Warningf("%s: %s: not installed; looking again until it is", name, f.name)
	case apierrors.IsForbidden(err):
		log.Errorf("%s: %s: rights are missing; trying again until they are there: %s", name, f.name, short(err))
	default:
		log.Warningf("%s: %s: cannot be watched: %s", name, f.name, short(err))
	}
}

// again calls try, once the server is known to be the right one, until it succeeds or fails in a way that only the
// reflector can mend. So the reflector's own back-off, of up to a minute, never holds up a server that is back.
func (f *feed) again(ctx context.Context, try func() error) error {
	pause := firstPause
	for {
		if err := f.set.await(ctx); err != nil {
			return err
		}
		err := try()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil || classOf(err) == relist {
			f.fail(nil)
			return err
		}
		f.fail(err)
		if classOf(err) != ofKind {
			f.set.lookAgain()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + rand.N(pause/2)):
		}
		pause = min(2*pause, lastPause)
	}
}

// list is the list of the reflector, for servers that cannot stream one.
func (f *feed) list(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	if !f.begin() {
		return nil, context.Canceled
	}
	defer f.started.Done()
	if options.ResourceVersion == "0" {
		options.ResourceVersion = "" // what some cache has may be older than what was seen
	}
	err = f.again(ctx, func() error {
		if err := f.mayContinue(&options); err != nil {
			return err
		}
		if list, err = f.source.ListWithContext(ctx, options); err != nil {
			return err
		}
		return f.set.await(ctx) // the request may have made a connection
	})
	if err != nil {
		return nil, outward(ctx, err)
	}
	if m, err := meta.ListAccessor(list); err == nil {
		f.note(nil, m.GetResourceVersion())
		f.listed(m.GetResourceVersion())
	}
	return list, nil
}

// watch is the watch of the reflector.
func (f *feed) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if !f.begin() {
		return nil, context.Canceled
	}
	var opened watch.Interface
	err := f.again(ctx, func() (err error) {
		if err := f.mayContinue(&options); err != nil {
			return err
		}
		if opened, err = f.source.WatchWithContext(ctx, options); err != nil {
			return err
		}
		// The request may have made a connection. Nothing was read from it so far.
		if err = f.set.await(ctx); err != nil {
			opened.Stop()
		}
		return err
	})
	if err != nil {
		f.started.Done()
		return nil, outward(ctx, err)
	}
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		f.listed("")
	}
	return f.open(ctx, opened), nil
}

// mayContinue refuses, as the server should, to go on from a version that it does not know any longer.
func (f *feed) mayContinue(options *metav1.ListOptions) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.rewound:
	case options.ResourceVersion == "":
		f.rewound = false
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("%s: the server went back behind version %s", f.name, options.ResourceVersion))
	}
	return nil
}

// outward is an error as the reflector may see it. It sleeps without a look at its context over some others.
func outward(ctx context.Context, err error) error {
	if ctx.Err() != nil || classOf(err) == relist {
		return err
	}
	return errors.New(err.Error())
}

// isExpired reports whether a list or watch has to start without a version.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
