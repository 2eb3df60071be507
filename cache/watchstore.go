package cache

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// A watchStore is what one watch fills: one kind, in one namespace or in all. It validates each object as it comes, and keeps
// of it the item that DNS needs. The reflector of package apiserver is the only one that calls its methods as a store; with
// manifests that is Store.apply.
//
//	API server ──► reflector ──► watchStore ── validate ──► objects ──► publisher ──► State
//	                  │  Health       │
//	                  └───────────────┴──► progress: which answers may be given
type watchStore struct {
	store     *Store
	kind      Kind
	namespace string // "" for all
	selector  labels.Selector
	// contact is marked by the watch, or as long as manifests are valid.
	contact apiserver.Contact
	// withheld are ServiceImports and ClusterProperties that are gone and still served (docs/spec/dns.md 6.9). It has its own lock.
	withheld apiserver.Withheld

	progress progress // guarded by Store.mu
}

// happened takes an event. The caller holds Store.mu.
func (w *watchStore) happened(e event) { w.progress = w.progress.next(e, w.needed()) }

func newWatchStores(s *Store) []*watchStore {
	all := labels.Everything()
	exported, err := labels.NewRequirement(labelService, "exists", nil)
	if err != nil {
		panic("cache: the label of a service name is not a label")
	}
	imports := all
	if s.cfg.Labels != nil {
		imports = s.cfg.Labels
	}
	namespaces := s.cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var watches []*watchStore
	add := func(kind Kind, namespace string, selector labels.Selector) {
		w := &watchStore{store: s, kind: kind, namespace: namespace, selector: selector}
		w.withheld.For, w.withheld.Few = s.cfg.withholdFor, kind == ClusterProperty
		watches = append(watches, w)
	}
	for _, namespace := range namespaces {
		add(ServiceImport, namespace, imports)
		if !s.cfg.NoEndpoints {
			add(EndpointSlice, namespace, labels.NewSelector().Add(*exported))
		}
	}
	if s.cfg.NamespaceLabels != nil {
		add(Namespace, "", s.cfg.NamespaceLabels)
	}
	add(ClusterProperty, "", all)
	return watches
}

// follow adds the watch to the set of the Store.
func (w *watchStore) follow() {
	o := apiserver.WatchOptions{Namespace: w.namespace, Labels: w.selector.String(), Changed: w.changed, Contact: &w.contact}
	if resources[w.kind].Custom {
		w.store.set.AddStore(resources[w.kind], o, listingStore{w})
		return
	}
	w.store.set.AddStore(resources[w.kind], o, w)
}

// needed reports whether there is no state without this list. Without properties only the name of this cluster is unknown.
func (w *watchStore) needed() bool { return w.kind != ClusterProperty }

func (w *watchStore) id() apiserver.WatchID {
	return apiserver.WatchID{Kind: w.kind.String(), Namespace: w.namespace}
}

// changed takes the health of the watch after each change.
func (w *watchStore) changed(h apiserver.Health) {
	s := w.store
	failing := h.State == apiserver.Failing
	stuck := failing && (h.Class == apiserver.Absent || h.Class == apiserver.Forbidden)
	s.mu.Lock()
	before := w.progress
	switch {
	case failing && h.Class == apiserver.Absent:
		w.happened(missing)
	case failing && h.Class == apiserver.RolledBack:
		w.happened(rolledBack)
	case stuck, failing && !w.needed():
		w.happened(hopeless)
	case h.State == apiserver.Listing:
		w.happened(requested)
	}
	after := w.progress
	s.mu.Unlock()
	if before == fromSnapshot && !after.has() {
		s.objects.replace(w.kind, w.namespace, nil)
	}
	if failing && w.needed() && (h.Class == apiserver.Unreachable || stuck) {
		signal(s.failing)
	}
	if after != before {
		s.giveUpUnneeded()
		s.objects.signal()
	}
}

