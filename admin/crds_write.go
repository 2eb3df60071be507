package admin

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/deploy"
)

// applyNewer applies objects of the set, except those that exist in a newer version.
func (c *writer) applyNewer(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		existing, err := c.Find(ctx, o)
		if err != nil {
			return err
		}
		if existing != nil && read.VersionOf(existing) > deploy.Version {
			c.report(o, Unchanged, fmt.Sprintf("of the newer version %d", read.VersionOf(existing)))
			continue
		}
		if _, err := c.apply(ctx, o, ""); err != nil {
			return err
		}
	}
	return nil
}

// install applies the CRDs that are missing, with update all of them, and waits until the API server serves all of
// them.
func (c *writer) install(ctx context.Context, crds []*unstructured.Unstructured, update bool) error {
	for _, d := range crds {
		existing, err := c.Find(ctx, d)
		if err != nil {
			return err
		}
		if existing != nil && !update {
			c.report(d, Unchanged, "")
			continue
		}
		if _, err := c.apply(ctx, d, ""); err != nil {
			return err
		}
	}
	if c.options.DryRun != DryRunNone {
		return nil
	}
	for _, d := range crds {
		err := c.options.waitUntil(ctx, "the API server serves CRD "+d.GetName(),
			func(ctx context.Context) (bool, error) { return c.serves(ctx, d) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.Role, err)
		}
	}
	return nil
}

// serves reports whether objects of every served version of a CRD can be read.
func (c *writer) serves(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	existing, err := c.Find(ctx, definition)
	if err != nil || existing == nil || !isEstablished(existing) {
		return false, err
	}
	resource := schema.GroupResource{Group: read.StringAt(existing, "spec", "group"),
		Resource: read.StringAt(existing, "spec", "names", "plural")}
	for _, version := range read.ServedVersions(existing) {
		_, err := c.Client.Resource(resource.WithVersion(version)).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}
