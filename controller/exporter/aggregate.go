package exporter

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// aggregates publishes merged imports in the broker namespace of this member, for the services with its export as the
// oldest one (docs/spec/controller.md 2, "aggregate_view"). People read them; no controller imports or watches them. So
// this remembers its writes, after one list of the objects of earlier instances.
type aggregates struct {
	broker    *broker.Broker
	imports   *broker.Aggregates
	clusterID string
	options   merge.Options
	enabled   bool
	requeue   func(types.NamespacedName)

	mu        sync.Mutex
	listed    bool
	published map[types.NamespacedName]*mcsv1beta1.ServiceImport // as listed, or as written since
}

// publish writes or deletes the aggregate of a service on the broker. own is this cluster's export, or nil. One
// goroutine at a time publishes a service.
func (a *aggregates) publish(ctx context.Context, svc types.NamespacedName, own *v1alpha1.ExportedService) error {
	if err := a.list(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	got := a.published[svc]
	a.mu.Unlock()
	want := a.importOf(svc, own)
	switch {
	case want == nil && got == nil:
		return nil
	case want == nil:
		if err := a.imports.Delete(ctx, got); err != nil {
			return err
		}
	case got == nil || !sameAggregate(want, got):
		// A part of it may be written even if the write fails.
		a.set(svc, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name}})
		if err := a.imports.Apply(ctx, want); err != nil {
			return err
		}
	}
	a.set(svc, want)
	return nil
}

// list reads what earlier instances left and has those services reconciled. While aggregates are disabled a failure is
// ignored: a member without the right to read them has not written any.
func (a *aggregates) list(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listed {
		return nil
	}
	rest, err := a.imports.List(ctx)
	if err != nil && a.enabled {
		return err
	}
	a.listed = true
	for svc, imp := range rest {
		a.published[svc] = imp
		a.requeue(svc)
	}
	return nil
}

// set records what the broker has of a service, nil if nothing.
func (a *aggregates) set(svc types.NamespacedName, imp *mcsv1beta1.ServiceImport) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.published[svc] = imp; imp == nil {
		delete(a.published, svc)
	}
}

// importOf returns the merged import of a service, without derived addresses and conditions, which each member has its
// own of. It is nil if another member has to publish it, or no member does.
func (a *aggregates) importOf(svc types.NamespacedName, own *v1alpha1.ExportedService) *mcsv1beta1.ServiceImport {
	if !a.enabled || own == nil {
		return nil
	}
	present, o := a.broker.View(svc, a.options)
	merged := merge.Merge(svc, a.broker.Replace(present.Records, own), o)
	if merged.Oldest != a.clusterID {
		return nil
	}
	if merged.Import != nil {
		delete(merged.Import.Annotations, apibroker.AnnotationVIPs) // its stamps change without the addresses
	}
	return merged.Import
}

func sameAggregate(want, got *mcsv1beta1.ServiceImport) bool {
	same := equality.Semantic.DeepEqual
	return same(want.Labels, got.Labels) && same(want.Annotations, got.Annotations) &&
		same(want.Spec, got.Spec) && same(want.Status.Clusters, got.Status.Clusters)
}
