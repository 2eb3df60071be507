package join

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// removeImports deletes what the controller imported into this cluster, in the order in which the controller would:
// EndpointSlices, derived Services, ServiceImports. It returns the objects that have our label and that no controller
// makes; it does not delete them.
func removeImports(ctx context.Context, c *read.Cluster, remove func(context.Context,
	*unstructured.Unstructured) error) (foreign []*unstructured.Unstructured, err error) {
	skip, err := brokerNamespaces(ctx, c)
	if err != nil {
		return nil, err
	}
	managed := broker.LabelManagedBy + "=" + broker.ManagedBy
	for _, x := range []struct {
		resource schema.GroupVersionResource
		selector string
		owned    func(*unstructured.Unstructured) bool
	}{
		{read.EndpointSlices, discoveryv1.LabelManagedBy + "=" + broker.ManagedBy,
			isImported},
		{read.Services, managed, isImported},
		{read.ServiceImports, managed,
			func(*unstructured.Unstructured) bool { return true }},
	} {
		all, err := c.ListObjects(ctx, x.resource, "", x.selector)
		if err != nil {
			return foreign, err
		}
		for _, o := range all {
			if skip[o.GetNamespace()] {
				continue
			}
			if !x.owned(o) {
				foreign = append(foreign, o)
				continue
			}
			if err := remove(ctx, o); err != nil {
				return foreign, err
			}
		}
	}
	return foreign, nil
}

// brokerNamespaces returns the broker namespaces in this cluster. There are some only if the cluster is a broker, too;
// the objects of members in them have the same label as imported objects.
func brokerNamespaces(ctx context.Context, c *read.Cluster) (map[string]bool, error) {
	all, err := c.ListObjects(ctx, read.Namespaces, "", broker.LabelClusterID)
	names := make(map[string]bool, len(all))
	for _, o := range all {
		names[o.GetName()] = true
	}
	return names, err
}

// isImported reports whether a controller has made the object, an EndpointSlice or a Service with our mark, for a
// ServiceImport.
func isImported(o *unstructured.Unstructured) bool {
	name := o.GetLabels()[mcsv1beta1.LabelServiceName]
	_, exported := o.GetLabels()[broker.LabelSourceNamespace]
	return name != "" && !exported && (o.GetKind() != "Service" ||
		o.GetName() == desired.DerivedName(o.GetNamespace(), name))
}
