package member

import (
	"maps"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
)

// endProperty is how long the watch must be healthy after the last deletion of a ClusterProperty before one that is
// gone counts no longer.
const endProperty = 3 * time.Second

// keptProperties are the ClusterProperties that the watch has delivered. A deleted property stays in use until its
// deletion is confirmed: with the CRD all of them are deleted, one by one, and one that does not decode is not deleted
// (docs/spec/controller.md 7.1). Exports reach clusters by their properties, so a property that is lost by mistake
// would remove imports.
//
//	deleted ──► gone ── endProperty after the last deletion, if it does not exist and that of the cluster id does ──► forgotten
//	             │  ▲
//	             │  └── while the kind is absent, or the watch fails for another reason
//	             └───── it is there again ──► as delivered
//
// The properties of cluster id and membership have rules of their own, in package identity. Several goroutines may call
// the methods.
type keptProperties struct {
	changed func() // called when one counts no longer

	mu     sync.Mutex
	byName map[string]*aboutv1beta1.ClusterProperty
	gone   map[string]bool
	last   time.Time // when one was deleted, or release last found the watch unhealthy
}

func newKeptProperties(changed func()) *keptProperties {
	return &keptProperties{changed: changed, byName: make(map[string]*aboutv1beta1.ClusterProperty),
		gone: make(map[string]bool)}
}

// seen handles an event of the informer, one after the other.
func (k *keptProperties) seen(before, after *aboutv1beta1.ClusterProperty, _ bool) {
	if after == nil {
		k.end(before.Name, time.Now())
	} else {
		k.put(after)
	}
}

func (k *keptProperties) put(o *aboutv1beta1.ClusterProperty) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byName[o.GetName()] = o
	delete(k.gone, o.GetName())
}

func (k *keptProperties) end(name string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone[name], k.last = true, now
	if name == about.ClusterIDName || name == about.ClusterSetName {
		delete(k.byName, name)
		delete(k.gone, name)
	}
}

// release forgets those that are gone for long enough and that exists does not report.
func (k *keptProperties) release(now time.Time, healthy bool, exists func(name string) bool) {
	k.mu.Lock()
	var ended bool
	switch {
	case !healthy:
		k.last = now
	case now.Sub(k.last) >= endProperty:
		for name := range k.gone {
			if !exists(name) {
				delete(k.gone, name)
				delete(k.byName, name)
				ended = true
			}
		}
	}
	k.mu.Unlock()
	if ended {
		k.changed()
	}
}

// orFormer returns those that the informer has and the kept ones, by name. The kept ones are read first, as in
// [keptExports.orFormer].
func (k *keptProperties) orFormer(
	informer func() []*aboutv1beta1.ClusterProperty,
) map[string]*aboutv1beta1.ClusterProperty {
	k.mu.Lock()
	all := maps.Clone(k.byName)
	k.mu.Unlock()
	for _, o := range informer() {
		all[o.GetName()] = o
	}
	return all
}
