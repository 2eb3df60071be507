package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
)

// ParseYAML returns the objects of a manifest: documents with "---" between them, and lists, which are opened.
func ParseYAML(manifest []byte) ([]runtime.Object, error) {
	var objects []runtime.Object
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("manifest: %w", err)
		case len(u.Object) == 0: // only comments
		case u.IsList():
			if err := u.EachListItem(func(o runtime.Object) error { objects = append(objects, o); return nil }); err != nil {
				return nil, fmt.Errorf("manifest: %w", err)
			}
		default:
			objects = append(objects, u)
		}
	}
}

// ApplyYAML is [ControlPlane.Apply] of the objects in a manifest.
func (c *ControlPlane) ApplyYAML(ctx context.Context, manifest []byte) error {
	objects, err := ParseYAML(manifest)
	if err != nil {
		return err
	}
	return c.Apply(ctx, objects...)
}

// DeleteYAML is [ControlPlane.Delete] of the objects in a manifest.
func (c *ControlPlane) DeleteYAML(ctx context.Context, manifest []byte) error {
	objects, err := ParseYAML(manifest)
	if err != nil {
		return err
	}
	return c.Delete(ctx, objects...)
}

// Apply makes the objects exist with these contents, one after the other, by server-side apply: what an earlier Apply
// set and this one leaves out goes away. A status that is not empty is applied too, through the status subresource.
//
// Objects are unstructured, or Go types of Kubernetes, the MCS API or this project; others have to state their kind. An
// object without a namespace, of a kind that needs one, goes to "default". Rights and policies are in force when Apply
// returns.
func (c *ControlPlane) Apply(ctx context.Context, objects ...runtime.Object) error {
	for _, o := range objects {
		u, r, err := c.resource(o)
		if err == nil {
			err = applyOne(ctx, r, u)
		}
		if err != nil {
			return fmt.Errorf("apply %s: %w", describe(o), err)
		}
	}
	return c.inForce(ctx, objects)
}

// Delete deletes the objects, the last one first; only their kinds and names count, and one that does not exist is an
// error. A namespace goes with all that is in it, and is gone when Delete returns. Rights and policies are not in force
// any more.
func (c *ControlPlane) Delete(ctx context.Context, objects ...runtime.Object) error {
	for _, o := range slices.Backward(objects) {
		u, r, err := c.resource(o)
		if err == nil {
			err = r.Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		}
		if err == nil && u.GroupVersionKind() == namespaces.GroupVersion().WithKind("Namespace") {
			err = c.finalize(ctx, u.GetName())
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", describe(o), err)
		}
	}
	return c.inForce(ctx, objects)
}

// finalize does for a namespace that is being deleted what kube-controller-manager does in a whole cluster.
func (c *ControlPlane) finalize(ctx context.Context, namespace string) error {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, c.http)
	if err != nil {
		return err
	}
	lists, err := disco.ServerPreferredNamespacedResources()
	if err != nil {
		return err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "deletecollection") {
				continue
			}
			err := c.dynamic.Resource(gv.WithResource(r.Name)).Namespace(namespace).
				DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			if err != nil && !apierrors.IsNotFound(err) { // A kind that has gone since has no objects.
				return fmt.Errorf("%s: %w", r.Name, err)
			}
		}
	}
	return c.endNamespace(ctx, namespace)
}

// endNamespace ends a namespace that is being deleted and has no content any more.
func (c *ControlPlane) endNamespace(ctx context.Context, namespace string) error {
	empty := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}, "spec": map[string]any{},
	}}
	_, err := c.dynamic.Resource(namespaces).Update(ctx, empty, metav1.UpdateOptions{}, "finalize")
	if apierrors.IsNotFound(err) {
		return nil // The namespace controller, if it runs, was faster.
	}
	return err
}

// InstallCRDs applies the definitions and returns when objects of every version they serve can be read and written.
func (c *ControlPlane) InstallCRDs(ctx context.Context, manifests ...[]byte) error {
	all, err := parseDefinitions(manifests)
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := c.Apply(ctx, d.object); err != nil {
			return err
		}
	}
	for _, d := range all {
		if err := eventually(ctx, func() error { return c.served(ctx, d) }); err != nil {
			return fmt.Errorf("CRD %s: %w", d.object.GetName(), err)
		}
	}
	return nil
}

