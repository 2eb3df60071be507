package broker

import (
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// stamps gives the stamps of this process, and records the last one of each object. A lower stamp on the broker shows a rollback: the object
// must be written again. The zero value is ready.
type stamps struct {
	clock protocol.Clock

	mu   sync.Mutex
	last map[objectID]protocol.Stamp
}

// An objectID names an object in the broker namespace of this member.
type objectID struct{ kind, name string }

func (l *stamps) next() protocol.Stamp { return l.clock.Next(time.Now()) }

func (l *stamps) wrote(id objectID, s protocol.Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = make(map[objectID]protocol.Stamp)
	}
	l.last[id] = s
}

func (l *stamps) forget(id objectID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, id)
}

// isOld reports whether this process wrote a newer copy than the one with stamp s.
func (l *stamps) isOld(id objectID, s protocol.Stamp) bool {
	l.clock.See(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	return s < l.last[id]
}

// stampOf returns the stamp of a slice, or 0.
func stampOf(s *discoveryv1.EndpointSlice) protocol.Stamp {
	stamp, err := strconv.ParseInt(s.Annotations[broker.AnnotationStamp], 10, 64)
	if err != nil {
		return 0
	}
	return protocol.Stamp(stamp)
}
