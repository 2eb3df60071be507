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
	"github.com/clusterset-dns/clusterset/apiserver"
)

// keptExports holds the delivered ServiceExports, and some that were deleted. A deleted export ends. But deleting the
// CRD deletes all exports first, one by one, which nobody has asked for (docs/spec/controller.md 3.2). So a read of the
// CRD decides:
//
//	           deleted                 the CRD exists, and is no newer than the export
//	(counts) ───────────▶ (undecided) ─────────────────────────────────────────────────▶ (ended)
//	   ▲                      │ the CRD is newer: it replaced the one of the export            ▲
//	   │                      ▼                                                             │ the Service is deleted
//	   └── created again ── (kept) ──────────────────────────────────────────────────────────┘
//
// Nothing is decided while the CRD is missing, terminating or not served. A single read decides for all deletions
// before it. The first read, after the first list, decides for exports of an earlier process. Until then these count,
// too.
//
// The informer drops an export before its handlers run. So [Cluster.Export] asks here for an export that the informer
// lacks. The methods may be called by several goroutines.
type keptExports struct {
	log    logging.Logger
	wake   chan struct{}                // capacity 1: some are undecided
	notify func([]types.NamespacedName) // for services of ended exports; nil for those of an earlier process

	mu        sync.Mutex
	byKey     map[string]*mcsv1beta1.ServiceExport
	undecided map[string]*mcsv1beta1.ServiceExport // as the informer delivered the deletion
	kept      map[string]bool                      // of byKey
	ended     map[string]bool                      // until they are created again
	since     time.Time                            // creation of the CRD, zero until it is read
	waits     logging.OnChangeOf[bool, string]     // the error of the last read
}

func newKeptExports(log logging.Logger, notify func([]types.NamespacedName)) *keptExports {
	return &keptExports{
		log: cmp.Or(log, logging.Discard), wake: make(chan struct{}, 1), byKey: make(map[string]*mcsv1beta1.ServiceExport),
		undecided: make(map[string]*mcsv1beta1.ServiceExport), kept: make(map[string]bool), ended: make(map[string]bool),
		notify: notify,
	}
}

// changed handles an event of the informer, one after the other.
func (k *keptExports) changed(before, after *mcsv1beta1.ServiceExport, _ bool) {
	if after == nil {
		k.deleted(before)
	} else {
		k.put(after)
	}
}

func (k *keptExports) put(exp *mcsv1beta1.ServiceExport) {
	key := KeyOf(exp).String()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.undecided, key)
	delete(k.kept, key)
	delete(k.ended, key)
	k.byKey[key] = exp
}

func (k *keptExports) deleted(exp *mcsv1beta1.ServiceExport) {
	k.mu.Lock()
	k.undecided[KeyOf(exp).String()] = exp
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// readPeriod is the least time between two reads of the CRD.
const readPeriod = 100 * time.Millisecond

// run decides from the first list of ServiceExports on until ctx ends. definition reads their CRD, and hasService
// reports whether a Service exists.
func (k *keptExports) run(
	ctx context.Context, listed func() bool, definition func(context.Context) (*unstructured.Unstructured, error),
	hasService func(types.NamespacedName) bool,
) {
	read := func() (*unstructured.Unstructured, error) { return definition(ctx) }
	cache.WaitForCacheSync(ctx.Done(), listed)
	for ctx.Err() == nil {
		k.endKept(hasService)
		k.decide(read)
		_ = apiserver.Sleep(ctx, readPeriod) // the loop looks at ctx
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-time.After(time.Second):
		}
	}
}

// decide reads the CRD if an export is undecided, and the first time.
func (k *keptExports) decide(definition func() (*unstructured.Unstructured, error)) {
	k.mu.Lock()
	undecided, known := maps.Clone(k.undecided), !k.since.IsZero()
	k.mu.Unlock()
	if len(undecided) == 0 && known {
		return
	}
	since, err := existsSince(definition())
	if err != nil {
		if len(undecided) > 0 && k.waits.Changed(true, err.Error()) {
			k.log.Errorf("local: ServiceExport: %d are gone, and stay exported: %v", len(undecided), err)
		}
		return
	}
	k.waits.Clear(true)
	var keys []string
	k.mu.Lock()
	k.since = since
	for _, key := range slices.Sorted(maps.Keys(undecided)) {
		if k.undecided[key] != undecided[key] { // created again, and maybe deleted after the read
			continue
		}
		delete(k.undecided, key)
		// The informer may deliver a name alone as deleted.
		if exp := k.byKey[key]; exp != nil && exp.CreationTimestamp.Time.Before(since) {
			k.kept[key] = true
			k.log.Warningf(
				"local: ServiceExport %s went with its CRD, and stays exported: create it again, or delete the Service", key)
			continue
		}
		delete(k.byKey, key)
		keys = append(keys, key)
	}
	k.mu.Unlock()
	if !known {
		k.notify(nil)
	}
	k.end(keys)
}

// existsSince returns when the CRD was created, or an error if no deletion can be decided by it.
func existsSince(definition *unstructured.Unstructured, err error) (time.Time, error) {
	if err != nil {
		return time.Time{}, err
	}
	if definition.GetDeletionTimestamp() != nil {
		return time.Time{}, errors.New("the CRD is being deleted")
	}
	if served, err := crd.MCS()[0].Check(definition); served.Version == "" {
		return time.Time{}, err
	}
	return definition.GetCreationTimestamp().Time, nil
}

// endKept ends the kept exports without a Service.
func (k *keptExports) endKept(hasService func(types.NamespacedName) bool) {
	var keys []string
	k.mu.Lock()
	for key := range k.kept {
		if !hasService(parseKey(key)) {
			delete(k.kept, key)
			delete(k.byKey, key)
			keys = append(keys, key)
		}
	}
	k.mu.Unlock()
	k.end(keys)
}

// known reports whether ServiceExports were listed, and their CRD read after that.
func (k *keptExports) known() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.since.IsZero()
}

// goesOn reports whether an export of an earlier process, created at a time and not here now, has not ended: that is
// not known yet, or it went with an earlier CRD.
func (k *keptExports) goesOn(key string, created time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.ended[key] && (k.since.IsZero() || created.Before(k.since))
}

// waiting returns the number of deleted exports that have not ended.
func (k *keptExports) waiting() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.undecided) + len(k.kept)
}

// end notes and notifies of exports that ended.
func (k *keptExports) end(keys []string) {
	if len(keys) == 0 {
		return
	}
	services := make([]types.NamespacedName, len(keys))
	k.mu.Lock()
	for i, key := range keys {
		services[i] = parseKey(key)
		if k.byKey[key] == nil {
			k.ended[key] = true
		}
	}
	k.mu.Unlock()
	k.notify(services)
}

// orFormer returns the export with a key that the informer has, or else the kept one, nil if it does not exist. The
// kept one is read first. An export may come back while its end is released: asked the other way round, the informer
// would lack it as it is not back yet, and the kept ones as its end was released since, though it counted at every
// moment.
func (k *keptExports) orFormer(
	key string, informer func(key string) *mcsv1beta1.ServiceExport,
) *mcsv1beta1.ServiceExport {
	retained := k.get(key)
	return cmp.Or(informer(key), retained)
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
