package cache

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// objects holds the items of all API objects, and the services to build anew because of a change. The watches write to
// it, the publisher drains it: the dirty services of one moment are one consistent view.
type objects struct {
	// wake holds one token while there is something to drain.
	wake chan struct{}

	mu          sync.Mutex
	imports     map[string]*index.Import // by "<name>.<namespace>"
	slices      map[string]*heldSlice    // by "<namespace>/<name>" of the EndpointSlice
	byService   map[string]*heldSlice    // the first of a chain, by "<name>.<namespace>" of the service
	namespaces  map[string]struct{}
	properties  map[string]string
	endpoints   map[string]int // ready ones by source cluster
	inNamespace map[string]int // imports
	options     index.Options
	selected    bool // only imports in namespaces exist

	dirty           map[string]change // services, with the oldest change that is not published yet
	dirtyNamespaces map[string]struct{}
	changed         bool // properties
}

// A change is when an object was written, and when it was received.
type change struct{ written, received time.Time }

// A heldSlice is one EndpointSlice. The slices of one service are chained, which costs less than a Go slice of pointers
// for each service.
type heldSlice struct {
	slice   *index.Slice
	service string
	next    *heldSlice
}

func newObjects(options index.Options, selected bool) *objects {
	return &objects{
		wake:            make(chan struct{}, 1),
		imports:         map[string]*index.Import{},
		slices:          map[string]*heldSlice{},
		byService:       map[string]*heldSlice{},
		namespaces:      map[string]struct{}{},
		properties:      map[string]string{},
		endpoints:       map[string]int{},
		inNamespace:     map[string]int{},
		options:         options,
		selected:        selected,
		dirty:           map[string]change{},
		dirtyNamespaces: map[string]struct{}{},
	}
}

// signal lets the publisher run.
func (o *objects) signal() { signal(o.wake) }

// signal puts a token into ch, unless it holds one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// serviceKey is "<name>.<namespace>" of the import with the key "<namespace>/<name>".
func serviceKey(key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return name + "." + namespace
}

// importKey is "<namespace>/<name>" of the import of the service with the key "<name>.<namespace>".
func importKey(key string) string {
	name, namespace, _ := strings.Cut(key, ".")
	return namespace + "/" + name
}

// put stores it in place of what had its key.
func (o *objects) put(kind Kind, it item, at written) {
	o.mu.Lock()
	o.set(kind, it, at)
	o.mu.Unlock()
	o.signal()
}

// remove takes out the item with the key.
func (o *objects) remove(kind Kind, key string) { o.put(kind, item{key: key}, written{}) }

// replace makes items all that is there in scope, a namespace or "" for all. Only what differs becomes dirty.
func (o *objects) replace(kind Kind, scope string, items []item) {
	keep := make(map[string]struct{}, len(items))
	for i := range items {
		keep[items[i].key] = struct{}{}
	}
	o.mu.Lock()
	for _, key := range o.keys(kind, scope) {
		if _, ok := keep[key]; !ok {
			o.set(kind, item{key: key}, written{})
		}
	}
	for i := range items {
		o.set(kind, items[i], written{})
	}
	o.mu.Unlock()
	o.signal()
}

// list is keys with o.mu taken.
func (o *objects) list(kind Kind, scope string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys(kind, scope)
}

// count returns how many imports in scope, or ClusterProperties, are there.
func (o *objects) count(kind Kind, scope string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case kind == ClusterProperty:
		return len(o.properties)
	case scope == "":
		return len(o.imports)
	}
	return o.inNamespace[scope]
}

// importOf returns the key of the ServiceImport of an EndpointSlice, "" if the slice is not there.
func (o *objects) importOf(slice string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.slices[slice]
	if held == nil {
		return ""
	}
	return importKey(held.service)
}