// DeleteCRDs deletes the definitions, and with them all their objects, and returns when the API server no longer knows
// them.
func (c *ControlPlane) DeleteCRDs(ctx context.Context, manifests ...[]byte) error {
	all, err := parseDefinitions(manifests)
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := c.Delete(ctx, d.object); err != nil {
			return err
		}
	}
	for _, d := range all {
		looked := time.Now()
		if err := eventually(ctx, func() error {
			err := c.gone(ctx, d)
			if err != nil && time.Since(looked) > finalizerPatience {
				looked = time.Now()
				err = errors.Join(err, c.lookAgain(ctx, d))
			}
			return err
		}); err != nil {
			return fmt.Errorf("CRD %s: %w", d.object.GetName(), err)
		}
	}
	return nil
}

// finalizerPatience is how long the API server may take for the objects of a CRD, before it is made to look again.
const finalizerPatience = 10 * time.Second

// lookAgain changes a CRD that is being deleted. The API server's finalizer tries again after ever longer times, and on
// a busy machine it may have failed often; a change brings it back at once.
func (c *ControlPlane) lookAgain(ctx context.Context, d definition) error {
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{"test/looked":%q}}}`, time.Now())
	_, err := c.dynamic.Resource(definitions).Patch(ctx, d.object.GetName(), types.MergePatchType, change,
		metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// A definition is a CRD and the versions it serves.
type definition struct {
	object   *unstructured.Unstructured
	kind     schema.GroupKind
	resource schema.GroupResource
	versions []string
}

func parseDefinitions(manifests [][]byte) ([]definition, error) {
	var all []definition
	for _, manifest := range manifests {
		objects, err := ParseYAML(manifest)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			u := o.(*unstructured.Unstructured)
			if u.GetKind() != "CustomResourceDefinition" {
				return nil, fmt.Errorf("%s: want only CustomResourceDefinitions", describe(o))
			}
			all = append(all, parseDefinition(u))
		}
	}
	return all, nil
}

func parseDefinition(u *unstructured.Unstructured) definition {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, path...)
		return s
	}
	group := text("spec", "group")
	d := definition{
		object:   u,
		kind:     schema.GroupKind{Group: group, Kind: text("spec", "names", "kind")},
		resource: schema.GroupResource{Group: group, Resource: text("spec", "names", "plural")},
	}
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			d.versions = append(d.versions, fmt.Sprint(v["name"]))
		}
	}
	return d
}

func (c *ControlPlane) served(ctx context.Context, d definition) error {
	got, err := c.dynamic.Resource(definitions).Get(ctx, d.object.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !established(got) {
		return errors.New("not established")
	}
	for _, v := range d.versions {
		if _, err := c.dynamic.Resource(d.resource.WithVersion(v)).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		if _, err := c.mapper.RESTMapping(d.kind, v); err != nil {
			c.mapper.Reset()
			return err
		}
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		m, ok := condition.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}

func (c *ControlPlane) gone(ctx context.Context, d definition) error {
	_, err := c.dynamic.Resource(definitions).Get(ctx, d.object.GetName(), metav1.GetOptions{})
	for _, v := range d.versions {
		if apierrors.IsNotFound(err) {
			_, err = c.dynamic.Resource(d.resource.WithVersion(v)).List(ctx, metav1.ListOptions{Limit: 1})
		}
	}
	switch {
	case err == nil:
		return errors.New("still there")
	case !apierrors.IsNotFound(err):
		return err
	}
	// Discovery follows later, and the mapper asks it.
	c.mapper.Reset()
	for _, v := range d.versions {
		if _, err := c.mapper.RESTMapping(d.kind, v); err == nil {
			return fmt.Errorf("%s is still discovered", v)
		} else if !meta.IsNoMatchError(err) {
			return err
		}
	}
	return nil
}

// EndNamespacesT ends namespaces that are deleted, with all that is in them, as kube-controller-manager does in a whole
// cluster, until the test is over or stop is called.
func (c *ControlPlane) EndNamespacesT(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.endNamespaces(ctx, t)
			_ = pause(ctx, 50*time.Millisecond) // ctx has ended
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (c *ControlPlane) endNamespaces(ctx context.Context, t testing.TB) {
	all, err := c.dynamic.Resource(namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return // ctx has ended, or the server is stopped
	}
	for i := range all.Items {
		if n := &all.Items[i]; n.GetDeletionTimestamp() != nil {
			if err := c.Delete(ctx, n); err != nil && ctx.Err() == nil {
				t.Logf("%v; trying again", err)
			}
		}
	}
}
