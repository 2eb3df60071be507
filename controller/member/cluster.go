// Package member reads and writes the member's own API server. This cluster exports its services, and imports those of
// the others.
//
//	        list + watch                                  keys of services
//	Namespace Service EndpointSlice        +---------+    +--------------+
//	ServiceExport ServiceImport     -----> | Cluster | -> | Handle(...)  | -> queues of exporter and importer
//	ClusterProperty ServiceCIDR            +---------+    +--------------+
//	                                         ^     |
//	             [Cluster.Wrote], .Deleted --+     +--> Export, Import, Service, SourceSlices, ... (reads)
//
// A [Cluster] follows all kinds that the controller needs. Its reads come from memory and include the controller's own
// writes at once, before the watch delivers them. [Conditions] writes the conditions of a ServiceExport and lets
// [Events] record each transition. [Policy] decides which namespaces take part. [CheckKinds] lists missing and old
// definitions; the controller waits until all exist.
//
// Nothing here knows about the broker.
package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// A Config sets the API server that a [Cluster] follows.
type Config struct {
	REST  *rest.Config // with its rate limit and its transport
	Kinds Kinds        // of that API server, by [CheckKinds]
	// ServiceCIDRs are the service networks where the API server has no ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix
	Interval     time.Duration // between two checks of the API server; 30 s if 0
	Log          logging.Logger
	Barrier      *logging.Barrier // nil counts and logs no panic
	// Rejected is called for each version of an object that does not decode; nil drops it.
	Rejected func(merge.Rejection)
}

// A Cluster is the member's own cluster as its API server describes it.
//
// [New] makes it without a request. [Cluster.Run] follows the API server; the caches are complete once [Cluster.Synced]
// is true. The objects that it returns are shared with the caches: callers must not change them. All methods may be
// called by several goroutines.
//
// A write goes through [Cluster.Client]. The writer then reports the answer by [Cluster.Wrote] or [Cluster.Deleted], so
// that the next read sees it even if the watch is late; a write that is not seen would be repeated.
type Cluster struct {
	client         *apiserver.Client
	set            *apiserver.Set
	cidrs          []netip.Prefix
	exportClusters bool // see [Kinds]

	namespaces   *apiserver.Overlay[*corev1.Namespace]
	services     *apiserver.Overlay[*corev1.Service]
	exports      *apiserver.Overlay[*mcsv1beta1.ServiceExport]
	imports      *apiserver.Overlay[*mcsv1beta1.ServiceImport]
	slices       *apiserver.Overlay[*discoveryv1.EndpointSlice]
	properties   *apiserver.Overlay[*aboutv1beta1.ClusterProperty]
	serviceCIDRs *apiserver.Overlay[*networkingv1.ServiceCIDR] // nil if the kind is not served
	former       *keptExports
	keptProps    *keptProperties

	followed map[reflect.Type]followed
	synced   atomic.Bool
	rejected func(merge.Rejection)
	barrier  *logging.Barrier
	notify   atomic.Pointer[func(Affected)] // of [Cluster.Handle]
}

// Affected are the services that one change of an object may affect. A service may be listed more than once.
type Affected struct {
	Exports, Imports []types.NamespacedName
	// the Services, or their slices, changed: export and import are affected if they are exported
	Sources   []types.NamespacedName
	Namespace string // every service of it is affected; "" for none
	All       bool   // every service is affected
	// Initial means that the object existed before [Cluster.Handle] was called: the change is part of the backlog.
	Initial bool
	// Lost means that a slice of a Service of this cluster lost its last ready endpoint.
	Lost bool
}

// changed notifies of a change for which no informer has an event.
func (c *Cluster) changed(a Affected) {
	if notify := c.notify.Load(); notify != nil {
		(*notify)(a)
	}
}

// followed is one kind of a Cluster, of any type.
type followed struct {
	kind           string
	informer       cache.SharedIndexInformer
	wrote, deleted func(apiserver.Object)
	reset          func()
}

// errNoAnswer is the reason why a watch without an error has no contact.
var errNoAnswer = errors.New("the API server does not answer")

