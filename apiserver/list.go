package apiserver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// list is the list of the reflector: of kinds whose store reads lists itself, and of servers that cannot stream one.
func (w *listWatch) list(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	if !w.begin() {
		return nil, context.Canceled
	}
	defer w.started.Done()
	err = w.attempt(ctx, func() error {
		o := options
		if err := w.mayContinue(&o); err != nil {
			return err
		}
		if err := w.choose(ctx); err != nil {
			return err
		}
		var err error
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
		return nil, outward(ctx, err)
	}
	if m, err := meta.ListAccessor(list); err == nil {
		w.note(nil, m.GetResourceVersion(), false)
		w.siftList(list, options.Continue == "", m.GetContinue() == "")
		if m.GetContinue() == "" {
			w.mu.Lock()
			w.listComplete(m.GetResourceVersion())
			w.move(listed, nil)
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
	list, err := w.request(&options).Do(ctx).Get()
	if err == nil {
		err = w.set.awaitCheck(ctx)
	}
	if err == nil {
		w.happened(listing, nil)
	}
	return list, err
}

// readList lets the store read a list as it comes. Streamed as a watch a list of custom resources would cost the API server
// twice the CPU time, because it encodes each event by itself. Decoded as a whole it would be the largest thing in memory here.
func (w *listWatch) readList(ctx context.Context, options metav1.ListOptions) (_ runtime.Object, err error) {
	// As new as etcd, and yet from the memory of the API server, which makes no pages. An API server whose memory lags
	// behind rejects that, and the reflector asks for "": from etcd itself, then.
	options.Limit = 0
	if options.ResourceVersion == "0" {
		newest, err := w.set.newest(ctx, w)
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
	body, err := w.request(&options).Throttle(unlimited).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if err := w.set.awaitCheck(ctx); err != nil {
		return nil, err
	}
	w.happened(listing, nil)
	return w.reader.ReadList(contactReader{body, w})
}

// A contactReader notes contact with each part of a list.
type contactReader struct {
	io.Reader
	owner *listWatch
}

func (r contactReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 {
		r.owner.mu.Lock()
		r.owner.markContact()
		r.owner.mu.Unlock()
	}
	return n, err
}

// An unshownList is a list that the informer may not show yet. The zero value is no list. With the greatest version, the
// version of the list is not known yet.
type unshownList struct {
	version uint64 // of the list
	before  uint64 // what the informer shows until then, if that is a later one
}

// listComplete says of which version a list is. The caller holds w.mu.
func (w *listWatch) listComplete(version string) {
	if w.informer == nil {
		return
	}
	w.unshown = unshownList{version: VersionNumber(version)} // with 0 nothing can be compared
	if shown := w.shown(); shown > w.unshown.version {
		w.unshown.before = shown
	}
}

// shown is the version that the informer shows, 0 before the first.
func (w *listWatch) shown() uint64 {
	return VersionNumber(cmp.Or(w.informer.GetStore().LastStoreSyncResourceVersion(), w.informer.LastSyncResourceVersion()))
}

// synced reports whether the store has, or had, a complete list.
func (w *listWatch) synced() bool {
	if w.informer != nil {
		return w.informer.HasSynced()
	}
	return w.current().Listed
}

// consistent reports whether the informer shows the last list.
func (w *listWatch) consistent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	shown := w.shown()
	return w.informer.HasSynced() && shown >= w.unshown.version && (w.unshown.before == 0 || shown != w.unshown.before)
}
