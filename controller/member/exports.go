package member

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// keptExports are the ServiceExports that the watch has delivered, and of those that are gone the ones that count still. Who deletes an export ends it.
// But what deletes the CRD deletes all exports first, one by one, which nobody has asked for (docs/spec/controller.md 3.2). So a read of the CRD decides:
//
//	           gone                 the CRD is there, and is not newer than the export
//	(counts) ───────▶ (undecided) ─────────────────────────────────────────────────────▶ (ended)
//	   ▲                   │ it is newer: another one was there when the export was                ▲
//	   │                   ▼                                                              │ its Service is gone
//	   └── is back ──── (kept) ───────────────────────────────────────────────────────────┘
//
// While the CRD is absent, about to go or not served, nothing is decided. One read decides on all that were gone before it.
//
// The informer drops an export before its handlers see that. So an export counts until the handler of keptExports has decided on it:
// [Cluster.Export] asks here for what the informer lacks. The methods may be called by several goroutines.
type keptExports struct {
	log  logging.Logger
	wake chan struct{} // capacity 1: some are undecided

	mu        sync.Mutex
	byKey     map[string]*mcsv1beta1.ServiceExport
	undecided map[string]bool                  // of byKey
	kept      map[string]bool                  // of byKey
	since     time.Time                        // when the CRD was created, zero until it is read
	notify    func([]types.NamespacedName)     // of services whose export counts no longer
	waits     logging.OnChangeOf[bool, string] // why nothing can be decided
}

func newKeptExports(log logging.Logger) *keptExports {
	return &keptExports{
		log: cmp.Or(log, logging.Discard), wake: make(chan struct{}, 1), byKey: make(map[string]*mcsv1beta1.ServiceExport),
		undecided: make(map[string]bool), kept: make(map[string]bool), notify: func([]types.NamespacedName) {},
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
				k.gone(exp)
			}
		},
	}
}

func (k *keptExports) put(exp *mcsv1beta1.ServiceExport) {
	key := KeyOf(exp).String()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.undecided, key)
	delete(k.kept, key)
	k.byKey[key] = exp
}

func (k *keptExports) gone(exp *mcsv1beta1.ServiceExport) {
	k.mu.Lock()
	k.undecided[KeyOf(exp).String()] = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run decides until ctx ends. definition reads the CRD of ServiceExport, and hasService reports whether a Service exists.
func (k *keptExports) run(ctx context.Context, definition func(context.Context) (*unstructured.Unstructured, error), hasService func(types.NamespacedName) bool) {
	read := func() (*unstructured.Unstructured, error) { return definition(ctx) }
	for ctx.Err() == nil {
		k.endKept(hasService)
		k.decide(read)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-time.After(time.Second):
		}
	}
}

// decide asks for the CRD if an export is undecided, and the first time.
func (k *keptExports) decide(definition func() (*unstructured.Unstructured, error)) {
	k.mu.Lock()
	keys, known := slices.Sorted(maps.Keys(k.undecided)), !k.since.IsZero()
	k.mu.Unlock()
	if len(keys) == 0 && known {
		return
	}
	since, err := existsSince(definition())
	if err != nil {
		if len(keys) > 0 && k.waits.Changed(true, err.Error()) {
			k.log.Errorf("local: ServiceExport: %d are gone, and stay exported: %v", len(keys), err)
		}
		return
	}
	k.waits.Clear(true)
	var ended []string
	k.mu.Lock()
	k.since = since
	for _, key := range keys {
		switch exp := k.byKey[key]; {
		case !k.undecided[key]: // it is back
			continue
		case exp == nil, !exp.CreationTimestamp.Time.Before(since):
			delete(k.byKey, key)
			ended = append(ended, key)
		default:
			k.kept[key] = true
			k.log.Warningf("local: ServiceExport %s went with its CRD, and stays exported: create it again, or delete the Service", key)
		}
		delete(k.undecided, key)
	}
	k.mu.Unlock()
	k.ended(ended...)
}

// existsSince returns when the CRD was created, or why it does not say that an export was deleted.
func existsSince(definition *unstructured.Unstructured, err error) (time.Time, error) {
	if err != nil {
		return time.Time{}, err
	}
	if definition.GetDeletionTimestamp() != nil {
		return time.Time{}, errors.New("the CRD is being deleted")
	}
	if _, err := crd.MCS()[0].Check(definition); err != nil {
		return time.Time{}, err
	}
	return definition.GetCreationTimestamp().Time, nil
}

// endKept ends what is kept without a Service.
func (k *keptExports) endKept(hasService func(types.NamespacedName) bool) {
	var ended []string
	k.mu.Lock()
	for key := range k.kept {
		if !hasService(parseKey(key)) {
			delete(k.kept, key)
			delete(k.byKey, key)
			ended = append(ended, key)
		}
	}
	k.mu.Unlock()
	k.ended(ended...)
}

// createdSince returns when the CRD was created, zero if that is not known yet.
func (k *keptExports) createdSince() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.since
}

// waiting returns how many exports are gone and count still.
func (k *keptExports) waiting() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.undecided) + len(k.kept)
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
