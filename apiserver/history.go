package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A history is the state of the watches of one resource at one moment. A
// version counts all writes to the etcd that the resource is in.
type history struct {
	watches  []*listWatch
	asks     *scope    // of the watch with the landmark, or else of an open one if there is one
	landmark *landmark // nil without an event
	version  uint64    // the newest
	again    bool      // another interruption came before this was verified
}

// histories returns the history of each resource with a known version.
func histories(watches []*listWatch) map[schema.GroupResource]*history {
	all := make(map[schema.GroupResource]*history)
	for _, w := range watches {
		version, l, open := w.seenSoFar()
		if version == 0 {
			continue
		}
		key := schema.GroupResource{Group: w.scope.resource.Group, Resource: w.scope.resource.Plural}
		h := all[key]
		if h == nil {
			h = &history{asks: &w.scope}
			all[key] = h
		}
		h.watches, h.version = append(h.watches, w), max(h.version, version)
		switch {
		case l != nil && (h.landmark == nil || h.landmark.version < l.version):
			h.landmark, h.asks = l, &w.scope
		case h.landmark == nil && open:
			h.asks = &w.scope
		}
	}
	return all
}

// verify returns nil if the server has the history, and an error of class Expired if that is unknown.
func (h *history) verify(ctx context.Context) error {
	kind := h.asks.resource.Kind
	current, newest, err := h.read(ctx, 0)
	switch l := h.landmark; {
	case err != nil:
		return err
	case newest > 0 && newest < h.version:
		return fmt.Errorf("%w: version %d of %s, was %d", errRolledBack, newest, kind, h.version)
	case l == nil || !l.deleted && l.matches(current): // it was not written since
		return nil
	}
	retained, err := h.hadLandmark(ctx)
	if err == nil && !retained {
		return fmt.Errorf("%w: without version %d of %s", errRolledBack, h.landmark.version, kind)
	}
	return err
}

// hadLandmark reports whether the server had the landmark at its version.
func (h *history) hadLandmark(ctx context.Context) (bool, error) {
	l := h.landmark
	current, _, err := h.read(ctx, l.version)
	if !l.deleted || err != nil || current != nil {
		return err == nil && !l.deleted && l.matches(current), err
	}
	before, _, err := h.read(ctx, l.version-1)
	return before != nil && before.UID == l.uid, err
}

// read asks for the landmark, see [scope.read].
func (h *history) read(ctx context.Context, version uint64) (*foundObject, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*checkTimeout)
	defer cancel()
	return h.asks.read(ctx, h.landmark, version)
}
