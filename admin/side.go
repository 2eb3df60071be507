package admin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A side is one API server that is read and written.
type side struct {
	name    Side
	client  dynamic.Interface
	writing Writing
}

// patience is how long the API server may take to serve a new CRD, or the broker to empty a namespace.
const patience = 2 * time.Minute

func (s *side) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	// The rules of English give the resource of every kind here; discovery would not yet know those of new CRDs.
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if o.GetNamespace() == "" {
		return s.client.Resource(plural)
	}
	return s.client.Resource(plural).Namespace(o.GetNamespace())
}

// find returns an object as it is, or nil if it, its namespace or its kind is not there.
func (s *side) find(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found, err := s.resource(o).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: read %s: %w", s.name, describe(o), err)
	}
	return found, nil
}

// read is like find, for a type whose kind and name are those of o. It reports whether there was something.
func (s *side) read(ctx context.Context, o typed) (bool, error) {
	found, err := s.find(ctx, toUnstructured(o))
	if err != nil || found == nil {
		return false, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, o); err != nil {
		return false, fmt.Errorf("%s: read %s: %w", s.name, describe(found), err)
	}
	return true, nil
}

// list returns the objects of a resource in all namespaces, or in one, none if the server does not know the resource.
func list[T any](ctx context.Context, s *side, from schema.GroupVersionResource, namespace, selector string) ([]T, error) {
	var all []T
	options := metav1.ListOptions{LabelSelector: selector, Limit: 500}
	for {
		page, err := s.client.Resource(from).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("%s: list %s: %w", s.name, from.Resource, err)
		}
		for i := range page.Items {
			var o T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(page.Items[i].Object, &o); err != nil {
				return nil, fmt.Errorf("%s: list %s: %w", s.name, from.Resource, err)
			}
			all = append(all, o)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// apply makes an object exist as it is desired. What is marked as ours takes nothing over that is not.
func (s *side) apply(ctx context.Context, desired *unstructured.Unstructured, note string) (*unstructured.Unstructured, error) {
	before, err := s.find(ctx, desired)
	if err != nil {
		return nil, err
	}
	if before != nil && marked(desired) && !marked(before) {
		return nil, fmt.Errorf("%s: %s exists without the label %s=%s: want it removed or renamed, as it is not ours",
			s.name, describe(desired), broker.LabelManagedBy, broker.ManagedBy)
	}
	after, err := s.send(ctx, desired, before)
	if err != nil {
		return nil, fmt.Errorf("%s: apply %s: %w", s.name, describe(desired), err)
	}
	switch {
	case before == nil:
		s.report(desired, Created, note)
	case same(before, after):
		s.report(desired, Unchanged, note)
	default:
		s.report(desired, Updated, note)
	}
	return after, nil
}

// send applies and returns the object as it is then, or as far as a dry run knows.
func (s *side) send(ctx context.Context, desired, before *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
	switch s.writing.DryRun {
	case DryRunClient:
		if before != nil && covers(before.Object, desired.Object) && sameMember(before, desired) {
			return before, nil
		}
		return desired, nil
	case DryRunServer:
		options.DryRun = []string{metav1.DryRunAll}
	}
	var after *unstructured.Unstructured
	err := admitted(ctx, func() (err error) {
		after, err = s.resource(desired).Apply(ctx, desired.GetName(), desired, options)
		return err
	})
	if s.writing.DryRun == DryRunServer && before == nil && apierrors.IsNotFound(err) {
		// Its namespace or its kind exists only in this dry run.
		return desired, nil
	}
	return after, err
}

// remove deletes an object of ours if it is there, and tells whether it was.
func (s *side) remove(ctx context.Context, o *unstructured.Unstructured) (bool, error) {
	found, err := s.find(ctx, o)
	if err != nil {
		return false, err
	}
	if found == nil {
		s.report(o, Unchanged, "not there")
		return false, nil
	}
	if marked(o) && !marked(found) {
		s.report(o, Unchanged, "not ours")
		return false, nil
	}
	return true, s.delete(ctx, found, "")
}

// delete deletes this very object.
func (s *side) delete(ctx context.Context, o *unstructured.Unstructured, note string) error {
	uid := o.GetUID()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	switch s.writing.DryRun {
	case DryRunClient:
		s.report(o, Deleted, note)
		return nil
	case DryRunServer:
		options.DryRun = []string{metav1.DryRunAll}
	}
	err := admitted(ctx, func() error { return s.resource(o).Delete(ctx, o.GetName(), options) })
	// A conflict means that another of this name has come, which nobody asked to delete.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("%s: delete %s: %w", s.name, describe(o), err)
	}
	s.report(o, Deleted, note)
	return nil
}

// admitted repeats a write that is denied only because the API server cannot read the parameters of an admission policy yet. It
// learns of a new kind within half a minute, and at its start of all of them.
func admitted(ctx context.Context, write func() error) error {
	var denied error
	err := await(ctx, "admission", func() (bool, error) {
		denied = write()
		return denied == nil || !strings.Contains(denied.Error(), "failed to configure "), nil
	})
	if denied != nil {
		return denied
	}
	return err
}

// await calls done until it says so.
func await(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		switch ok, err := done(); {
		case ok:
			return nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// same compares what an admin sees of two states of one object.
func same(a, b *unstructured.Unstructured) bool {
	strip := func(o *unstructured.Unstructured) map[string]any {
		o = o.DeepCopy()
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		delete(o.Object, "status")
		return o.Object
	}
	return reflect.DeepEqual(strip(a), strip(b))
}

// covers reports whether all that is desired is there. What only the server knows does not count.
func covers(there, desired any) bool {
	switch desired := desired.(type) {
	case map[string]any:
		there, ok := there.(map[string]any)
		for key, want := range desired {
			got, has := there[key]
			ok = ok && (has || isEmpty(want)) && (!has || covers(got, want))
		}
		return ok
	case []any:
		there, ok := there.([]any)
		if !ok || len(there) != len(desired) {
			return false
		}
		for i := range desired {
			if !covers(there[i], desired[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(there, desired)
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// sameMember tells a Member that would lose a field, which only comparing all of it can.
func sameMember(a, b *unstructured.Unstructured) bool {
	return a.GetKind() != "Member" || reflect.DeepEqual(a.Object["spec"], b.Object["spec"])
}

func marked(o metav1.Object) bool { return o.GetLabels()[broker.LabelManagedBy] == broker.ManagedBy }

// typed is a Go type of an API that knows its kind.
type typed interface {
	runtime.Object
	metav1.Object
}

// toUnstructured returns o without what only the server may say.
func toUnstructured(o runtime.Object) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic("membership: every type here can be converted: " + err.Error())
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}
}

func describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// object names an object to be found.
func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// kubeSystem returns the UID of the namespace kube-system, which tells one cluster from another.
func (s *side) kubeSystem(ctx context.Context) (types.UID, error) {
	o := object(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", metav1.NamespaceSystem)
	found, err := s.find(ctx, o)
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", fmt.Errorf("%s: no namespace %s: want the API server of a cluster", s.name, metav1.NamespaceSystem)
	}
	return found.GetUID(), nil
}
