// Package read reads the objects of a member and of the broker for the other packages of admin. It writes nothing.
package read

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

// A Cluster reads one of the API servers of an operation, with the rights of the user.
//
// There are two ways to read. An operation that cannot go on without an object gets an error: Find, As, List. One
// that reports on whatever it can get receives the outcome of each read as a [cause.Read]: One, Many.
type Cluster struct {
	Role    Role // in errors
	Client  dynamic.Interface
	Skipped []string // objects that exist and do not decode, and why: one sentence each

	Core    corev1client.CoreV1Interface
	API     *rest.Config  // of both clients
	timeout time.Duration // of each request
	grants  string        // names the manifest with the rights to read what is read; "" if the caller names it
}

// Open does not contact the API server.
func Open(role Role, config *rest.Config) (*Cluster, error) {
	c, err := OpenWithin(config, 0, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	c.Role = role
	return c, nil
}

// OpenWithin opens a cluster for many reads at once, each within a timeout; 0 means no timeout. It does not contact the
// API server.
func OpenWithin(config *rest.Config, timeout time.Duration, grants string) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	return &Cluster{Client: client, Core: core, API: config, timeout: timeout, grants: grants}, err
}

// requestContext bounds one request.
func (c *Cluster) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// Resource returns the client of an object's kind, in its namespace.
func (c *Cluster) Resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	// The guess follows the rules of English and is right for every kind here. Discovery would not know new CRDs yet.
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return c.Client.Resource(plural).Namespace(o.GetNamespace())
}

// Find returns the object with the kind and name of o, or nil if it, its namespace or its kind does not exist.
func (c *Cluster) Find(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found, err := c.Resource(o).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: read %s: %w", c.Role, Describe(o), err)
	}
	return found, nil
}

// As is Find for a Go type: nil if the object does not exist.
func As[T any](ctx context.Context, c *Cluster, kind schema.GroupVersionKind, namespace, name string) (*T, error) {
	found, err := c.Find(ctx, Object(kind, namespace, name))
	if err != nil || found == nil {
		return nil, err
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into); err != nil {
		return nil, fmt.Errorf("%s: read %s: %w", c.Role, Describe(found), err)
	}
	return into, nil
}

// Lease returns a Lease, nil if it does not exist.
func (c *Cluster) Lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	return As[coordinationv1.Lease](ctx, c, coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, name)
}

// addSkipped notes an object that is left out because it does not decode: any member can write one to the broker.
func (c *Cluster) addSkipped(o *unstructured.Unstructured, err error) {
	c.Skipped = append(c.Skipped, fmt.Sprintf("%s: %s is left out, because it does not decode: %s", c.Role, Describe(o),
		logging.Line(err)))
}

// ListObjects returns the objects of a resource in a namespace or, without one, in all, in the version that the server
// has; nil without any.
func (c *Cluster) ListObjects(ctx context.Context, from schema.GroupVersionResource,
	namespace, selector string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	found, err := Served(from, func(r schema.GroupVersionResource) (runtime.Object, error) {
		pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Client.Resource(r).Namespace(namespace).List(ctx, o)
		})
		found, _, err := pages.List(ctx, metav1.ListOptions{LabelSelector: selector})
		return found, err
	})
	if err == nil {
		err = meta.EachListItem(found, func(o runtime.Object) error {
			all = append(all, unstructuredOf(o))
			return nil
		})
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: list %s: %w", c.Role, from.Resource, err)
	}
	return all, nil
}

// List is ListObjects for a Go type. It leaves out what does not decode, see [Cluster.addSkipped].
func List[T any](ctx context.Context, c *Cluster, from schema.GroupVersionResource,
	namespace, selector string) ([]T, error) {
	objects, err := c.ListObjects(ctx, from, namespace, selector)
	if err != nil {
		return nil, err
	}
	all := make([]T, 0, len(objects))
	for _, o := range objects {
		var item T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &item); err != nil {
			c.addSkipped(o, err)
			continue
		}
		all = append(all, item)
	}
	return all, nil
}

// KubeSystem returns the UID of the Namespace kube-system, which identifies a cluster (KEP-2149).
func (c *Cluster) KubeSystem(ctx context.Context) (types.UID, error) {
	found, err := c.Find(ctx, Object(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "",
		metav1.NamespaceSystem))
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", fmt.Errorf("%s: namespace %s does not exist: want the API server of a cluster", c.Role,
			metav1.NamespaceSystem)
	}
	return found.GetUID(), nil
}

// Heartbeat returns the heartbeat of a member, with the time at which it was last renewed, by the clock of the member;
// nil if it never was, or does not decode.
func (c *Cluster) Heartbeat(ctx context.Context, namespace string) (*coordinationv1.LeaseSpec, error) {
	found, err := c.Find(ctx, Object(coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, broker.HeartbeatName))
	if err != nil || found == nil {
		return nil, err
	}
	var lease coordinationv1.Lease
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &lease); err != nil {
		c.addSkipped(found, err)
		return nil, nil
	}
	if lease.Spec.RenewTime == nil {
		return nil, nil
	}
	return &lease.Spec, nil
}

// Each calls do for each object of a resource in a namespace or, without one, in all. It holds few pages of them: Pods
// are many.
func (c *Cluster) Each(ctx context.Context, from schema.GroupVersionResource, namespace string, o metav1.ListOptions,
	do func(*unstructured.Unstructured)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := c.requestContext(ctx)
		defer cancel()
		return c.Client.Resource(from).Namespace(namespace).List(ctx, o)
	})
	return pages.EachListItem(ctx, o, func(item runtime.Object) error {
		do(unstructuredOf(item))
		return nil
	})
}

func unstructuredOf(o runtime.Object) *unstructured.Unstructured {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		panic(fmt.Sprintf("read: the dynamic client returned a %T", o))
	}
	return u
}
