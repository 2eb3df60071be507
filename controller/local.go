package controller

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1alpha1 "github.com/clusterset-dns/clusterset/api/about/v1alpha1"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/queue"
)

// local is what is followed of the member's own API server. What its methods return is shared: nobody may change it. They
// see what [local.written] and [local.deleted] were told before the watch does.
type local struct {
	client *apiserver.Client
	set    *apiserver.Set
	cidrs  []netip.Prefix // of the Config

	namespaces   *apiserver.Overlay[*corev1.Namespace]
	services     *apiserver.Overlay[*corev1.Service]
	exports      *apiserver.Overlay[*mcsv1beta1.ServiceExport]
	imports      *apiserver.Overlay[*mcsv1beta1.ServiceImport]
	slices       *apiserver.Overlay[*discoveryv1.EndpointSlice]
	properties   *apiserver.Overlay[apiserver.Object]          // of the version that is served
	serviceCIDRs *apiserver.Overlay[*networkingv1.ServiceCIDR] // nil if they are not served

	overlays   map[reflect.Type]overlay // all of them, by the type of their objects
	aboutAlpha bool                     // ClusterProperty is served only at v1alpha1
}

// An overlay is what is done to a [apiserver.Overlay] whatever its type is.
type overlay struct {
	wrote, deleted func(apiserver.Object)
	reset          func()
}

// kinds says which kinds an API server has, as far as it is not the same everywhere.
type kinds struct {
	aboutAlpha   bool // ClusterProperty only at v1alpha1
	serviceCIDRs bool
}

// A change is one event of an object: old is nil if it is new, now is nil if it is gone.
type change struct {
	old, now metav1.Object
	priority queue.Priority
}

// The indexes. Their values are keys of services.
const (
	indexSource   = "source"   // EndpointSlices of a Service of this cluster
	indexImported = "imported" // EndpointSlices of a ServiceImport
	indexDerived  = "derived"  // ServiceImports by the Service that is derived from them
)

// newLocal makes informers for all kinds. changed gets every change, from several goroutines.
func newLocal(client *apiserver.Client, cfg *Config, has kinds, changed func(change)) *local {
	l := &local{
		client: client, cidrs: cfg.ServiceCIDRs, aboutAlpha: has.aboutAlpha, overlays: make(map[reflect.Type]overlay),
	}
	l.set = apiserver.NewSet(apiserver.SetConfig{Client: client, Name: "local", Log: cfg.Log, RolledBack: l.rewound})
	l.namespaces = follow(l, &corev1.Namespace{}, nil, changed)
	l.services = follow(l, &corev1.Service{}, nil, changed)
	l.exports = follow(l, &mcsv1beta1.ServiceExport{}, nil, changed)
	l.imports = follow(l, &mcsv1beta1.ServiceImport{},
		cache.Indexers{indexDerived: index(derivedKeys)}, changed)
	l.slices = follow(l, &discoveryv1.EndpointSlice{},
		cache.Indexers{indexSource: index(sourceKeys), indexImported: index(importedKeys)}, changed)
	var property apiserver.Object = &aboutv1beta1.ClusterProperty{}
	if has.aboutAlpha {
		property = &aboutv1alpha1.ClusterProperty{}
	}
	l.properties = follow(l, property, nil, changed)
	if has.serviceCIDRs {
		l.serviceCIDRs = follow(l, &networkingv1.ServiceCIDR{}, nil, changed)
	}
	return l
}

// follow adds a kind to the set.
func follow[T apiserver.Object](l *local, example T, indexers cache.Indexers, changed func(change)) *apiserver.Overlay[T] {
	informer := l.set.Add(example, apiserver.WatchOptions{Transform: trim, Indexers: indexers})
	followed := apiserver.NewOverlay[T](informer)
	l.overlays[reflect.TypeOf(example)] = overlay{
		wrote:   func(o apiserver.Object) { followed.Wrote(o.(T)) },
		deleted: func(o apiserver.Object) { followed.Deleted(o.(T)) },
		reset:   followed.Reset,
	}
	tell := func(c change, o metav1.Object) {
		// Having looked, the overlay forgets what the informer has caught up with: nothing written stands in the way of what
		// happens to the object next.
		followed.Get(cache.MetaObjectToName(o).String())
		changed(c)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			c := change{now: o.(T)}
			if initial {
				c.priority = queue.Backlog
			}
			tell(c, c.now)
		},
		UpdateFunc: func(before, after any) {
			c := change{old: before.(T), now: after.(T)}
			if c.old.GetResourceVersion() != c.now.GetResourceVersion() {
				tell(c, c.now)
			}
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if old, ok := o.(T); ok {
				tell(change{old: old}, old)
			}
		},
	})
	if err != nil {
		panic("local: an informer that did not run refused a handler: " + err.Error())
	}
	return followed
}

