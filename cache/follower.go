package cache

import (
	"context"
	"errors"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// A follower lists and watches one version of what a feed takes.
type follower struct {
	feed      *feed
	version   schema.GroupVersion
	rest      *rest.RESTClient
	reflector *cache.Reflector

	mu     sync.Mutex // guards what follows; the reflector lists in a goroutine that it does not wait for
	failed error      // of the last list that was to be streamed
	closed bool
	lists  sync.WaitGroup
}

// errMoved ends the watch of a version that is no longer the best one.
var errMoved = errors.New("the preferred version changed")

var errClosed = errors.New("closed")

// newFollower makes the follower of a version. What it asks for ends with ctx.
func (f *feed) newFollower(ctx context.Context, version schema.GroupVersion) (*follower, error) {
	rc, err := f.store.client.of(f.kind, version)
	if err != nil {
		return nil, err
	}
	fo := &follower{feed: f, version: version, rest: rc}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		// The reflector gives a list a context that never ends.
		ListWithContextFunc:  func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) { return fo.list(ctx, o) },
		WatchFuncWithContext: fo.watch,
	}, resources[f.kind])
	fo.reflector = cache.NewReflectorWithOptions(lw, resources[f.kind].example, f, cache.ReflectorOptions{
		Name:            f.name(),
		TypeDescription: f.kind.String(),
		Backoff:         &wait.Backoff{Duration: firstPause, Cap: lastPause, Steps: 10, Factor: 2, Jitter: 0.5},
	})
	return fo, nil
}

// close waits for what the reflector left behind.
func (fo *follower) close() {
	if fo == nil {
		return
	}
	fo.mu.Lock()
	fo.closed = true
	fo.mu.Unlock()
	fo.lists.Wait()
}

// watch is the watch of the reflector.
func (fo *follower) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := fo.open(ctx, &options)
	if options.SendInitialEvents != nil {
		fo.mu.Lock()
		fo.failed = err
		fo.mu.Unlock()
	}
	if err == nil {
		return w, nil
	}
	if options.SendInitialEvents == nil || !cannotStream(err) {
		fo.feed.fail(ctx, err)
	}
	if options.SendInitialEvents != nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		// The reflector would recognize these, and sleep without a look at ctx.
		return nil, errors.New("watch: " + err.Error())
	}
	return nil, err
}

// cannotStream reports whether err comes from an API server that lists only when it is asked for a list.
func cannotStream(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

func (fo *follower) open(ctx context.Context, options *metav1.ListOptions) (watch.Interface, error) {
	f := fo.feed
	if options.SendInitialEvents == nil {
		version, err := f.bestVersion(ctx)
		if err != nil {
			return nil, err
		}
		if version != fo.version {
			return nil, errMoved
		}
	}
	if err := f.store.checkNewConnection(ctx, f); err != nil {
		return nil, err
	}
	options.Watch = true
	w, err := fo.request(options).Watch(ctx)
	if err != nil {
		return nil, err
	}
	// The request may have made the connection. Nothing was read from it so far.
	if err := f.store.checkNewConnection(ctx, f); err != nil {
		w.Stop()
		return nil, err
	}
	f.opened(fo.version.String(), options.SendInitialEvents != nil)
	return w, nil
}

// list is the list of the reflector.
func (fo *follower) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := fo.mayList(); err != nil {
		return nil, err
	}
	defer fo.lists.Done()
	if resources[fo.feed.kind].custom {
		return fo.listCustom(ctx, options)
	}
	list, err := fo.request(&options).Do(ctx).Get()
	if err == nil {
		err = fo.feed.store.checkNewConnection(ctx, fo.feed)
	}
	if err == nil {
		fo.feed.lists()
	}
	return list, err
}

// mayList begins a list, which the caller has to end. After one that was to be streamed it is for a server that cannot do
// that, not for one that does not answer.
func (fo *follower) mayList() error {
	fo.mu.Lock()
	defer fo.mu.Unlock()
	switch {
	case fo.closed:
		return errClosed
	case fo.failed != nil && !cannotStream(fo.failed):
		return fo.failed
	}
	fo.lists.Add(1)
	return nil
}

// listCustom reads a list of custom resources. Streamed as a watch it would cost the API server twice the CPU time: it
// encodes each event by itself. In one piece it would be the largest thing in memory here.
func (fo *follower) listCustom(ctx context.Context, options metav1.ListOptions) (_ runtime.Object, err error) {
	f := fo.feed
	if err := f.store.checkNewConnection(ctx, f); err != nil {
		return nil, err
	}
	// As new as etcd, and yet from the memory of the API server, which makes no pages. An API server whose memory lags
	// behind refuses that, and the reflector asks for "": from etcd itself, then.
	options.Limit = 0
	if options.ResourceVersion == "0" {
		newest, err := f.newest(ctx)
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
	body, err := fo.request(&options).Throttle(unlimited).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	// The request may have made the connection. Nothing was read from it so far.
	if err := f.store.checkNewConnection(ctx, f); err != nil {
		return nil, err
	}
	f.lists()
	return readList(body, f.accept)
}

func (fo *follower) request(options *metav1.ListOptions) *rest.Request {
	f := fo.feed
	options.LabelSelector = f.selector.String()
	return fo.rest.Get().NamespaceIfScoped(f.scope, f.scope != "").Resource(resources[f.kind].plural).
		SpecificallyVersionedParams(options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}
