package admin

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// Role is the role of a cluster in an operation.
type Role string

// The roles.
const (
	RoleBroker Role = "broker"
	RoleMember Role = "member"
)

// A cluster reads one of the API servers of an operation, with the rights of the user.
//
// There are two ways to read. An operation that cannot go on without an object gets an error: find, read, list. One
// that reports on whatever it can get, receives for each read its outcome, as an [explain.Read]: readOne, readList.
type cluster struct {
	role    Role // in errors
	client  dynamic.Interface
	skipped []string // objects that exist and do not decode, and why: one sentence each

	// Set by openWithin.
	core    corev1client.CoreV1Interface
	timeout time.Duration // of each request
	grants  string        // names the manifest with the rights to read what is read; "" if the caller names it
}

// open does not contact the API server.
func open(role Role, config *rest.Config) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	return &cluster{role: role, client: client}, nil
}

// openWithin opens a cluster of which many objects are read at once, each within a timeout. It does not contact the API
// server.
func openWithin(config *rest.Config, timeout time.Duration, grants string) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	return &cluster{client: client, core: core, timeout: timeout, grants: grants}, err
}

// within bounds one request.
func (c *cluster) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// resource returns the client of an object's kind, in its namespace.
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

// as is find for a Go type: nil if the object does not exist.
func as[T any](ctx context.Context, c *cluster, kind schema.GroupVersionKind, namespace, name string) (*T, error) {
	found, err := c.find(ctx, object(kind, namespace, name))
	if err != nil || found == nil {
		return nil, err
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into); err != nil {
		return nil, fmt.Errorf("%s: read %s: %w", c.role, describe(found), err)
	}
	return into, nil
}

// lease returns a Lease, nil if it does not exist.
func (c *cluster) lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	return as[coordinationv1.Lease](ctx, c, coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, name)
}

// skip notes an object that is left out because it does not decode: any member can write one to the broker.
func (c *cluster) skip(o *unstructured.Unstructured, err error) {
	c.skipped = append(c.skipped, fmt.Sprintf("%s: %s is left out, because it does not decode: %s", c.role, describe(o),
		logging.Line(err)))
}

// listObjects returns the objects of a resource in a namespace or, without one, in all; nil if the server does not have the resource.
func (c *cluster) listObjects(ctx context.Context, from schema.GroupVersionResource, namespace, selector string) ([]*unstructured.Unstructured, error) {
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

// list is listObjects for a Go type, in all namespaces.
func list[T any](ctx context.Context, c *cluster, from schema.GroupVersionResource, selector string) ([]T, error) {
	objects, err := c.listObjects(ctx, from, metav1.NamespaceAll, selector)
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

// each calls do for each object of a resource in a namespace or, without one, in all. It holds few pages of them: Pods
// are many.
func (c *cluster) each(ctx context.Context, from schema.GroupVersionResource, namespace string, o metav1.ListOptions,
	do func(*unstructured.Unstructured)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := c.within(ctx)
		defer cancel()
		return c.client.Resource(from).Namespace(namespace).List(ctx, o)
	})
	return pages.EachListItem(ctx, o, func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			panic(fmt.Sprintf("admin: the dynamic client returned a %T", item))
		}
		do(u)
		return nil
	})
}
