package read

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// Unread returns the failed read that an error describes. The texts of API servers have no credential.
func Unread[T any](c *Cluster, err error, verb string, of schema.GroupVersionResource,
	namespace string) cause.Read[T] {
	what := of.GroupResource().String()
	if namespace != "" {
		what += " in namespace " + namespace
	}
	switch class := apiserver.Classify(err); {
	case isNoKind(err):
		return cause.Read[T]{State: cause.NotInstalled,
			Why: "the API server does not have " + of.GroupResource().String()}
	case class == apiserver.Absent:
		return cause.Read[T]{State: cause.Absent}
	case class == apiserver.Unauthorized:
		return cause.Read[T]{State: cause.Unauthorized, Why: "the API server rejects the credential (401)"}
	case class == apiserver.Forbidden:
		why := fmt.Sprintf("the right to %s %s is missing", verb, what)
		if c.grants != "" {
			why += "; " + c.grants + " has it"
		}
		return cause.Read[T]{State: cause.Forbidden, Why: why}
	}
	why := logging.Line(err)
	if errors.Is(err, context.DeadlineExceeded) {
		why = "no answer in time"
		if c.timeout > 0 {
			why = "no answer within " + c.timeout.String() + " (--timeout)"
		}
	}
	return cause.Read[T]{State: cause.Unreachable, Why: fmt.Sprintf("%s %s: %s", verb, what, why)}
}

// Get returns an object in the version that the API server has.
func (c *Cluster) Get(ctx context.Context, of schema.GroupVersionResource, namespace,
	name string) (*unstructured.Unstructured, error) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	return Served(of, func(r schema.GroupVersionResource) (*unstructured.Unstructured, error) {
		return c.Client.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

// One reads one object and turns it into a T.
func One[T any](ctx context.Context, c *Cluster, of schema.GroupVersionResource, namespace,
	name string) cause.Read[*T] {
	found, err := c.Get(ctx, of, namespace, name)
	if err != nil {
		return Unread[*T](c, err, "get", of, namespace)
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into); err != nil {
		return cause.Read[*T]{State: cause.Unreachable,
			Why: fmt.Sprintf("%s does not decode: %s", Describe(found), logging.Line(err))}
	}
	return cause.Read[*T]{State: cause.Present, Value: into}
}

// Many lists objects in a namespace or, without one, in all. It leaves out and names objects that do not decode.
func Many[T any](
	ctx context.Context, c *Cluster, of schema.GroupVersionResource, namespace string, o metav1.ListOptions,
) (_ cause.Read[[]T], undecodable []string) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	all, err := c.Client.Resource(of).Namespace(namespace).List(ctx, o)
	if err != nil {
		return Unread[[]T](c, err, "list", of, namespace), nil
	}
	list := make([]T, 0, len(all.Items))
	for i := range all.Items {
		var item T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all.Items[i].Object, &item); err != nil {
			undecodable = append(undecodable, fmt.Sprintf("%s does not decode: %s", Describe(&all.Items[i]), logging.Line(err)))
			continue
		}
		list = append(list, item)
	}
	return cause.Read[[]T]{State: cause.Present, Value: list}, undecodable
}

// converted turns the value of a read.
func converted[T, U any](r cause.Read[T], turn func(T) U) cause.Read[U] {
	next := cause.Read[U]{State: r.State, Why: r.Why}
	if r.State == cause.Present {
		next.Value = turn(r.Value)
	}
	return next
}

// WithGrant completes an error about a missing right with a phrase about the manifest that grants it.
func WithGrant(err error, by string) error {
	// Quotas answer Forbidden, too, in other words.
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot ") {
		return fmt.Errorf("%w; %s", err, by)
	}
	return err
}
