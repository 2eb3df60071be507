package member

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// Handle calls notify for every object that is known, returns, and goes on to call it for every change, from several
// goroutines. It fails if Run has returned already, or if ctx ends first.
func (c *Cluster) Handle(ctx context.Context, notify func(Affected)) error {
	c.notify.Store(&notify)
	var notified []cache.InformerSynced
	for kind, f := range c.followed {
		registration, err := c.handle(f, notify)
		if err != nil {
			return fmt.Errorf("member: handler of %s: %w", kind, err)
		}
		if f.informer.HasSynced() { // ServiceExport may be absent
			notified = append(notified, registration.HasSynced)
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), notified...) {
		return fmt.Errorf("member: handlers: %w", ctx.Err())
	}
	return nil
}

func (c *Cluster) handle(f followed, notify func(Affected)) (cache.ResourceEventHandlerRegistration, error) {
	return apiserver.Handle(c.barrier, f.informer, func(before, after apiserver.Object, initial bool) {
		if before != nil && after != nil && before.GetResourceVersion() == after.GetResourceVersion() {
			return
		}
		a := Affected{Initial: initial, Lost: losesEndpoints(before, after)}
		c.affected(&a, before)
		c.affected(&a, after)
		notify(a)
	})
}

// losesEndpoints reports whether previous is a slice of a Service of this cluster, not one that is imported, and loses
// its last ready endpoint. current is nil if it is gone.
func losesEndpoints(previous, current apiserver.Object) bool {
	before, slice := previous.(*discoveryv1.EndpointSlice)
	after, _ := current.(*discoveryv1.EndpointSlice)
	return slice && len(sourceKeys(before)) > 0 && apibroker.LosesLastReady(before, after)
}

// affected adds the services that depend on o, which may be nil, to a.
func (c *Cluster) affected(a *Affected, o apiserver.Object) {
	switch o := o.(type) {
	case *corev1.Namespace:
		a.Namespace = o.Name
	case *networkingv1.ServiceCIDR, *aboutv1beta1.ClusterProperty:
		a.All = true
	case *corev1.Service:
		if svc, derived := c.importOf(o); derived {
			a.Imports = append(a.Imports, svc)
		}
		a.Sources = append(a.Sources, KeyOf(o))
	case *mcsv1beta1.ServiceExport:
		a.Exports, a.Imports = append(a.Exports, KeyOf(o)), append(a.Imports, KeyOf(o))
	case *mcsv1beta1.ServiceImport:
		a.Imports = append(a.Imports, KeyOf(o))
		if !IsOurs(o) { // the export reports that it is in the way
			a.Sources = append(a.Sources, KeyOf(o))
		}
	case *discoveryv1.EndpointSlice:
		for _, key := range sourceKeys(o) {
			a.Sources = append(a.Sources, parseKey(key))
		}
		if name := importOfSlice(o); name != "" {
			a.Imports = append(a.Imports, types.NamespacedName{Namespace: o.Namespace, Name: name})
		}
	}
}

// importOf returns the key of the import that a Service is derived from, by its label or else by its name.
func (c *Cluster) importOf(s *corev1.Service) (types.NamespacedName, bool) {
	if name := desired.ImportName(s); name != "" && desired.IsDerived(s) {
		return types.NamespacedName{Namespace: s.Namespace, Name: name}, true
	}
	imports := c.imports.ByIndex(indexDerived, KeyOf(s).String())
	if len(imports) == 0 {
		return types.NamespacedName{}, false
	}
	return KeyOf(imports[0]), true
}