// keys lists the item keys of scope. The caller holds o.mu.
func (o *objects) keys(kind Kind, scope string) []string {
	var keys []string
	switch kind {
	case ServiceImport:
		for _, imp := range o.imports {
			if scope == "" || imp.Namespace() == scope {
				keys = append(keys, imp.Namespace()+"/"+imp.Name())
			}
		}
	case EndpointSlice:
		for key := range o.slices {
			if scope == "" || strings.HasPrefix(key, scope+"/") {
				keys = append(keys, key)
			}
		}
	case Namespace:
		for name := range o.namespaces {
			keys = append(keys, name)
		}
	case ClusterProperty:
		for name := range o.properties {
			keys = append(keys, name)
		}
	}
	return keys
}

func (o *objects) set(kind Kind, it item, at written) {
	if it.keep {
		return
	}
	switch kind {
	case ServiceImport:
		o.setImport(it, at)
	case EndpointSlice:
		o.setSlice(it, at)
	case Namespace:
		_, before := o.namespaces[it.key]
		if found := it.value != ""; found && !before {
			o.namespaces[strings.Clone(it.key)] = struct{}{}
		} else if !found {
			delete(o.namespaces, it.key)
		}
		if before != (it.value != "") {
			o.dirtyNamespaces[it.key] = struct{}{}
		}
	case ClusterProperty:
		if o.properties[it.key] == it.value {
			return
		}
		o.changed = true
		if it.value == "" {
			delete(o.properties, it.key)
			return
		}
		o.properties[it.key] = it.value
	}
}

// shareEqual makes an item of a new list refer to the existing item of the same object, if they are equal: so the list
// takes little more memory.
func (o *objects) shareEqual(kind Kind, it *item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch kind {
	case ServiceImport:
		if old := o.imports[serviceKey(it.key)]; old != nil && it.imp != nil && *old == *it.imp {
			it.imp = old
		}
	case EndpointSlice:
		if old := o.slices[it.key]; old != nil && it.slice != nil && old.service == it.service && *old.slice == *it.slice {
			it.slice, it.service = old.slice, old.service
		}
	}
}

func (o *objects) setImport(it item, at written) {
	key := serviceKey(it.key)
	old := o.imports[key]
	switch {
	case it.imp == nil && old == nil:
		return
	case it.imp == nil:
		delete(o.imports, key)
		o.countImport(old, -1)
	case old != nil && *old == *it.imp:
		return
	default:
		// The key in the map is the one inside the import: one string for both.
		delete(o.imports, key)
		key = it.imp.Key()
		o.imports[key] = it.imp
		if old == nil {
			o.countImport(it.imp, 1)
		}
	}
	o.markDirty(key, at)
}

func (o *objects) countImport(imp *index.Import, by int) {
	namespace := imp.Namespace()
	if n := o.inNamespace[namespace] + by; n > 0 {
		o.inNamespace[namespace] = n
	} else {
		delete(o.inNamespace, namespace)
	}
}

func (o *objects) setSlice(it item, at written) {
	old := o.slices[it.key]
	if old == nil && it.slice == nil {
		return
	}
	if old != nil && it.slice != nil && old.service == it.service {
		if *old.slice != *it.slice {
			o.countEndpoints(old.slice, -1)
			o.countEndpoints(it.slice, 1)
			old.slice = it.slice
			o.markDirty(old.service, at)
		}
		return
	}
	if old != nil {
		delete(o.slices, it.key)
		o.unchain(old)
		o.countEndpoints(old.slice, -1)
		o.markDirty(old.service, at)
	}
	if it.slice != nil {
		held := &heldSlice{slice: it.slice, service: it.service}
		if first := o.byService[it.service]; first != nil {
			held.service, held.next = first.service, first
		}
		o.byService[held.service] = held
		o.slices[it.key] = held
		o.countEndpoints(it.slice, 1)
		o.markDirty(held.service, at)
	}
}

func (o *objects) unchain(held *heldSlice) {
	first := o.byService[held.service]
	at := &first
	for *at != held {
		at = &(*at).next
	}
	*at = held.next
	if o.byService[held.service] = first; first == nil {
		delete(o.byService, held.service)
	}
}

