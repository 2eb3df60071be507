package apiserver

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// quietTime is how long a watch without an event may be in contact: an API server sends a bookmark each minute. A proxy
// may have stalled it, so a watch that is quiet for longer is opened anew.
const quietTime = 100 * time.Second

// progressTime is when a quiet watch asks for progress, in time for its first bookmark. An API server sends a bookmark
// only of a newer version. It learns of newer ones by events of the kind, by its etcd, which tells each 10 minutes by
// default, and by reads as new as etcd (KEP-2340).
const progressTime = 25 * time.Second

// A watchProxy stands between an open watch and its reflector. It notes what passes, and can be stopped from outside:
// the reflector then asks its listWatch for the next watch, and can be made to list.
//
//	API server ──► watch.Interface ──► watchProxy ──► reflector ──► store
//	                                       │
//	                                       ▼ version, contact, end of the list, end of the watch
//	                                   listWatch
type watchProxy struct {
	heard  Contact // of the last event or bookmark, or of its beginning
	asked  bool    // for progress; guarded by listWatch.mu
	source watch.Interface
	note   func(*watchProxy, watch.Event) watch.Event // returns an event as the reflector may see it
	ended  func(*watchProxy)                          // called once, when nothing more is passed on
	events chan watch.Event
	stop   chan struct{}
	once   sync.Once
}

func newWatchProxy(source watch.Interface, note func(*watchProxy, watch.Event) watch.Event,
	ended func(*watchProxy)) *watchProxy {
	p := &watchProxy{source: source, note: note, ended: ended, events: make(chan watch.Event), stop: make(chan struct{})}
	p.heard.Mark()
	return p
}

// Stop ends the watch.
func (p *watchProxy) Stop() {
	p.once.Do(func() {
		close(p.stop)
		p.source.Stop()
		p.ended(p)
	})
}

// ResultChan is where the events come out.
func (p *watchProxy) ResultChan() <-chan watch.Event { return p.events }

// run passes on events until the watch or ctx ends.
func (p *watchProxy) run(ctx context.Context) {
	defer close(p.events)
	defer p.Stop()
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
			event = p.note(p, event)
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
