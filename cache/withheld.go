package cache

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/apiserver"
)

// withheld keeps objects served that are gone: ServiceImports and ClusterProperties, in watch.gone
// (docs/spec/dns.md 6.9), and the EndpointSlices of such imports, the orphans. Kubernetes deletes the slices with their
// owner.
type withheld struct {
	cfg       *Config
	set       *apiserver.Set // nil with manifests, which withhold nothing
	watches   *watches
	objects   *objects
	published *published

	mu      sync.Mutex
	orphans map[string]string // key of the import, by key of the slice
}

// withhold withholds the deletion of an object that is served, and reports whether it did.
func (h *withheld) withhold(w *watch, key string) bool {
	if h.set == nil || !h.published.State().Ready {
		return false
	}
	switch w.Kind {
	case Namespace:
		return false
	case EndpointSlice:
		imp := h.objects.importOf(key)
		if !h.hasImport(imp) {
			return false
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.orphans[key] = imp
		return true
	}
	total := h.objects.count(w.Kind, w.Namespace)
	mass, ok := w.gone.Add(key, total, time.Now())
	if mass && w.Kind == ServiceImport {
		h.cfg.Log.Errorf("%s: %s: %d of %d are gone at once; they are served until that is so for %s", h.cfg.Name, w.id(),
			w.gone.Len(), total, h.cfg.ConfirmAfter)
	}
	return ok
}

// drop ends that the deletion of an object is withheld.
func (h *withheld) drop(w *watch, key string) {
	if w.Kind != EndpointSlice {
		w.gone.Drop(key)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.orphans, key)
}

// hasImport reports whether the deletion of an import is withheld.
func (h *withheld) hasImport(key string) bool {
	return slices.ContainsFunc(h.watches.all, func(w *watch) bool { return w.Kind == ServiceImport && w.gone.Has(key) })
}

// imports is the number of imports with a withheld deletion.
func (h *withheld) imports() (n int) {
	for _, w := range h.watches.all {
		if w.Kind == ServiceImport {
			n += w.gone.Len()
		}
	}
	return n
}

// run ends withheld deletions that are old enough, until ctx ends.
func (h *withheld) run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		for _, w := range h.watches.all {
			healthy := h.set.Health(w.id()).Healthy()
			mass := w.gone.Release(time.Now(), h.cfg.ConfirmAfter, healthy, func(key string) { h.objects.remove(w.Kind, key) })
			if mass > 0 && w.Kind == ServiceImport {
				h.cfg.Log.Warningf("%s: %s: %d that are gone are no longer served", h.cfg.Name, w.id(), mass)
			}
		}
		h.releaseOrphans()
	}, time.Second)
	return nil
}

// releaseOrphans removes each slice with an import that is no longer withheld. A concurrent drop waits, as in
// [apiserver.Withheld].
func (h *withheld) releaseOrphans() {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.orphans, func(slice, imp string) bool {
		gone := !h.hasImport(imp)
		if gone {
			h.objects.remove(EndpointSlice, slice)
		}
		return gone
	})
}