// Blind names a kind that exports depend on and that was not seen since a time, or returns "". Kinds that are not
// installed are skipped: exports go on without them.
func (c *Cluster) Blind(since time.Time) string {
	for _, kind := range []string{"Namespace", "Service", "EndpointSlice", "ServiceExport", kindProperty} {
		id := apiserver.WatchID{Kind: kind}
		err := cmp.Or(c.set.Err(id), errNoAnswer)
		if last := c.set.LastContact(id); !last.After(since) && apiserver.Classify(err) != apiserver.Absent {
			return fmt.Sprintf("%s: nothing was heard of it since %s: %v", kind, last.UTC().Format(time.RFC3339), err)
		}
	}
	return ""
}

// New makes informers for all kinds without contacting the API server.
func New(cfg Config) (*Cluster, error) {
	client, err := apiserver.NewClient(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	c := &Cluster{
		client: client, cidrs: cfg.ServiceCIDRs, exportClusters: cfg.Kinds.ExportClusters,
		followed: make(map[reflect.Type]followed),
		rejected: cfg.Rejected, barrier: cfg.Barrier,
	}
	c.former = newKeptExports(cfg.Log, func(ended []types.NamespacedName) {
		c.changed(Affected{Exports: ended, Imports: ended, All: ended == nil})
	})
	c.keptProps = newKeptProperties(func() { c.changed(Affected{All: true}) })
	c.barrier = cmp.Or(c.barrier, &logging.Barrier{})
	if c.rejected == nil {
		c.rejected = func(merge.Rejection) {}
	}
	c.set = apiserver.NewSet(apiserver.SetConfig{Client: client, Name: "local", Interval: cfg.Interval, Log: cfg.Log,
		Barrier: c.barrier, RolledBack: c.rolledBack})
	c.namespaces = follow(c, &corev1.Namespace{}, nil)
	c.services = follow(c, &corev1.Service{}, nil)
	c.exports = follow(c, &mcsv1beta1.ServiceExport{}, nil)
	exports := c.kindOf(&mcsv1beta1.ServiceExport{}).informer
	if _, err := apiserver.Handle(c.barrier, exports, c.former.changed); err != nil {
		return nil, fmt.Errorf("member: handler of ServiceExport: %w", err)
	}
	c.imports = follow(c, &mcsv1beta1.ServiceImport{}, cache.Indexers{indexDerived: index(derivedKeys),
		indexAddress: index(addressKeys)})
	c.slices = follow(c, &discoveryv1.EndpointSlice{},
		cache.Indexers{indexSource: index(sourceKeys), indexImported: index(importedKeys)})
	c.properties = follow(c, &aboutv1beta1.ClusterProperty{}, nil)
	properties := c.kindOf(&aboutv1beta1.ClusterProperty{}).informer
	if _, err := apiserver.Handle(c.barrier, properties, c.keptProps.seen); err != nil {
		return nil, fmt.Errorf("member: handler of ClusterProperty: %w", err)
	}
	if cfg.Kinds.ServiceCIDRs {
		c.serviceCIDRs = follow(c, &networkingv1.ServiceCIDR{}, nil)
	}
	return c, nil
}

// follow adds a kind to the set.
func follow[T apiserver.Object](c *Cluster, example T, indexers cache.Indexers) *apiserver.Overlay[T] {
	informer := c.set.Add(example, apiserver.WatchOptions{
		Transform: trim, Indexers: indexers,
		Undecodable: func(bad *apiserver.Undecodable) {
			name := bad.Kind + " " + cache.MetaObjectToName(bad).String()
			c.rejected(merge.Rejection{Cluster: merge.Local, Object: name, Reason: merge.Undecodable, Detail: bad.Err.Error()})
		},
	})
	o := apiserver.NewOverlay[T](informer)
	c.followed[reflect.TypeOf(example)] = followed{
		kind: apiserver.ResourceOf(example).Kind, informer: informer,
		wrote:   func(object apiserver.Object) { o.Wrote(object.(T)) },
		deleted: func(object apiserver.Object) { o.Deleted(object.(T)) },
		reset:   o.Reset,
	}
	return o
}

// Run follows the API server until ctx ends; it then returns nil. It may be called once.
func (c *Cluster) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.set.Run(ctx) })
	g.Go(func() error {
		c.former.run(ctx, c.kindOf(&mcsv1beta1.ServiceExport{}).informer.HasSynced,
			func(ctx context.Context) (*unstructured.Unstructured, error) {
				return c.client.Definition(ctx, mcsv1beta1.ServiceExportFullName)
			}, func(svc types.NamespacedName) bool { return c.Service(svc) != nil })
		return nil
	})
	g.Go(func() error {
		wait.UntilWithContext(ctx, func(context.Context) {
			healthy := c.set.Health(apiserver.WatchID{Kind: kindProperty}).Healthy() && c.Property(about.ClusterIDName) != nil
			c.keptProps.release(time.Now(), healthy, c.UnreadableProperty)
		}, time.Second)
		return nil
	})
	return g.Wait()
}

