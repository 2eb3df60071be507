package importer

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/merge"
)

// conflicts has the conflicts of all services, for readers. Several goroutines may call the methods.
type conflicts struct {
	mu sync.Mutex
	of map[types.NamespacedName][]merge.Conflict
}

// set replaces those of a service.
func (c *conflicts) set(svc types.NamespacedName, all []merge.Conflict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(all) == 0:
		delete(c.of, svc)
		return
	case c.of == nil:
		c.of = make(map[types.NamespacedName][]merge.Conflict)
	}
	c.of[svc] = all
}

// all returns a copy of all.
func (c *conflicts) all() map[types.NamespacedName][]merge.Conflict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}
