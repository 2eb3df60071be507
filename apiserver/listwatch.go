package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// A listWatch is one watch of a [Set]: what its reflector asks lists and watches of, in place of the API server. It adds to a
// cache.ListWatch that requests wait for the server check, that they are repeated until they succeed or the reflector has
// something to decide, that the API version is the best one that is served, and that the [Health] is known.
//
//	            awaitCheck          request                 covers?
//	reflector ────────────► pause ───────────► API server ───────────► reflector
//	  ▲   list or watch       ▲                   │  error: failed(class)
//	  │                       └───────────────────┘
//	  └── an error of class Expired: the reflector lists without a version, or without a stream
//
// A request may make a connection, to another server. So the check has to cover it before anything is read from the answer.
//
// Of its set it uses the server check (awaitCheck, requestCheck, check), the versions that the server has (bestVersion), the newest resource
// version of its kind (newest), and the client, name and log of the configuration.
type listWatch struct {
	set      *Set
	id       WatchID
	resource Resource
	options  WatchOptions
	reader   ListReader                // nil if lists are decoded as a whole
	informer cache.SharedIndexInformer // nil if there is a store
	follow   func(ctx context.Context) // runs the reflector until ctx ends
	started  sync.WaitGroup            // lists that the reflector does not wait for, and proxies
	logged   logging.Failure[Class]    // the normal state is OK

	mu         sync.Mutex
	health     Health
	gv         schema.GroupVersion // the version that is followed
	rest       rest.Interface      // of gv
	seen       uint64              // the newest resource version that the server sent
	landmark   *landmark           // the newest event, nil before the first
	rolledBack bool                // the reflector has to list without a version
	unshown    unshownList
	bad        undecodables
	proxy      *watchProxy // the open watch
	closed     bool
}

func newListWatch(s *Set, r Resource, o WatchOptions) *listWatch {
	w := &listWatch{set: s, id: WatchID{r.Kind, o.Namespace}, resource: r, options: o}
	for _, other := range s.watches {
		if other.id == w.id {
			panic(fmt.Sprintf("apiserver: watch %s is added twice", w.id))
		}
	}
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

// happened moves the state of the watch. err is the reason of a failed event.
func (w *listWatch) happened(e event, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.move(e, err)
}

// move is happened for a caller that holds w.mu.
func (w *listWatch) move(e event, err error) {
	before := w.health
	w.health = before.after(e, err, time.Now())
	switch class := w.health.Class; {
	case w.health.State == Watching:
		if w.logged.Changed(OK, nil) {
			w.set.cfg.Log.Infof("%s: watching %s", w.subject(), w.gv)
		}
	case !class.ofServer(): // see logFailure
		w.logClass()
	}
	if w.options.Changed != nil && (w.health.State != before.State || w.health.Class != before.Class) {
		w.options.Changed(w.health)
	}
}

// logFailure logs a failure of the server's kind that the server check after it did not find.
func (w *listWatch) logFailure() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logClass()
}

func (w *listWatch) logClass() {
	if class := w.health.Class; class != OK && w.logged.Changed(class, w.health.Err) {
		class.log(w.set.cfg.Log, w.subject(), w.health.Err)
	}
}

// subject begins log lines.
func (w *listWatch) subject() string { return w.set.cfg.Name + ": " + w.id.String() }

func (w *listWatch) current() Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.health
	if w.rest != nil {
		h.Version = w.gv.String()
	}
	return h
}

// seenSoFar returns the newest resource version that the server sent, 0 if it is not known, the newest event, and whether the watch is open.
func (w *listWatch) seenSoFar() (uint64, *landmark, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, w.landmark, w.proxy != nil
}

// markContact notes that the server sent what was asked for. While it rejects the credential that counts for nothing: a watch
// that was opened before may stay open for minutes, and then breaks. The caller holds w.mu.
func (w *listWatch) markContact() {
	if _, err := w.set.check.failure(); Classify(err) == Unauthorized {
		return
	}
	w.health.LastContact = time.Now()
	if w.options.Contact != nil {
		w.options.Contact.Mark()
	}
}

// markChecked notes that the server check found nothing wrong. It counts for a watch that is open: one that cannot be opened
// has no contact, whatever else the server answers. It returns the proxy of a watch that is stalled.
func (w *listWatch) markChecked() *watchProxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.proxy == nil:
		return nil
	case w.proxy.heard.Age() > quietTime:
		return w.proxy
	}
	w.markContact()
	return nil
}