func (l *local) run(ctx context.Context) error { return l.set.Run(ctx) }

func (l *local) synced() bool { return l.set.Synced() }

// rewound forgets what was written: the API server has.
func (l *local) rewound() {
	for _, o := range l.overlays {
		o.reset()
	}
}

// written makes reads see o, the answer of the API server to a write, before the watch does. o belongs to the caches from
// now on.
func (l *local) written(o apiserver.Object) { l.overlay(o).wrote(o) }

// deleted makes reads no longer see o, which the API server has deleted, before the watch says so.
func (l *local) deleted(o apiserver.Object) { l.overlay(o).deleted(o) }

func (l *local) overlay(o apiserver.Object) overlay {
	found, ok := l.overlays[reflect.TypeOf(o)]
	if !ok {
		panic(fmt.Sprintf("local: %T is not followed", o))
	}
	return found
}

// Namespace returns the namespace, nil if there is none.
func (l *local) Namespace(name string) *corev1.Namespace { return found(l.namespaces.Get(name)) }

// Service returns the Service of that name, nil if there is none.
func (l *local) Service(svc types.NamespacedName) *corev1.Service {
	return found(l.services.Get(svc.String()))
}

// Derived returns the Service that has the name of the one derived from the import, ours or not; nil if there is none.
func (l *local) Derived(svc types.NamespacedName) *corev1.Service {
	return found(l.services.Get(svc.Namespace + "/" + merge.DerivedName(svc.Namespace, svc.Name)))
}

// Export returns the ServiceExport, nil if there is none.
func (l *local) Export(svc types.NamespacedName) *mcsv1beta1.ServiceExport {
	return found(l.exports.Get(svc.String()))
}

// Import returns the ServiceImport, ours or not; nil if there is none.
func (l *local) Import(svc types.NamespacedName) *mcsv1beta1.ServiceImport {
	return found(l.imports.Get(svc.String()))
}

// found returns the object, nil if there is none.
func found[T apiserver.Object](o T, ok bool) T {
	if !ok {
		var none T
		return none
	}
	return o
}

// SourceSlices returns the slices of the Service of that name that others manage, sorted by name.
func (l *local) SourceSlices(svc types.NamespacedName) []*discoveryv1.EndpointSlice {
	return l.slices.ByIndex(indexSource, svc.String())
}

// ImportedSlices returns the slices of the import, ours and whatever else has its label, sorted by name. Those that another
// import owns are not among them.
func (l *local) ImportedSlices(svc types.NamespacedName) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(l.slices.ByIndex(indexImported, svc.String()), func(e *discoveryv1.EndpointSlice) bool {
		owner := merge.ImportOwner(e)
		return owner != "" && owner != svc.Name
	})
}

// Property returns the ClusterProperty, nil if there is none.
func (l *local) Property(name string) *aboutv1beta1.ClusterProperty {
	switch p := found(l.properties.Get(name)).(type) {
	case *aboutv1beta1.ClusterProperty:
		return p
	case *aboutv1alpha1.ClusterProperty:
		return &aboutv1beta1.ClusterProperty{ObjectMeta: p.ObjectMeta, Spec: aboutv1beta1.ClusterPropertySpec{Value: p.Spec.Value}}
	}
	return nil
}

