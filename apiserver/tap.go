package apiserver

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A tap is an open watch of a feed, which notes what passes.
type tap struct {
	feed   *feed
	source watch.Interface
	events chan watch.Event
	stop   chan struct{}
	once   sync.Once
}

// open begins to pass on the events of source. The caller has counted it in.
func (f *feed) open(ctx context.Context, source watch.Interface) *tap {
	t := &tap{feed: f, source: source, events: make(chan watch.Event), stop: make(chan struct{})}
	f.mu.Lock()
	f.tap, f.contact = t, time.Now()
	stale := f.rewound
	f.mu.Unlock()
	if stale { // the server went back while the watch was opened
		t.Stop()
	}
	go t.run(ctx)
	return t
}

// Stop ends the watch.
func (t *tap) Stop() {
	t.once.Do(func() {
		close(t.stop)
		t.source.Stop()
		t.feed.mu.Lock()
		defer t.feed.mu.Unlock()
		if t.feed.tap == t {
			t.feed.tap = nil
		}
	})
}

// ResultChan is where the events come out.
func (t *tap) ResultChan() <-chan watch.Event { return t.events }

func (t *tap) run(ctx context.Context) {
	defer t.feed.started.Done()
	defer t.leave()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.stop:
			return
		case event, ok := <-t.source.ResultChan():
			if !ok {
				return
			}
			t.note(event)
			select {
			case <-ctx.Done():
				return
			case <-t.stop:
				return
			case t.events <- event:
			}
		}
	}
}

func (t *tap) note(event watch.Event) {
	if event.Type == watch.Error {
		return
	}
	if m, err := meta.Accessor(event.Object); err == nil {
		t.feed.note(t, m.GetResourceVersion())
		if event.Type == watch.Bookmark && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			t.feed.streamed(t, m.GetResourceVersion())
		}
	}
}

// leave ends the watch. A watch that ends may have lost its server, so somebody should look.
func (t *tap) leave() {
	t.Stop()
	close(t.events)
	t.feed.set.lookAgain()
}
