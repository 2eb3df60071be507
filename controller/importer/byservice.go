package importer

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// A byService holds a list for each service that has one. The zero value is empty. Several goroutines may call the
// methods.
type byService[T any] struct {
	mu sync.Mutex
	of map[types.NamespacedName][]T
}

// set replaces the list of a service.
func (b *byService[T]) set(svc types.NamespacedName, list []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(list) == 0:
		delete(b.of, svc)
		return
	case b.of == nil:
		b.of = make(map[types.NamespacedName][]T)
	}
	b.of[svc] = list
}

// all returns the lists by service. The caller may change the map.
func (b *byService[T]) all() map[types.NamespacedName][]T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.of)
}
