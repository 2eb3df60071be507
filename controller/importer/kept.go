package importer

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// kept has, by service, the clusters of which something stays imported because the broker lost it or has an old copy. The zero value is empty. The methods
// may be called by several goroutines.
type kept struct {
	mu  sync.Mutex
	all map[types.NamespacedName][]string
}

func (k *kept) set(svc types.NamespacedName, clusters []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(clusters) == 0 {
		delete(k.all, svc)
		return
	}
	if k.all == nil {
		k.all = make(map[types.NamespacedName][]string)
	}
	k.all[svc] = clusters
}