// Close ends the connections. Run must have returned.
func (c *Cluster) Close() { c.client.Close() }

// Synced reports whether every kind was listed once. It does not wait for ServiceExports and ServiceImports where they
// are absent: see [Cluster.ExportGoesOn] and [Cluster.ImportsUnknown].
func (c *Cluster) Synced() bool {
	if c.synced.Load() {
		return true
	}
	for _, f := range c.followed {
		if !f.informer.HasSynced() && (f.kind != kindExport && f.kind != kindImport || !c.absent(f.kind)) {
			return false
		}
	}
	c.synced.Store(true)
	return true
}

// Waiting names a kind that was not listed yet and the reason, "" if [Cluster.Synced].
func (c *Cluster) Waiting() string {
	if c.Synced() {
		return ""
	}
	return c.set.Waiting()
}

// ExportsAbsent returns the reason why ServiceExports are not served, or "".
func (c *Cluster) ExportsAbsent() string {
	if !c.absent(kindExport) {
		return ""
	}
	return "this cluster does not have ServiceExport at v1 or v1beta1: earlier exports go on; install its CRD, then the exports again"
}

// ImportsUnknown returns the reason why ServiceImports are not known, or "". Imports stay as they are meanwhile.
func (c *Cluster) ImportsUnknown() string {
	switch {
	case c.absent(kindImport):
		return "this cluster does not have ServiceImport at v1 or v1beta1: install its CRD"
	case !c.kindOf(&mcsv1beta1.ServiceImport{}).informer.HasSynced():
		return "ServiceImports of this cluster are not listed yet"
	}
	return ""
}

// absent reports whether a kind is not served in a version that the controller knows.
func (c *Cluster) absent(kind string) bool { return slices.Contains(c.set.Absent(), kind) }

// UnreadableRetry is the time until a service with an object that does not decode is reconciled again: no event follows
// when the object is deleted.
const UnreadableRetry = 5 * time.Second

// Unreadable reports whether the ServiceExport or the ServiceImport of a service exists and does not decode. Its
// content is unknown, so nothing may follow from it.
func (c *Cluster) Unreadable(svc types.NamespacedName) bool {
	return slices.ContainsFunc([]string{kindExport, kindImport}, func(kind string) bool {
		return c.set.Undecodable(apiserver.WatchID{Kind: kind}, svc.String()) != nil
	})
}

// UnreadableProperty reports whether the ClusterProperty exists and does not decode.
func (c *Cluster) UnreadableProperty(name string) bool {
	return c.set.Undecodable(apiserver.WatchID{Kind: kindProperty}, name) != nil
}

// The kinds that may not decode: those of CRDs.
const (
	kindExport   = "ServiceExport"
	kindImport   = "ServiceImport"
	kindProperty = "ClusterProperty"
)

// Client is for writes, and for reads that must not come from the caches.
func (c *Cluster) Client() *apiserver.Client { return c.client }

// rolledBack forgets our own writes: the API server was restored to a state that may not have them.
func (c *Cluster) rolledBack() {
	for _, f := range c.followed {
		f.reset()
	}
}

// Wrote makes reads return o, the response of the API server to a write, before the watch delivers it. o belongs to the
// caches from then on.
func (c *Cluster) Wrote(o apiserver.Object) { c.kindOf(o).wrote(o) }

// Deleted makes reads omit o, which the API server has deleted, before the watch delivers that.
func (c *Cluster) Deleted(o apiserver.Object) { c.kindOf(o).deleted(o) }

