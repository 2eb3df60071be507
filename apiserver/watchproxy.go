package apiserver

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// quietTime is how long a watch without an event may be in contact: an API server sends a bookmark each minute. A proxy may have stalled it,
// so a watch that is quiet for longer is opened anew.
const quietTime = 100 * time.Second

// A watchProxy stands between an open watch and its reflector. It notes what passes, and can be stopped from outside: the
// reflector then asks its listWatch for the next watch, and can be made to list.
//
//	API server ──► watch.Interface ──► watchProxy ──► reflector ──► store
//	                                       │
//	                                       ▼ version, contact, end of the list, end of the watch
//	                                   listWatch
type watchProxy struct {
	owner  *listWatch
	heard  Contact // of the last event or bookmark, or of its beginning
	source watch.Interface
	events chan watch.Event
	stop   chan struct{}
	once   sync.Once
}

func newWatchProxy(owner *listWatch, source watch.Interface) *watchProxy {
	p := &watchProxy{owner: owner, source: source, events: make(chan watch.Event), stop: make(chan struct{})}
	p.heard.Mark()
	return p
}

// Stop ends the watch.
func (p *watchProxy) Stop() {
	p.once.Do(func() {
		close(p.stop)
		p.source.Stop()
		p.owner.ended(p)
	})
}

// ResultChan is where the events come out.
func (p *watchProxy) ResultChan() <-chan watch.Event { return p.events }

// run passes on events until the watch or ctx ends. The caller has called owner.begin.
func (p *watchProxy) run(ctx context.Context) {
	defer p.owner.started.Done()
	defer p.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.stop:
			return
		case event, ok := <-p.source.ResultChan():
			if !ok {
				return
			}
			event = p.note(event)
			select {
			case <-ctx.Done():
				return
			case <-p.stop:
				return
			case p.events <- event:
			}
		}
	}
}

// note takes note of an event, and returns it as the reflector may see it.
func (p *watchProxy) note(event watch.Event) watch.Event {
	if event.Type == watch.Error {
		p.owner.broke(p, apierrors.FromObject(event.Object))
		return event
	}
	if m, err := meta.Accessor(event.Object); err == nil {
		complete := event.Type == watch.Bookmark && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		p.owner.note(p, m.GetResourceVersion(), complete)
		p.owner.mark(p, event.Type, m)
	}
	return p.owner.sift(event)
}

// end ends the watch. It may have ended because the server is gone.
func (p *watchProxy) end() {
	p.Stop()
	close(p.events)
	p.owner.set.requestCheck()
}
