package cache

import (
	"fmt"
	"io"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// A watchStore takes the objects of one watch. It validates each as it comes, and keeps of it the item that DNS needs.
// The reflector of package apiserver is the only one that calls its methods as a store; with manifests that is
// fileWatch.apply.
type watchStore struct {
	*watch
	cfg        *Config
	watches    *watches
	objects    *objects
	withheld   *withheld
	rejections *rejections
	validate   func(Kind, any, ...netip.Prefix) (item, []Rejection)
}

// follow adds the watch to a set.
func (w *watchStore) follow(set *apiserver.Set) {
	o := apiserver.WatchOptions{
		Namespace: w.Namespace, Labels: w.selector.String(), Contact: &w.contact,
		Changed: func(h apiserver.Health) { w.watches.takeHealth(w.watch, h) },
	}
	var store cache.ReflectorStore = w
	if resources[w.Kind].Custom {
		store = listingStore{w}
	}
	set.AddStore(resources[w.Kind], o, store)
}

// accept validates one object, and logs new rejections of it.
func (w *watchStore) accept(obj any) item {
	it, rejected := w.read(obj)
	for _, r := range w.rejections.note(w.Kind, it.key, rejected) {
		w.cfg.Log.Warningf("%s %s: %s", w.Kind, it.key, reason.With(r.Detail, CodeOf(w.Kind, r.Reason)))
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
	return w.validate(w.Kind, obj, w.cfg.Deny...)
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
	w.objects.shareEqual(w.Kind, &it)
	return it
}

// Add takes an object that is new.
func (w *watchStore) Add(obj any) error { return w.Update(obj) }

// Update takes an object that changed.
func (w *watchStore) Update(obj any) error {
	w.withheld.drop(w.watch, keyOf(obj.(metav1.Object)))
	w.objects.put(w.Kind, w.accept(obj), writeTime(obj.(metav1.Object)))
	return nil
}

// Delete takes an object that is gone, or is no longer selected.
func (w *watchStore) Delete(obj any) error {
	key := keyOf(obj.(metav1.Object))
	w.rejections.forget(w.Kind, key)
	if !w.withheld.withhold(w.watch, key) {
		w.objects.remove(w.Kind, key)
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
	first := !w.watches.hadList(w.watch)
	if !first {
		items = append(items, w.withholdMissing(items)...)
	}
	w.watches.takeList(w.watch, items)
	w.rejections.retain(w.Kind, w.Namespace, items)
	if first {
		w.cfg.Log.Infof("%s: %s: listed %d objects", w.cfg.Name, w.id(), len(items))
	}
	return nil
}

// withholdMissing withholds the deletion of what a new list lacks. It returns an item for each object that stays.
func (w *watchStore) withholdMissing(list []item) (stay []item) {
	for i := range list {
		w.withheld.drop(w.watch, list[i].key)
	}
	if w.Kind == Namespace || w.Kind == EndpointSlice && w.withheld.imports() == 0 {
		return nil
	}
	there := make(map[string]struct{}, len(list))
	for i := range list {
		there[list[i].key] = struct{}{}
	}
	for _, key := range w.objects.list(w.Kind, w.Namespace) {
		if _, ok := there[key]; !ok && w.withheld.withhold(w.watch, key) {
			stay = append(stay, item{key: key, keep: true})
		}
	}
	return stay
}

// Resync has nothing to do: the content cannot drift.
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
