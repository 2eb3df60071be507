package apiserver

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// An Undecodable is an object that the API server accepted and that its Go type does not take: the format date-time of
// a CRD is laxer than the parser of Go, and a CRD may be laxer than the type. A [Set] treats it as an object that is
// not there, so that it does not cost the list or the watch that it is part of.
type Undecodable struct {
	metav1.PartialObjectMetadata       // namespace, name, UID and resource version
	Err                          error // why it does not decode, on one line
}

// objectCodecs decode each object by itself: one that does not decode becomes an [Undecodable].
type objectCodecs struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements [runtime.NegotiatedSerializer].
func (c objectCodecs) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return objectDecoder{c.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type objectDecoder struct{ runtime.Decoder }

// An objectList is a list in which some object did not decode.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject shares the objects, which never change.
func (l *objectList) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// Decode decodes a list as a whole, and object by object only if that fails.
func (d objectDecoder) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		return obj, gvk, nil
	}
	if list := d.decodeList(data); list != nil {
		return list, gvk, nil
	}
	if bad := newUndecodable(data, err); bad != nil {
		return bad, gvk, nil
	}
	return obj, gvk, err
}

// decodeList returns nil if data is no list, or has an item that is not even an object.
func (d objectDecoder) decodeList(data []byte) *objectList {
	var raw struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(data, &raw) != nil || !strings.HasSuffix(raw.Kind, "List") {
		return nil
	}
	list := &objectList{TypeMeta: raw.TypeMeta, ListMeta: raw.ListMeta, Items: make([]runtime.Object, len(raw.Items))}
	for i, item := range raw.Items {
		obj, _, err := d.Decoder.Decode(item, nil, nil)
		if err != nil {
			bad := newUndecodable(item, err)
			if bad == nil {
				return nil
			}
			obj = bad
		}
		list.Items[i] = obj
	}
	return list
}

// newUndecodable returns nil if data is not an object of an API server. Only what the API server checks itself is read.
func newUndecodable(data []byte, err error) *Undecodable {
	var raw struct {
		metav1.TypeMeta
		metadata
	}
	if json.Unmarshal(data, &raw) != nil || raw.Kind == "" || raw.Metadata.Name == "" {
		return nil
	}
	return &Undecodable{
		PartialObjectMetadata: metav1.PartialObjectMetadata{TypeMeta: raw.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: raw.Metadata.Namespace, Name: raw.Metadata.Name,
			UID: raw.Metadata.UID, ResourceVersion: raw.Metadata.ResourceVersion,
		}},
		Err: errors.New(logging.Line(err)), // which quotes the bad value, of any size
	}
}

// undecodables has the objects of one watch that do not decode, by key.
type undecodables struct {
	resource Resource
	notify   func(*Undecodable) // called for each new version of one; may be nil
	seen     *shownList

	mu      sync.Mutex
	current map[string]*Undecodable
	// corrected are those that decode, or are gone, by a list or an event that the informer may not show yet.
	corrected map[string]*Undecodable
	listed    map[string]*Undecodable // of the list that is under way, else nil
}

func newUndecodables(r Resource, notify func(*Undecodable), seen *shownList) *undecodables {
	return &undecodables{
		resource: r, notify: notify, seen: seen, current: make(map[string]*Undecodable),
		corrected: make(map[string]*Undecodable),
	}
}

// begin begins a list.
func (u *undecodables) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.listed = make(map[string]*Undecodable)
}

// set takes an object that does not decode, and reports whether this version of it is new. The caller holds u.mu.
func (u *undecodables) set(bad *Undecodable) bool {
	key := cache.MetaObjectToName(bad).String()
	if u.listed != nil {
		u.listed[key] = bad
	}
	before := u.current[key]
	u.current[key] = bad
	delete(u.corrected, key)
	return before == nil || before.UID != bad.UID || before.ResourceVersion != bad.ResourceVersion
}

// correct takes the key of an object that decodes. The caller holds u.mu.
func (u *undecodables) correct(key string) {
	delete(u.listed, key)
	if bad := u.current[key]; bad != nil {
		delete(u.current, key)
		u.corrected[key] = bad
	}
}

// end ends a list: for missing objects, the informer shows soon whether they decode or are gone.
func (u *undecodables) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.listed == nil {
		return
	}
	for key := range u.current {
		if u.listed[key] == nil {
			u.correct(key)
		}
	}
	u.listed = nil
}

// sift returns an event of the watch as the reflector may see it: an object that does not decode becomes a deletion of
// the known object with that name.
func (u *undecodables) sift(event watch.Event) watch.Event {
	m, isObject := event.Object.(metav1.Object)
	if event.Type == watch.Bookmark || event.Type == watch.Error || !isObject {
		return event
	}
	bad, undecodable := event.Object.(*Undecodable)
	key := cache.MetaObjectToName(m).String()
	added := false
	u.mu.Lock()
	switch {
	case event.Type == watch.Deleted:
		delete(u.listed, key)
		delete(u.current, key)
		delete(u.corrected, key)
	case undecodable:
		added = u.set(bad)
	default:
		u.correct(key)
	}
	u.mu.Unlock()
	if !undecodable {
		return event
	}
	if added && u.notify != nil {
		u.notify(bad)
	}
	return watch.Event{Type: watch.Deleted, Object: u.resource.stub(bad)}
}

// siftList removes undecodable objects from a list, or from a part of one.
func (u *undecodables) siftList(list runtime.Object) {
	l, ok := list.(*objectList)
	if !ok {
		return
	}
	var added []*Undecodable
	u.mu.Lock()
	l.Items = slices.DeleteFunc(l.Items, func(obj runtime.Object) bool {
		bad, undecodable := obj.(*Undecodable)
		if undecodable && u.set(bad) {
			added = append(added, bad)
		}
		return undecodable
	})
	u.mu.Unlock()
	for _, bad := range added {
		if u.notify != nil {
			u.notify(bad)
		}
	}
}

// get returns the object with a key if it does not decode, or did not until a moment ago and is not in the informer
// yet: what the informer lacks then is not gone.
func (u *undecodables) get(key string) *Undecodable {
	u.mu.Lock()
	defer u.mu.Unlock()
	bad, corrected := u.current[key], u.corrected[key]
	switch {
	case bad != nil || corrected == nil:
		return bad
	case u.seen.lacksKey(key):
		return corrected
	}
	delete(u.corrected, key)
	return nil
}

// all returns the objects, sorted by key.
func (u *undecodables) all() (all []*Undecodable) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(u.current)) {
		all = append(all, u.current[key])
	}
	return all
}

// stub returns an object of the type of the resource with nothing but the identity of another.
func (r Resource) stub(bad *Undecodable) runtime.Object {
	obj := reflect.New(reflect.TypeOf(r.Example).Elem()).Interface().(runtime.Object)
	m := obj.(metav1.Object)
	m.SetNamespace(bad.Namespace)
	m.SetName(bad.Name)
	m.SetUID(bad.UID)
	m.SetResourceVersion(bad.ResourceVersion)
	return obj
}
