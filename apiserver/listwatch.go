package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// A listWatch is one watch of a [Set]: what its reflector asks lists and watches of, in place of the API server. It
// adds to a cache.ListWatch that requests wait for the server check, that they are repeated until they succeed or the
// reflector has something to decide, that the API version is the best one that is served, and that the [Health] is
// known.
//
//	            check.await         request                 covers?
//	reflector ────────────► pause ───────────► API server ───────────► reflector
//	  ▲   list or watch       ▲                   │  error: failed(class)
//	  │                       └───────────────────┘
//	  └── an error of class Expired: the reflector lists without a version, or without a stream
//
// A request may make a connection, to another server. So the check has to cover it before anything is read from the
// answer.
type listWatch struct {
	id      WatchID
	scope   scope
	check   *serverCheck // of all watches of the server
	health  watchHealth
	listed  shownList
	bad     *undecodables
	reader  ListReader                // nil if lists are decoded as a whole
	follow  func(ctx context.Context) // runs the reflector until ctx ends
	started sync.WaitGroup            // lists that the reflector does not wait for, and proxies

	mu         sync.Mutex
	seen       uint64      // the newest resource version that the server sent
	landmark   *landmark   // the newest event, nil before the first
	rolledBack bool        // the reflector has to list without a version
	proxy      *watchProxy // the open watch
	stalled    bool        // the watch brings nothing, or the one before did not, and nothing has come since
	closed     bool
}

func newListWatch(cfg SetConfig, check *serverCheck, r Resource, o WatchOptions) *listWatch {
	id := WatchID{r.Kind, o.Namespace}
	w := &listWatch{
		id: id, check: check, scope: scope{client: cfg.Client, resource: r, options: o},
		health: watchHealth{subject: cfg.Name + ": " + id.String(), log: cfg.Log, changed: o.Changed,
			contact: cmp.Or(o.Contact, new(Contact))},
	}
	w.bad = newUndecodables(r, o.Undecodable, &w.listed)
	return w
}

// source is what the reflector lists and watches.
func (w *listWatch) source() cache.ListerWatcher {
	lw := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}
	return cache.ToListWatcherWithWatchListSemantics(lw, w)
}

// IsWatchListSemanticsUnSupported makes the reflector ask for a list where the store reads lists itself.
func (w *listWatch) IsWatchListSemanticsUnSupported() bool { return w.reader != nil }

// run follows the watch until ctx ends.
func (w *listWatch) run(ctx context.Context) {
	w.follow(ctx)
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.started.Wait()
}

// begin counts a list or a proxy in, unless run is about to return. Then started.Done counts it out.
func (w *listWatch) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.started.Add(1)
	return true
}

// synced reports whether the store has, or had, a complete list.
func (w *listWatch) synced() bool {
	if w.listed.informer != nil {
		return w.listed.informer.HasSynced()
	}
	return w.health.current().Listed
}

// seenSoFar returns the newest resource version that the server sent, 0 if it is not known, the newest event, and
// whether the watch is open.
func (w *listWatch) seenSoFar() (uint64, *landmark, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, w.landmark, w.proxy != nil
}

// markContact notes that the server sent what was asked for. While it rejects the credential that counts for nothing: a
// watch that was opened before may stay open for minutes, and then breaks.
func (w *listWatch) markContact() {
	if Classify(w.check.failure()) != Unauthorized {
		w.health.contact.Mark()
	}
}

// markChecked notes that the server check passed. It counts for an open watch only: a watch that cannot be opened has
// no contact. It returns the proxy of a stalled watch. The next watch may be stalled, too: it has no contact until
// something comes.
func (w *listWatch) markChecked() *watchProxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.proxy == nil:
		return nil
	case w.proxy.heard.Age() > quietTime:
		w.stalled = true
		return w.proxy
	case w.stalled:
		return nil
	}
	w.markContact()
	return nil
}

// askProgress makes the API server send bookmarks of a quiet kind, once for each watch: see progressTime.
func (w *listWatch) askProgress(ctx context.Context) {
	w.mu.Lock()
	due := w.proxy != nil && !w.proxy.asked && w.proxy.heard.Age() > progressTime
	if due {
		w.proxy.asked = true
	}
	w.mu.Unlock()
	if !due || !w.begin() {
		return
	}
	go func() {
		defer w.started.Done()
		ctx, cancel := context.WithTimeout(ctx, 2*checkTimeout)
		defer cancel()
		_, _, _ = w.scope.read(ctx, nil, 0) // without an answer the watch is opened anew after quietTime
	}()
}