func (o *objects) countEndpoints(s *index.Slice, by int) {
	n := o.endpoints[s.Cluster()] + by*s.Len()
	if n == 0 {
		delete(o.endpoints, s.Cluster())
		return
	}
	o.endpoints[s.Cluster()] = n
}

// markDirty marks a service dirty. Of several writes the oldest counts: the metric must not look better than it is.
func (o *objects) markDirty(key string, at written) {
	c, ok := o.dirty[key]
	if !ok {
		c.received = time.Now()
	}
	if !ok || c.written.IsZero() || !at.IsZero() && at.Before(c.written) {
		c.written = at
	}
	o.dirty[key] = c
}

// markAllDirty marks all services and imports of x dirty, so that those without an object are taken out.
func (o *objects) markAllDirty(x *index.Index) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range x.All() {
		o.markDirty(s.Key(), written{})
	}
	for key := range x.AllNameless {
		o.markDirty(key, written{})
	}
}

// setTopology sets the zone and region of this server, which may change every service.
func (o *objects) setTopology(zone, region string) {
	o.mu.Lock()
	o.options.Zone, o.options.Region = zone, region
	for key := range o.imports {
		o.markDirty(key, written{})
	}
	o.mu.Unlock()
	o.signal()
}

// hasChanges reports whether there is a change that was not drained yet. The caller holds o.mu.
func (o *objects) hasChanges() bool {
	return len(o.dirty) > 0 || len(o.dirtyNamespaces) > 0 || o.changed
}

// items lists all items. The caller holds o.mu.
func (o *objects) items() (items [kinds][]item) {
	items[ServiceImport] = make([]item, 0, len(o.imports))
	for _, imp := range o.imports {
		items[ServiceImport] = append(items[ServiceImport], item{key: imp.Namespace() + "/" + imp.Name(), imp: imp})
	}
	items[EndpointSlice] = make([]item, 0, len(o.slices))
	for key, held := range o.slices {
		items[EndpointSlice] = append(items[EndpointSlice], item{key: key, slice: held.slice, service: held.service})
	}
	for name := range o.namespaces {
		items[Namespace] = append(items[Namespace], item{key: name, value: name})
	}
	for name, value := range o.properties {
		items[ClusterProperty] = append(items[ClusterProperty], item{key: name, value: value})
	}
	return items
}

// A batch is all that was dirty at one moment, with the inputs to build it.
type batch struct {
	jobs       []job
	slices     []*index.Slice // of all jobs, one after the other
	options    index.Options
	properties map[string]string // nil if they did not change
}

// A job is one service to build.
type job struct {
	key      string
	imp      *index.Import // nil if there is no valid one
	from, to int           // its part of batch.slices
	at       change
}

// build builds a service; old is its present state.
func (b *batch) build(j *job, old *index.Service) *index.Service {
	if j.imp == nil {
		return nil
	}
	return index.Rebuild(old, j.imp, b.slices[j.from:j.to], b.options)
}

// drain takes everything that is dirty. It is one consistent view of all objects.
func (o *objects) drain() batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.dirtyNamespaces) > 0 {
		for key, imp := range o.imports {
			if _, ok := o.dirtyNamespaces[imp.Namespace()]; ok {
				o.markDirty(key, written{})
			}
		}
		o.dirtyNamespaces = map[string]struct{}{}
	}
	b := batch{options: o.options, jobs: make([]job, 0, len(o.dirty))}
	for key, at := range o.dirty {
		j := job{key: key, imp: o.imports[key], from: len(b.slices), at: at}
		if j.imp != nil && o.selected {
			if _, ok := o.namespaces[j.imp.Namespace()]; !ok {
				j.imp = nil
			}
		}
		if j.imp != nil {
			for held := o.byService[key]; held != nil; held = held.next {
				b.slices = append(b.slices, held.slice)
			}
		}
		j.to = len(b.slices)
		b.jobs = append(b.jobs, j)
	}
	o.dirty = map[string]change{}
	if o.changed {
		o.changed = false
		b.properties = maps.Clone(o.properties)
	}
	return b
}