func (c *Cluster) kindOf(o apiserver.Object) followed {
	f, ok := c.followed[reflect.TypeOf(o)]
	if !ok {
		panic(fmt.Sprintf("member: %T is not followed", o))
	}
	return f
}

// Namespace returns the namespace, nil if it does not exist.
func (c *Cluster) Namespace(name string) *corev1.Namespace { return c.namespaces.Get(name) }

// CreatedNamespaces returns the number of namespaces that the controller created for exports of each cluster, by their
// labels and annotations. Where this cluster is the broker, too, the namespaces of members do not count.
func (c *Cluster) CreatedNamespaces() map[string]int {
	created := map[string]int{}
	for _, ns := range c.namespaces.List() {
		if id := ns.Annotations[apibroker.AnnotationCreatedFor]; id != "" &&
			ns.Labels[apibroker.LabelManagedBy] == apibroker.ManagedBy {
			created[id]++
		}
	}
	return created
}

// Service returns the Service of that name, nil if it does not exist.
func (c *Cluster) Service(svc types.NamespacedName) *corev1.Service {
	return c.services.Get(svc.String())
}

// Services returns the keys of all Services.
func (c *Cluster) Services() []types.NamespacedName { return keysOf(c.services.List()) }

// Derived returns the Service with the name of the import's derived Service, whether we manage it or not; nil if it
// does not exist.
func (c *Cluster) Derived(svc types.NamespacedName) *corev1.Service {
	return c.services.Get(svc.Namespace + "/" + desired.DerivedName(svc.Namespace, svc.Name))
}

// Export returns the ServiceExport, also a deleted one that has not ended, or nil.
func (c *Cluster) Export(svc types.NamespacedName) *mcsv1beta1.ServiceExport {
	return c.former.orFormer(svc.String(), c.exports.Get)
}

// StoredExport is [Cluster.Export] without exports that go on although their ServiceExport is gone.
func (c *Cluster) StoredExport(svc types.NamespacedName) *mcsv1beta1.ServiceExport {
	return c.exports.Get(svc.String())
}

// ExportGoesOn reports whether the export of a service, created at a time, goes on without a ServiceExport: it went
// with an earlier CRD, so that its user has not ended it, or that is not known yet.
func (c *Cluster) ExportGoesOn(svc types.NamespacedName, created time.Time) bool {
	return c.former.goesOn(svc.String(), created)
}

// ExportsKnown reports whether all exports of this cluster are known: ServiceExports were listed, and their CRD was
// read after that.
func (c *Cluster) ExportsKnown() bool { return c.former.known() }

// WithheldExports is the number of deleted ServiceExports that have not ended.
func (c *Cluster) WithheldExports() int { return c.former.waiting() }

// Import returns the ServiceImport, whether we manage it or not; nil if it does not exist.
func (c *Cluster) Import(svc types.NamespacedName) *mcsv1beta1.ServiceImport {
	return c.imports.Get(svc.String())
}

// ImportsWith returns the services of imports of ours that have a clusterset IP.
func (c *Cluster) ImportsWith(address netip.Addr) (services []types.NamespacedName) {
	for _, imp := range c.imports.ByIndex(indexAddress, address.String()) {
		if IsOurs(imp) {
			services = append(services, KeyOf(imp))
		}
	}
	return services
}

// SourceSlices returns the slices of the Service of that name, sorted by name, without those that we imported.
func (c *Cluster) SourceSlices(svc types.NamespacedName) []*discoveryv1.EndpointSlice {
	return c.slices.ByIndex(indexSource, svc.String())
}

