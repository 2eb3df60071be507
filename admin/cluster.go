package admin

import (
	"cmp"
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// A cluster is one of the API servers of an operation: the broker or the member. This file reads; apply.go writes.
type cluster struct {
	role    Role
	client  dynamic.Interface
	options WriteOptions
	skipped []string // objects that exist and do not decode, and why: one sentence each
}

// open does not contact the API server.
func open(role Role, config *rest.Config, o WriteOptions) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	return &cluster{role: role, client: client, options: o}, nil
}

func (c *cluster) report(o *unstructured.Unstructured, action Action, note string) {
	c.reportDiff(o, action, note, "")
}

func (c *cluster) reportDiff(o *unstructured.Unstructured, action Action, note, diff string) {
	if c.options.Report == nil {
		return
	}
	kind := o.GroupVersionKind()
	c.options.Report(Step{
		Cluster: c.role, Action: action, Group: kind.Group, Kind: kind.Kind,
		Namespace: o.GetNamespace(), Name: cmp.Or(o.GetName(), "*"), Note: note, Diff: diff,
	})
}

func (c *cluster) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	// The guess follows the rules of English and is right for every kind here. Discovery would not know new CRDs yet.
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if o.GetNamespace() == "" {
		return c.client.Resource(plural)
	}
	return c.client.Resource(plural).Namespace(o.GetNamespace())
}

// find returns the object with the kind and name of o, or nil if it, its namespace or its kind does not exist.
func (c *cluster) find(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found, err := c.resource(o).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: read %s: %w", c.role, describe(o), err)
	}
	return found, nil
}

// read is find for a Go type: it fills o, which holds kind and name, and reports whether the object exists.
func (c *cluster) read(ctx context.Context, o typedObject) (bool, error) {
	found, err := c.find(ctx, toUnstructured(o))
	if err != nil || found == nil {
		return false, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, o); err != nil {
		return false, fmt.Errorf("%s: read %s: %w", c.role, describe(found), err)
	}
	return true, nil
}

// skip notes an object that is left out because it does not decode: any member can write one to the broker.
func (c *cluster) skip(o *unstructured.Unstructured, err error) {
	c.skipped = append(c.skipped, fmt.Sprintf("%s: %s is left out, because it does not decode: %s", c.role, describe(o),
		logging.Line(err)))
}

// listObjects returns the objects of a resource in all namespaces, nil if the server does not have the resource.
func (c *cluster) listObjects(ctx context.Context, from schema.GroupVersionResource,
	selector string) ([]*unstructured.Unstructured, error) {
	return c.listIn(ctx, from, metav1.NamespaceAll, selector)
}

// listIn is listObjects for one namespace.
func (c *cluster) listIn(ctx context.Context, from schema.GroupVersionResource, namespace,
	selector string) ([]*unstructured.Unstructured, error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.client.Resource(from).Namespace(namespace).List(ctx, o)
	})
	var all []*unstructured.Unstructured
	found, _, err := pages.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err == nil {
		err = meta.EachListItem(found, func(o runtime.Object) error {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				panic(fmt.Sprintf("admin: the dynamic client returned a %T", o))
			}
			all = append(all, u)
			return nil
		})
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: list %s: %w", c.role, from.Resource, err)
	}
	return all, nil
}

// list is listObjects for a Go type.
func list[T any](ctx context.Context, c *cluster, from schema.GroupVersionResource, selector string) ([]T, error) {
	objects, err := c.listObjects(ctx, from, selector)
	if err != nil {
		return nil, err
	}
	return decode[T](c, objects), nil
}

// decode converts objects to a Go type. It leaves out objects that do not decode, see [cluster.skip].
func decode[T any](c *cluster, objects []*unstructured.Unstructured) []T {
	all := make([]T, 0, len(objects))
	for _, o := range objects {
		var item T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &item); err != nil {
			c.skip(o, err)
			continue
		}
		all = append(all, item)
	}
	return all
}

// kubeSystem returns the UID of the Namespace kube-system, which identifies a cluster (KEP-2149).
func (c *cluster) kubeSystem(ctx context.Context) (types.UID, error) {
	found, err := c.find(ctx, object(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "",
		metav1.NamespaceSystem))
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", fmt.Errorf("%s: namespace %s does not exist: want the API server of a cluster", c.role,
			metav1.NamespaceSystem)
	}
	return found.GetUID(), nil
}

// heartbeat returns the heartbeat of a member, with the time at which it was last renewed, by the clock of the member;
// nil if it never was, or does not decode.
func (c *cluster) heartbeat(ctx context.Context, namespace string) (*coordinationv1.LeaseSpec, error) {
	found, err := c.find(ctx, object(coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, broker.HeartbeatName))
	if err != nil || found == nil {
		return nil, err
	}
	var lease coordinationv1.Lease
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &lease); err != nil {
		c.skip(found, err)
		return nil, nil
	}
	if lease.Spec.RenewTime == nil {
		return nil, nil
	}
	return &lease.Spec, nil
}