// accept validates one object, and logs what was rejected of it for the first time.
func (w *watchStore) accept(obj any) item {
	it, rejected := w.read(obj)
	for _, r := range w.store.rejections.note(w.kind, it.key, rejected) {
		w.store.cfg.Log.Warningf("%s %s: %s", w.kind, it.key, reason.With(r.Detail, CodeOf(w.kind, r.Reason)))
	}
	return it
}

// read validates one object. A panic costs this object alone.
func (w *watchStore) read(obj any) (it item, rejected []Rejection) {
	defer func() {
		if r := recover(); r != nil {
			it = item{key: keyOf(obj.(metav1.Object)), keep: true}
			rejected = []Rejection{{Panicked, fmt.Sprintf("panic: %.200v; what was known of it stays", r)}}
		}
	}()
	return w.store.read(w.kind, obj, w.store.cfg.Deny...)
}

// Transformer makes the temporary store of the reflector hold items, not objects.
func (w *watchStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if _, ok := obj.(*item); ok {
			return obj, nil
		}
		it := w.acceptListed(obj)
		return &it, nil
	}
}

// acceptListed is accept for an object of a list that is under way.
func (w *watchStore) acceptListed(obj any) item {
	it := w.accept(obj)
	w.store.objects.share(w.kind, &it)
	return it
}

// Add takes an object that is new.
func (w *watchStore) Add(obj any) error { return w.Update(obj) }

// Update takes an object that changed.
func (w *watchStore) Update(obj any) error {
	w.drop(keyOf(obj.(metav1.Object)))
	w.store.objects.put(w.kind, w.accept(obj), writeTime(obj.(metav1.Object)))
	return nil
}

// Delete takes an object that is gone, or is no longer selected.
func (w *watchStore) Delete(obj any) error {
	key := keyOf(obj.(metav1.Object))
	w.store.rejections.forget(w.kind, key)
	if !w.withhold(key) {
		w.store.objects.remove(w.kind, key)
	}
	return nil
}

// Replace takes a complete list. It never fails.
func (w *watchStore) Replace(list []any, _ string) error {
	items := make([]item, len(list))
	for i, obj := range list {
		if it, ok := obj.(*item); ok {
			items[i] = *it
		} else {
			items[i] = w.accept(obj)
		}
	}
	s := w.store
	s.mu.Lock()
	first := w.progress < listed
	s.mu.Unlock()
	if !first {
		items = append(items, w.missing(items)...)
	}
	s.mu.Lock() // a snapshot that is read meanwhile must not replace the list
	s.objects.replace(w.kind, w.namespace, items)
	w.happened(complete)
	s.mu.Unlock()
	s.rejections.retain(w.kind, w.namespace, items)
	s.giveUpUnneeded()
	if first {
		s.cfg.Log.Infof("%s: %s: listed %d objects", s.cfg.Name, w.id(), len(items))
	}
	s.objects.signal()
	return nil
}

// missing withholds the deletion of what a new list lacks. It returns an item for each object that stays.
func (w *watchStore) missing(list []item) (stay []item) {
	for i := range list {
		w.drop(list[i].key)
	}
	if w.kind == Namespace || w.kind == EndpointSlice && !w.store.withholdsAny() {
		return nil
	}
	there := make(map[string]struct{}, len(list))
	for i := range list {
		there[list[i].key] = struct{}{}
	}
	for _, key := range w.store.objects.list(w.kind, w.namespace) {
		if _, ok := there[key]; !ok && w.withhold(key) {
			stay = append(stay, item{key: key, keep: true})
		}
	}
	return stay
}

// Resync has nothing to do: what is kept cannot drift.
func (w *watchStore) Resync() error { return nil }

// A listingStore is a watchStore that reads lists itself: those of custom resources.
type listingStore struct{ *watchStore }

// ReadList implements [apiserver.ListReader].
func (w listingStore) ReadList(body io.Reader) (runtime.Object, error) {
	return readList(body, w.acceptListed)
}

var (
	_ cache.TransformingStore = (*watchStore)(nil)
	_ apiserver.ListReader    = listingStore{}
)
