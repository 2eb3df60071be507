package importer

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// A byService holds a value for some services. The zero value is empty. Several goroutines may call the methods.
type byService[V any] struct {
	mu sync.Mutex
	of map[types.NamespacedName]V
}

// set replaces the value of a service, or with has false drops it.
func (b *byService[V]) set(svc types.NamespacedName, v V, has bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !has:
		delete(b.of, svc)
		return
	case b.of == nil:
		b.of = make(map[types.NamespacedName]V)
	}
	b.of[svc] = v
}

// get returns the value of a service, zero if it has none.
func (b *byService[V]) get(svc types.NamespacedName) V {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[svc]
}

// all returns the values by service. The caller may change the map.
func (b *byService[V]) all() map[types.NamespacedName]V {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.of)
}
