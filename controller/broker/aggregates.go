package broker

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// Aggregates are the merged imports that this member publishes on the broker for people to read ("aggregate_view").
type Aggregates struct {
	client    *apiserver.Client
	namespace string // of this member
	log       logging.Logger
	noImports sync.Once // logs that the broker has no ServiceImports
}

// Apply publishes the merged import of a service: imp as it is in an importing cluster, under the name of its export
// record. It is no error if the broker has no ServiceImports; that is logged once.
func (a *Aggregates) Apply(ctx context.Context, imp *mcsv1beta1.ServiceImport) error {
	imp = a.published(imp)
	status := imp.DeepCopy()
	err := a.client.Apply(ctx, imp, wellknown.ManagerExporter)
	if err == nil {
		err = a.client.Apply(ctx, status, wellknown.ManagerExporter, "status")
	}
	return a.imports(err)
}

// Delete removes what Apply published for the service of imp.
func (a *Aggregates) Delete(ctx context.Context, imp *mcsv1beta1.ServiceImport) error {
	return a.imports(a.client.Delete(ctx, a.published(imp)))
}

// List asks the broker for the imports that this member has published, by service.
func (a *Aggregates) List(ctx context.Context) (map[types.NamespacedName]*mcsv1beta1.ServiceImport, error) {
	list := &mcsv1beta1.ServiceImportList{}
	selector := broker.LabelManagedBy + "=" + broker.ManagedBy
	err := a.client.List(ctx, &mcsv1beta1.ServiceImport{}, list, a.namespace, selector)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	published := make(map[types.NamespacedName]*mcsv1beta1.ServiceImport)
	for i := range list.Items {
		if svc, ok := ServiceOf(list.Items[i].Name); ok {
			published[svc] = &list.Items[i]
		}
	}
	return published, nil
}

// published returns an import as it is stored on the broker.
func (a *Aggregates) published(imp *mcsv1beta1.ServiceImport) *mcsv1beta1.ServiceImport {
	p := imp.DeepCopy()
	if imp.Namespace != a.namespace {
		p.Name = broker.RecordName(imp.Namespace, imp.Name)
		p.UID, p.ResourceVersion, p.OwnerReferences = "", "", nil
	}
	p.Namespace = a.namespace
	if p.Labels == nil {
		p.Labels = make(map[string]string)
	}
	p.Labels[broker.LabelManagedBy] = broker.ManagedBy
	return p
}

// imports ignores the error of a broker without ServiceImports.
func (a *Aggregates) imports(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		a.noImports.Do(func() {
			a.log.Warningf("broker: ServiceImport is not installed there: aggregate_view has no effect")
		})
		return nil
	}
	return fmt.Errorf("broker: %w", err)
}