// ImportedSlices returns the slices that have the label of the import or that we made for it, sorted by name, without
// those that we made for another import that exists.
func (c *Cluster) ImportedSlices(svc types.NamespacedName) []*discoveryv1.EndpointSlice {
	derived := desired.DerivedName(svc.Namespace, svc.Name)
	ours := c.slices.ByIndex(indexImported, svc.Namespace+"/"+derived)
	labelled := slices.DeleteFunc(c.slices.ByIndex(indexImported, svc.String()), func(e *discoveryv1.EndpointSlice) bool {
		out := e.Labels[discoveryv1.LabelServiceName]
		return isOurSlice(e) && (out == derived || importOfSlice(e) != svc.Name ||
			len(c.imports.ByIndex(indexDerived, svc.Namespace+"/"+out)) > 0)
	})
	all := slices.Concat(ours, labelled)
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ExportClusters reports whether a ServiceExport has status.clusters.
func (c *Cluster) ExportClusters() bool { return c.exportClusters }

// Property returns the ClusterProperty, nil if it does not exist.
func (c *Cluster) Property(name string) *aboutv1beta1.ClusterProperty {
	return c.properties.Get(name)
}

// clusterID returns the value of the ClusterProperty with the cluster id, or "".
func (c *Cluster) clusterID() string {
	if p := c.Property(about.ClusterIDName); p != nil {
		return p.Spec.Value
	}
	return ""
}

// UnreadableProperties returns the names of the ClusterProperties that exist and do not decode, sorted.
func (c *Cluster) UnreadableProperties() (names []string) {
	for _, bad := range c.set.Undecodables(apiserver.WatchID{Kind: kindProperty}) {
		names = append(names, bad.Name)
	}
	return names
}

// Properties returns all ClusterProperties, sorted by name, also those that are gone and count still: see
// [keptProperties].
func (c *Cluster) Properties() []*aboutv1beta1.ClusterProperty {
	all := slices.Collect(maps.Values(c.keptProps.orFormer(c.properties.List)))
	slices.SortFunc(all, func(a, b *aboutv1beta1.ClusterProperty) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Exports returns the keys of all that [Cluster.Export] returns, sorted.
func (c *Cluster) Exports() []types.NamespacedName {
	all := append(keysOf(c.exports.List()), c.former.keys()...)
	slices.SortFunc(all, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// Imports returns the keys of all ServiceImports, sorted, without those in namespaces that members write to: where this
// cluster is its own broker, they are what members publish for people, with our label ("aggregate_view").
func (c *Cluster) Imports() []types.NamespacedName {
	return slices.DeleteFunc(keysOf(c.imports.List()), func(svc types.NamespacedName) bool {
		return IsBrokerNamespace(c.Namespace(svc.Namespace))
	})
}

// Leftovers returns the services with imported slices or a derived Service, but without import: it was deleted, by hand
// or with its CRD, or someone has changed the labels of a slice.
func (c *Cluster) Leftovers() []types.NamespacedName {
	found := make(map[types.NamespacedName]bool)
	see := func(o metav1.Object, imp string, ours bool) {
		svc := types.NamespacedName{Namespace: o.GetNamespace(), Name: imp}
		if ours && svc.Name != "" && c.Import(svc) == nil {
			found[svc] = true
		}
	}
	for _, s := range c.services.List() {
		see(s, desired.ImportName(s), desired.IsDerived(s))
	}
	for _, e := range c.slices.List() {
		see(e, importOfSlice(e), desired.IsImported(e))
	}
	return slices.Collect(maps.Keys(found))
}

// ServiceCIDRs returns the service networks of the cluster: those of its ServiceCIDR objects, or without such objects
// those of the Config.
func (c *Cluster) ServiceCIDRs() []netip.Prefix {
	var all []netip.Prefix
	if c.serviceCIDRs != nil {
		for _, o := range c.serviceCIDRs.List() {
			for _, text := range o.Spec.CIDRs {
				if p, err := apibroker.ParsePrefix(text); err == nil {
					all = append(all, p)
				}
			}
		}
	}
	if len(all) == 0 {
		return c.cidrs
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// Families returns the IP families in which Services of this cluster get addresses, sorted: those of its service
// networks, or if no network is known those of the Service default/kubernetes, which every API server creates for
// itself. It is empty while neither is known.
func (c *Cluster) Families() []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, p := range c.ServiceCIDRs() {
		family := corev1.IPv6Protocol
		if p.Addr().Is4() {
			family = corev1.IPv4Protocol
		}
		families = append(families, family)
	}
	own := c.Service(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"})
	if len(families) == 0 && own != nil {
		families = slices.Clone(own.Spec.IPFamilies)
	}
	slices.Sort(families)
	return slices.Compact(families)
}
