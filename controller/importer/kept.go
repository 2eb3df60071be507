package importer

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// kept holds, by service, the clusters with objects that stay imported although the broker lacks them. The zero value
// is empty. The methods may be called by several goroutines.
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

// services returns the number of services of each cluster.
func (k *kept) services() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	services := make(map[string]int)
	for _, clusters := range k.all {
		for _, c := range clusters {
			services[c]++
		}
	}
	return services
}