// rollBack makes the reflectors of watches list without a version, all of them before the first can. A reason of nil
// means that it is no failure.
func rollBack(watches []*listWatch, why error) {
	var open []*watchProxy
	for _, w := range watches {
		if p := w.rollBack(why); p != nil {
			open = append(open, p)
		}
	}
	for _, p := range open {
		p.Stop()
	}
}

// rollBack makes the reflector list without a version once the returned proxy, which may be nil, is stopped.
func (w *listWatch) rollBack(why error) *watchProxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rolledBack, w.seen, w.landmark = true, 0, nil
	w.listed.begin()
	if why == nil {
		w.health.handleEvent(expired, nil)
	} else {
		w.health.handleEvent(failed, why)
	}
	return w.proxy
}

// attempt calls prepare, which is of the scope, and try, each time once the server check covers all connections. It
// ends when they succeed or fail in a way that the reflector has to act upon. So the back-off of the reflector, of up
// to a minute, never delays a server that is back.
func (w *listWatch) attempt(
	ctx context.Context, o metav1.ListOptions, prepare func(context.Context) error, try func(metav1.ListOptions) error,
) error {
	backoff, began := NewBackoff(), time.Now()
	for explained := true; ; {
		if err := w.check.await(ctx); err != nil {
			return err
		}
		if !explained {
			w.health.logFailure()
		}
		err := w.mayContinue(o)
		if err == nil {
			err = prepare(ctx)
		}
		if err == nil {
			w.health.setVersion(w.scope.gv)
			err = try(o)
		}
		class := Classify(err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case class == OK:
			return nil
		case class == Expired:
			w.health.handleEvent(expired, nil)
			return err
		}
		w.health.handleEvent(failed, err)
		if class.ofServer() { // the next check may find out more, and log it once for all watches
			_, finished := w.check.covers()
			w.check.doubt.Store(true)
			w.check.request()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-finished:
			}
			explained = w.check.failure() != nil
		}
		if err := Sleep(ctx, class.pause(backoff.After(err), time.Since(began))); err != nil {
			return err
		}
	}
}

// mayContinue fails, as the server should, a request to go on from a version that the server does not know any longer.
func (w *listWatch) mayContinue(options metav1.ListOptions) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.rolledBack:
	case options.ResourceVersion == "" && options.Continue == "":
		w.rolledBack = false
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("%s: version %s is from before a rollback", w.id,
			options.ResourceVersion))
	}
	return nil
}

// mayKeep fails for a list that was requested before a rollback was found, or before another cluster was adopted.
func (w *listWatch) mayKeep() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rolledBack {
		return apierrors.NewResourceExpired(fmt.Sprintf("%s: the list is from before a rollback", w.id))
	}
	return nil
}

// list is the list of the reflector: for kinds whose store reads lists itself, and for servers that cannot stream
// lists.
func (w *listWatch) list(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	if !w.begin() {
		return nil, context.Canceled
	}
	defer w.started.Done()
	err = w.attempt(ctx, options, w.scope.chooseVersion, func(o metav1.ListOptions) (err error) {
		if w.reader != nil {
			list, err = w.readList(ctx, o)
		} else {
			list, err = w.getList(ctx, o)
		}
		return err
	})
	if err == nil {
		err = w.mayKeep()
	}
	if err != nil {
		return nil, reflectorError(ctx, err)
	}
	if m, err := meta.ListAccessor(list); err == nil {
		w.note(nil, m.GetResourceVersion(), false)
		if options.Continue == "" {
			w.bad.begin()
		}
		w.bad.siftList(list)
		if m.GetContinue() == "" {
			w.mu.Lock()
			w.complete(m.GetResourceVersion(), listed)
			w.mu.Unlock()
		}
	}
	return list, nil
}

// getList asks for a list and decodes it as a whole.
func (w *listWatch) getList(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = "" // what some cache has may be older than what was seen
	}
	list, err := w.scope.request(&options).Do(ctx).Get()
	if err == nil {
		err = w.check.await(ctx)
	}
	if err == nil {
		w.health.handleEvent(listing, nil)
	}
	return list, err
}

