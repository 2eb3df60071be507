package broker

import (
	"maps"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// stamps gives the stamps of this process, and records the highest one of each object that it gave or saw. A lower
// stamp on the broker shows a rollback: the object must be written again. The zero value is ready.
type stamps struct {
	clock protocol.Clock

	mu    sync.Mutex
	last  map[objectID]protocol.Stamp
	floor protocol.Stamp // lower stamps are old
}

// An objectID names an object in the broker namespace of this member.
type objectID struct{ kind, name string }

func (l *stamps) next() protocol.Stamp { return l.clock.Next(time.Now()) }

// raise makes all stamps of before old.
func (l *stamps) raise() {
	s := l.next()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = s
}

// see records the stamp of a copy of an object. It reports whether the copy is old: this process gave or saw a higher
// stamp, or raised the floor above it.
func (l *stamps) see(id objectID, s protocol.Stamp) (old bool) {
	l.clock.See(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = make(map[objectID]protocol.Stamp)
	}
	old = s < max(l.floor, l.last[id])
	l.last[id] = max(l.last[id], s)
	return old
}

// knows reports whether an object was seen, and is not forgotten.
func (l *stamps) knows(id objectID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.last[id]
	return ok
}

func (l *stamps) forget(id objectID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, id)
}

// StampOf returns the stamp of a slice, or 0.
func StampOf(s *discoveryv1.EndpointSlice) protocol.Stamp { return protocol.Stamp(desired.StampOf(s)) }

// inventories holds the newest known copy of each part of the members' inventories: the broker may lose it, or go back
// to an older one. The zero value is empty.
type inventories struct {
	mu     sync.Mutex
	newest map[string]*v1alpha1.Inventory // by broker namespace and name
}

// see records a copy. It returns the newest copy before and after that; either may be nil.
func (n *inventories) see(key string, i *v1alpha1.Inventory) (before, after *v1alpha1.Inventory) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before = n.newest[key]
	if after = newer(before, i); after != before {
		if n.newest == nil {
			n.newest = make(map[string]*v1alpha1.Inventory)
		}
		n.newest[key] = after
	}
	return before, after
}

// get returns the newest copy that was seen, or nil.
func (n *inventories) get(key string) *v1alpha1.Inventory {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest[key]
}

// forget drops the inventories of a removed cluster, which may join again with other stamps.
func (n *inventories) forget(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.newest, func(key string, _ *v1alpha1.Inventory) bool {
		return strings.HasPrefix(key, namespace+"/")
	})
}

// newer returns the one with the higher stamp, or nil.
func newer(a, b *v1alpha1.Inventory) *v1alpha1.Inventory {
	if a == nil || b != nil && b.Spec.Stamp >= a.Spec.Stamp {
		return b
	}
	return a
}