// note takes what came by a proxy, or nil for a list. complete says that it is the end of a streamed list.
func (w *listWatch) note(p *watchProxy, version string, complete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy != p || w.rolledBack {
		return // what is left of a watch that was stopped
	}
	w.markContact()
	w.set.heard.Mark()
	if p != nil {
		p.heard.Mark()
	}
	if v := VersionNumber(version); v > w.seen {
		w.seen = v
	}
	if complete {
		w.bad.end()
		w.listComplete(version)
		w.move(streamed, nil)
	}
}

// broke takes an error that came by a proxy. The watch ends with it; one that is not about versions the next attempt finds
// again, if it lasts.
func (w *listWatch) broke(p *watchProxy, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy == p && Classify(err) == Expired {
		w.move(expired, nil)
	}
}

// ended notes that a proxy passes on nothing more.
func (w *listWatch) ended(p *watchProxy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy == p {
		w.proxy = nil
		w.move(ended, nil)
	}
}

// rollBack makes the reflector list without a version once the proxy that is returned, nil if there is none, is stopped. A
// reason of nil means that it is no failure.
func (w *listWatch) rollBack(why error) *watchProxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rolledBack, w.seen, w.landmark, w.unshown = true, 0, nil, unshownList{version: math.MaxUint64}
	if why == nil {
		w.move(expired, nil)
	} else {
		w.move(failed, why)
	}
	return w.proxy
}

// attempt calls try, each time once the server check covers all connections, until it succeeds or fails in a way that the
// reflector has to act upon. So the back-off of the reflector, of up to a minute, never delays a server that is back.
func (w *listWatch) attempt(ctx context.Context, try func() error) error {
	backoff, began := NewBackoff(), time.Now()
	for explained := true; ; {
		if err := w.set.awaitCheck(ctx); err != nil {
			return err
		}
		if !explained {
			w.logFailure()
		}
		err := try()
		class := Classify(err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case class == OK:
			return nil
		case class == Expired:
			w.happened(expired, nil)
			return err
		}
		w.happened(failed, err)
		if class.ofServer() { // the next check may find out more, and log it once for all watches
			finished := w.set.check.next()
			w.set.doubt.Store(true)
			w.set.requestCheck()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-finished:
			}
			_, err := w.set.check.failure()
			explained = err != nil
		}
		if err := Sleep(ctx, class.pause(backoff.After(err), time.Since(began))); err != nil {
			return err
		}
	}
}

// choose makes the best version that is served the one that is followed.
func (w *listWatch) choose(ctx context.Context) error {
	gv, err := w.set.bestVersion(ctx, w.resource, w.options.Namespace)
	if err != nil {
		return err
	}
	client, err := w.set.cfg.Client.restFor(gv, objectCodecs{w.resource.Codecs.WithoutConversion()}, w.resource.Custom)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gv, w.rest = gv, client
	return nil
}

// chosen fails if another version than the one that was listed is the best one now.
func (w *listWatch) chosen(ctx context.Context) error {
	gv, err := w.set.bestVersion(ctx, w.resource, w.options.Namespace)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if gv != w.gv {
		return fmt.Errorf("%w: %s", errMoved, gv)
	}
	return nil
}

// request is a request for objects of the version that is followed.
func (w *listWatch) request(options *metav1.ListOptions) *rest.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	options.LabelSelector, options.FieldSelector = w.options.Labels, w.options.Fields
	namespace := w.options.Namespace
	return w.rest.Get().NamespaceIfScoped(namespace, w.resource.Namespaced && namespace != "").Resource(w.resource.Plural).
		SpecificallyVersionedParams(options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}

// mayContinue fails, as the server should, a request to go on from a version that the server does not know any longer.
func (w *listWatch) mayContinue(options *metav1.ListOptions) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.rolledBack:
	case options.ResourceVersion == "" && options.Continue == "":
		w.rolledBack = false
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("%s: version %s is from before a rollback", w.id, options.ResourceVersion))
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

// outward is an error as the reflector may see it: upon some others it sleeps without regard to its context.
func outward(ctx context.Context, err error) error {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return err
	}
	return errors.New(err.Error())
}

// VersionNumber returns a resource version as a number: the versions of one etcd count up. It is 0 for any other text.
func VersionNumber(version string) uint64 {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
