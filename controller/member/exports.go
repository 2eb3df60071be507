package member

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// keptExports are the ServiceExports that the watch has delivered, and of those that are gone the ones that are withheld: with the CRD
// all exports disappear at once, which is seldom meant (docs/spec/controller.md 3.2).
//
// The informer drops an export before its handlers see that. So an export counts until the handler of keptExports has decided on it:
// [Cluster.Export] asks here for what the informer lacks. The methods may be called by several goroutines.
type keptExports struct {
	confirm time.Duration // a mass withdrawal takes effect if the watch was healthy for so long
	log     logging.Logger

	mu       sync.Mutex
	byKey    map[string]*mcsv1beta1.ServiceExport
	withheld apiserver.Withheld
	notify   func([]types.NamespacedName) // of services whose export counts no longer
}

func newKeptExports(confirm time.Duration, log logging.Logger) *keptExports {
	confirm = cmp.Or(confirm, apiserver.ConfirmAfter)
	log = cmp.Or(log, logging.Discard)
	return &keptExports{
		confirm: confirm, log: log, byKey: make(map[string]*mcsv1beta1.ServiceExport), notify: func([]types.NamespacedName) {},
	}
}

// handler returns what an informer calls, one event after the other.
func (k *keptExports) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.put(o.(*mcsv1beta1.ServiceExport)) },
		UpdateFunc: func(_, o any) { k.put(o.(*mcsv1beta1.ServiceExport)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if exp, ok := o.(*mcsv1beta1.ServiceExport); ok {
				k.gone(exp, time.Now())
			}
		},
	}
}

func (k *keptExports) put(exp *mcsv1beta1.ServiceExport) {
	key := KeyOf(exp).String()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.withheld.Drop(key)
	k.byKey[key] = exp
}

// gone withholds the deletion of an export, or lets it count no longer.
func (k *keptExports) gone(exp *mcsv1beta1.ServiceExport, now time.Time) {
	key := KeyOf(exp).String()
	k.mu.Lock()
	total := len(k.byKey)
	mass, withheld := k.withheld.Add(key, total, now)
	if mass {
		k.log.Errorf("local: ServiceExport: %d of %d are gone at once; they stay exported until that is so for %s",
			k.withheld.Len(), total, k.confirm)
	}
	if !withheld {
		delete(k.byKey, key)
	}
	k.mu.Unlock()
	if !withheld {
		k.ended(key)
	}
}

// release ends what was withheld for long enough.
func (k *keptExports) release(now time.Time, healthy bool) {
	var keys []string
	k.mu.Lock()
	mass := k.withheld.Release(now, k.confirm, healthy, func(key string) {
		delete(k.byKey, key)
		keys = append(keys, key)
	})
	if mass > 0 {
		k.log.Warningf("local: ServiceExport: %d that are gone are no longer exported", mass)
	}
	k.mu.Unlock()
	k.ended(keys...)
}

// ended notifies of services whose export counts no longer.
func (k *keptExports) ended(keys ...string) {
	if len(keys) == 0 {
		return
	}
	k.mu.Lock()
	notify := k.notify
	k.mu.Unlock()
	services := make([]types.NamespacedName, len(keys))
	for i, key := range keys {
		services[i] = parseKey(key)
	}
	notify(services)
}

// handle makes notify the function that is called from now on.
func (k *keptExports) handle(notify func([]types.NamespacedName)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notify = notify
}

// beside returns the export with a key that the informer has, or else the kept one, nil if it does not exist. The kept one is read first. An export
// may come back while its end is released: asked the other way round, the informer would lack it as it is not back yet, and the kept ones as its
// end was released since, though it counted at every moment.
func (k *keptExports) beside(
	key string, informer func(key string) (*mcsv1beta1.ServiceExport, bool),
) *mcsv1beta1.ServiceExport {
	kept := k.get(key)
	if exp, ok := informer(key); ok {
		return exp
	}
	return kept
}

// get returns the export with a key, nil if it does not exist.
func (k *keptExports) get(key string) *mcsv1beta1.ServiceExport {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byKey[key]
}

// keys returns the services of all.
func (k *keptExports) keys() []types.NamespacedName {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []types.NamespacedName
	for key := range k.byKey {
		all = append(all, parseKey(key))
	}
	return all
}
