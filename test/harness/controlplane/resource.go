package controlplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	brokerv1alpha1 "github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

var (
	services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	definitions     = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
)

// kinds knows the kind of Go values that do not say it.
var kinds = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install,
		aboutv1beta1.AddToScheme, brokerv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic("controlplane: " + err.Error())
		}
	}
	return s
}()

func applyOne(ctx context.Context, r dynamic.ResourceInterface, u *unstructured.Unstructured) error {
	status, _ := u.Object["status"].(map[string]any)
	delete(u.Object, "status")
	options := metav1.ApplyOptions{FieldManager: "clusterset-test", Force: true}
	if _, err := r.Apply(ctx, u.GetName(), u, options); err != nil || len(status) == 0 {
		return err
	}
	only := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	only.SetGroupVersionKind(u.GroupVersionKind())
	only.SetName(u.GetName())
	only.SetNamespace(u.GetNamespace())
	_, err := r.ApplyStatus(ctx, u.GetName(), only, options)
	return err
}

// resource returns o in the form that can be applied, and the client of its resource and namespace.
func (c *ControlPlane) resource(o runtime.Object) (*unstructured.Unstructured, dynamic.ResourceInterface, error) {
	u, err := toUnstructured(o)
	if err != nil {
		return nil, nil, err
	}
	gvk := u.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) { // It may have come since the mapper asked.
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return nil, nil, err
	}
	r := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return u, r, nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(metav1.NamespaceDefault)
	}
	return u, r.Namespace(u.GetNamespace()), nil
}

// toUnstructured returns a copy without what the server forbids in an apply, or fills in by itself.
func toUnstructured(o runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u = u.DeepCopy()
		u.SetManagedFields(nil)
		return u, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	if u.GetKind() == "" {
		known, _, err := kinds.ObjectKinds(o)
		if err != nil {
			return nil, err
		}
		u.SetGroupVersionKind(known[0])
	}
	u.SetManagedFields(nil)
	// A Go value cannot leave it out.
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}

func describe(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", o)
	}
	if m.GetNamespace() == "" {
		return kind + " " + m.GetName()
	}
	return kind + " " + m.GetNamespace() + "/" + m.GetName()
}

// eventually calls f until it returns nil, for as long as a program may take to start.
func eventually(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		last := f()
		if last == nil {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