// newProperty returns a ClusterProperty of the version that is served.
func (l *local) newProperty(name, value string) apiserver.Object {
	meta := metav1.ObjectMeta{Name: name}
	if l.aboutAlpha {
		return &aboutv1alpha1.ClusterProperty{ObjectMeta: meta, Spec: aboutv1alpha1.ClusterPropertySpec{Value: value}}
	}
	return &aboutv1beta1.ClusterProperty{ObjectMeta: meta, Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
}

// Exports returns the keys of all ServiceExports, sorted.
func (l *local) Exports() []types.NamespacedName { return keysOf(l.exports.List()) }

// Imports returns the keys of all ServiceImports, sorted.
func (l *local) Imports() []types.NamespacedName { return keysOf(l.imports.List()) }

func keysOf[T metav1.Object](objects []T) []types.NamespacedName {
	keys := make([]types.NamespacedName, len(objects))
	for i, o := range objects {
		keys[i] = keyOf(o)
	}
	return keys
}

// ServiceCIDRs returns the service networks of the cluster: those of its ServiceCIDR objects, else of the Config.
func (l *local) ServiceCIDRs() []netip.Prefix {
	var all []netip.Prefix
	if l.serviceCIDRs != nil {
		for _, o := range l.serviceCIDRs.List() {
			for _, text := range o.Spec.CIDRs {
				if p, err := broker.ParsePrefix(text); err == nil {
					all = append(all, p)
				}
			}
		}
	}
	if len(all) == 0 {
		return l.cidrs
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// Families returns those in which Services of this cluster get addresses: of its service networks, or if none is known of
// the Service default/kubernetes, which every API server makes for itself.
func (l *local) Families() []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, p := range l.ServiceCIDRs() {
		family := corev1.IPv6Protocol
		if p.Addr().Is4() {
			family = corev1.IPv4Protocol
		}
		families = append(families, family)
	}
	own := l.Service(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"})
	if len(families) == 0 && own != nil {
		families = slices.Clone(own.Spec.IPFamilies)
	}
	slices.Sort(families)
	return slices.Compact(families)
}

// importOf returns the key of the import that a Service is derived from, by its owner or else by its name.
func (l *local) importOf(s *corev1.Service) (types.NamespacedName, bool) {
	if name := merge.ImportOwner(s); name != "" {
		return types.NamespacedName{Namespace: s.Namespace, Name: name}, true
	}
	imports := l.imports.ByIndex(indexDerived, keyOf(s).String())
	if len(imports) == 0 {
		return types.NamespacedName{}, false
	}
	return keyOf(imports[0]), true
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func derivedKeys(o metav1.Object) []string {
	return []string{o.GetNamespace() + "/" + merge.DerivedName(o.GetNamespace(), o.GetName())}
}

// sourceKeys is the service of a slice that is not imported, by us or any other implementation.
func sourceKeys(o metav1.Object) []string {
	service := o.GetLabels()[discoveryv1.LabelServiceName]
	if _, imported := o.GetLabels()[mcsv1beta1.LabelServiceName]; imported || service == "" || isOurSlice(o) {
		return nil
	}
	return []string{o.GetNamespace() + "/" + service}
}

// importedKeys are the imports of a slice: by its label and, as that may have been taken off ours, by its owner.
func importedKeys(o metav1.Object) []string {
	var keys []string
	if service := o.GetLabels()[mcsv1beta1.LabelServiceName]; service != "" {
		keys = append(keys, o.GetNamespace()+"/"+service)
	}
	if owner := merge.ImportOwner(o); owner != "" && isOurSlice(o) && owner != o.GetLabels()[mcsv1beta1.LabelServiceName] {
		keys = append(keys, o.GetNamespace()+"/"+owner)
	}
	return keys
}

func isOurSlice(o metav1.Object) bool {
	return o.GetLabels()[discoveryv1.LabelManagedBy] == broker.ManagedBy
}

func index(keys func(metav1.Object) []string) cache.IndexFunc {
	return func(o any) ([]string, error) { return keys(o.(metav1.Object)), nil }
}

// ownManagers begin the names of our field managers.
const ownManagers = "clusterset-"

// trim drops what nobody reads. Of managedFields it keeps what we own, for [merge.Diff].
func trim(object any) (any, error) {
	o, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return !strings.HasPrefix(e.Manager, ownManagers)
	}))
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	switch o := o.(type) {
	case *corev1.Service:
		o.Status = corev1.ServiceStatus{}
	case *corev1.Namespace:
		o.Spec = corev1.NamespaceSpec{}
		o.Status.Conditions = nil
	case *discoveryv1.EndpointSlice:
		if isOurSlice(o) {
			break // all of it is compared
		}
		for i := range o.Endpoints {
			o.Endpoints[i].TargetRef, o.Endpoints[i].Hints, o.Endpoints[i].DeprecatedTopology = nil, nil, nil
		}
	}
	return o, nil
}

// parseKey reads the key of a service in an index.
func parseKey(key string) types.NamespacedName {
	namespace, name, _ := strings.Cut(key, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
