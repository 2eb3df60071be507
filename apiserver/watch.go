package apiserver

import (
	"context"
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watch is the watch of the reflector.
func (w *listWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if !w.begin() {
		return nil, context.Canceled
	}
	streams := options.SendInitialEvents != nil && *options.SendInitialEvents
	var source watch.Interface
	err := w.attempt(ctx, func() (err error) {
		o := options
		if err := w.mayContinue(&o); err != nil {
			return err
		}
		if streams {
			err = w.choose(ctx)
		} else {
			err = w.chosen(ctx)
		}
		if err != nil {
			return err
		}
		o.Watch = true
		if source, err = w.request(&o).Watch(ctx); err != nil {
			if streams && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
				return fmt.Errorf("%w: %w", errNoStream, err)
			}
			return err
		}
		if err = w.set.awaitCheck(ctx); err != nil {
			source.Stop()
		}
		return err
	})
	if err != nil {
		w.started.Done()
		return nil, outward(ctx, err)
	}
	return w.open(ctx, source, streams), nil
}

// open begins to pass on the events of source. The caller has called begin.
func (w *listWatch) open(ctx context.Context, source watch.Interface, streams bool) *watchProxy {
	p := newWatchProxy(w, source)
	w.mu.Lock()
	w.proxy = p
	w.markContact()
	if streams {
		w.unshown = unshownList{version: math.MaxUint64}
		w.bad.begin()
		w.move(listing, nil)
	} else {
		w.move(opened, nil)
	}
	late := w.rolledBack
	w.mu.Unlock()
	if late { // the rollback was found while the watch was opened
		p.Stop()
	}
	go p.run(ctx)
	return p
}
