package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// A sliceWatch follows which imported slices of a member are hidden from proxies, and counts how often each is written.
type sliceWatch struct {
	watch apiwatch.Interface
	done  chan struct{}

	mu     sync.Mutex
	slices map[string]seenSlice // by namespace and name
	shown  map[string]int       // how many slices of each cluster are not hidden
	writes map[string]int
	last   time.Time // of the last write
	failed error
}

// A seenSlice is one slice as it was seen last.
type seenSlice struct {
	cluster string
	hidden  bool
}

// watchSlices begins with the slices that there are.
func watchSlices(ctx context.Context, m *testclusterset.Member) (*sliceWatch, error) {
	client, err := metadata.NewForConfig(m.Config())
	if err != nil {
		return nil, err
	}
	of := client.Resource(schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1",
		Resource: "endpointslices"})
	imported := metav1.ListOptions{LabelSelector: mcsv1beta1.LabelServiceName}
	list, err := of.List(ctx, imported)
	if err != nil {
		return nil, err
	}
	w := newSliceWatch()
	for i := range list.Items {
		w.set(&list.Items[i])
	}
	// It goes on where it was when the API server ends a watch.
	w.watch, err = watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = imported.LabelSelector
			return of.Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

func newSliceWatch() *sliceWatch {
	return &sliceWatch{
		done: make(chan struct{}), slices: map[string]seenSlice{}, shown: map[string]int{}, writes: map[string]int{},
		last: time.Now(),
	}
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func seen(o metav1.Object) seenSlice {
	_, hidden := o.GetLabels()[corev1.IsHeadlessService]
	return seenSlice{o.GetLabels()[mcsv1beta1.LabelSourceCluster], hidden}
}

func (w *sliceWatch) run() {
	defer close(w.done)
	for event := range w.watch.ResultChan() {
		w.take(event)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = cmp.Or(w.failed, errors.New("watch of slices: it ended"))
}

func (w *sliceWatch) take(event apiwatch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := event.Object.(metav1.Object)
	if !ok {
		w.failed = fmt.Errorf("watch of slices: %v", event.Object)
		return
	}
	w.writes[key(o)]++
	w.last = time.Now()
	if event.Type == apiwatch.Deleted {
		w.remove(o)
		return
	}
	w.set(o)
}

// set notes what a slice is. The caller holds the lock once the watch runs.
func (w *sliceWatch) set(o metav1.Object) {
	w.remove(o)
	is := seen(o)
	w.slices[key(o)] = is
	if !is.hidden {
		w.shown[is.cluster]++
	}
}

// remove is set for a slice that is gone.
func (w *sliceWatch) remove(o metav1.Object) {
	if was, known := w.slices[key(o)]; known && !was.hidden {
		w.shown[was.cluster]--
	}
	delete(w.slices, key(o))
}

// stop ends the watch. What the watch reports of its own end is no failure.
func (w *sliceWatch) stop() {
	w.watch.Stop()
	<-w.done
}

// forget begins to count writes anew.
func (w *sliceWatch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.writes)
}

// written returns how many slices were written, and how often the one that was written most.
func (w *sliceWatch) written() (slices, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.writes {
		most = max(most, n)
	}
	return len(w.writes), most
}

// quiet waits until nothing was written for so long.
func (w *sliceWatch) quiet(ctx context.Context, d time.Duration) error {
	for {
		w.mu.Lock()
		left, failed := d-time.Since(w.last), w.failed
		w.mu.Unlock()
		if left <= 0 || failed != nil {
			return failed
		}
		if err := pause(ctx, left); err != nil {
			return err
		}
	}
}

// shows waits until all of n slices of one cluster are shown and those of another are hidden, and returns when the last
// of them was written.
func (w *sliceWatch) shows(ctx context.Context, shown, hidden string, n int) (time.Time, error) {
	var stalled stall[[2]int]
	for {
		got, last, err := w.visible(shown, hidden)
		if err != nil || got == [2]int{n, 0} {
			return last, err
		}
		err = pause(ctx, crossPoll)
		if err == nil && stalled.lasts(got) {
			err = fmt.Errorf("no progress for %s", crossPatience)
		}
		if err != nil {
			return last, fmt.Errorf("%d slices of %s and %d of %s are shown, want %d and 0: %w", got[0], shown, got[1], hidden,
				n, err)
		}
	}
}

// visible returns how many slices of two clusters are shown.
func (w *sliceWatch) visible(a, b string) (shown [2]int, last time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return [2]int{w.shown[a], w.shown[b]}, w.last, w.failed
}