// readList lets the store read a list as it comes. Streamed as a watch a list of custom resources would cost the API
// server twice the CPU time, because it encodes each event by itself. Decoded as a whole it would be the largest thing
// in memory here.
func (w *listWatch) readList(ctx context.Context, options metav1.ListOptions) (_ runtime.Object, err error) {
	// As new as etcd, but from the memory of the API server, which makes no pages. An API server whose memory lags
	// rejects that, and the reflector then asks for "": from etcd itself.
	options.Limit = 0
	if options.ResourceVersion == "0" {
		newest, err := w.scope.newest(ctx)
		if err != nil {
			return nil, err
		}
		options.ResourceVersion = ""
		if newest > 0 {
			options.ResourceVersion = strconv.FormatUint(newest, 10)
		}
	}
	if options.ResourceVersion != "" {
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	body, err := w.scope.request(&options).Throttle(unlimited).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if err := w.check.await(ctx); err != nil {
		return nil, err
	}
	w.health.handleEvent(listing, nil)
	return w.reader.ReadList(contactReader{body, w.markContact})
}

// A contactReader notes contact with each part of a list.
type contactReader struct {
	io.Reader
	markContact func()
}

func (r contactReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 {
		r.markContact()
	}
	return n, err
}

// watch is the watch of the reflector.
func (w *listWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if !w.begin() {
		return nil, context.Canceled
	}
	streams, prepare := options.SendInitialEvents != nil && *options.SendInitialEvents, w.scope.checkVersion
	if streams {
		prepare = w.scope.chooseVersion
	}
	var source watch.Interface
	err := w.attempt(ctx, options, prepare, func(o metav1.ListOptions) (err error) {
		o.Watch = true
		if source, err = w.scope.request(&o).Watch(ctx); err != nil {
			if streams && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
				return fmt.Errorf("%w: %w", errNoStream, err)
			}
			return err
		}
		if err = w.check.await(ctx); err != nil {
			source.Stop()
		}
		return err
	})
	if err != nil {
		w.started.Done()
		return nil, reflectorError(ctx, err)
	}
	return w.open(ctx, source, streams), nil
}

// open begins to pass on the events of source. The caller has called begin.
func (w *listWatch) open(ctx context.Context, source watch.Interface, streams bool) *watchProxy {
	p := newWatchProxy(source, w.pass, w.ended)
	w.mu.Lock()
	w.proxy = p
	w.markContact()
	if streams {
		w.listed.begin()
		w.bad.begin()
		w.health.handleEvent(listing, nil)
	} else {
		w.health.handleEvent(opened, nil)
	}
	late := w.rolledBack
	w.mu.Unlock()
	if late { // the rollback was found while the watch was opened
		p.Stop()
	}
	go func() {
		defer w.started.Done()
		p.run(ctx)
		w.check.request() // the watch may have ended because the server is gone
	}()
	return p
}

// pass takes note of an event that came by a proxy, and returns it as the reflector may see it. The watch ends with an
// error; one that is not about versions the next attempt finds again, if it lasts.
func (w *listWatch) pass(p *watchProxy, event watch.Event) watch.Event {
	if event.Type == watch.Error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.proxy == p && Classify(apierrors.FromObject(event.Object)) == Expired {
			w.health.handleEvent(expired, nil)
		}
		return event
	}
	if m, err := meta.Accessor(event.Object); err == nil {
		complete := event.Type == watch.Bookmark && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		w.note(p, m.GetResourceVersion(), complete)
		w.mark(p, event.Type, m)
	}
	return w.bad.sift(event)
}

// note takes an event of a proxy, or nil for a list. complete marks the end of a streamed list.
func (w *listWatch) note(p *watchProxy, version string, complete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy != p || w.rolledBack {
		return // an event of a watch that was stopped
	}
	w.stalled = false
	w.markContact()
	w.check.heard.Mark()
	if p != nil {
		p.heard.Mark()
	}
	w.seen = max(w.seen, VersionNumber(version))
	if complete {
		w.complete(version, streamed)
	}
}

// complete notes the end of a list of a version: the event is listed or streamed. The caller holds w.mu.
func (w *listWatch) complete(version string, e event) {
	w.listed.complete(version)
	w.bad.end()
	w.health.handleEvent(e, nil)
}

// mark makes an event the landmark of the watch if it is the newest.
func (w *listWatch) mark(p *watchProxy, event watch.EventType, o metav1.Object) {
	if _, undecodable := o.(*Undecodable); undecodable || event == watch.Bookmark {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy == p && !w.rolledBack && (w.landmark == nil || w.landmark.version < VersionNumber(o.GetResourceVersion())) {
		w.landmark = newLandmark(o, event == watch.Deleted)
	}
}

// ended notes that a proxy passes on nothing more.
func (w *listWatch) ended(p *watchProxy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy == p {
		w.proxy = nil
		w.health.handleEvent(ended, nil)
	}
}

// reflectorError is an error as the reflector may see it: upon some others it sleeps without regard to its context.
func reflectorError(ctx context.Context, err error) error {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return err
	}
	return errors.New(err.Error())
}
