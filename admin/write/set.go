package write

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

// ApplyNewer applies objects of the set, except those that exist in a newer version.
func (c *Writer) ApplyNewer(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		existing, err := c.Find(ctx, o)
		if err != nil {
			return err
		}
		if existing != nil && read.VersionOf(existing) > deploy.Version {
			c.Report(o, Unchanged, fmt.Sprintf("of the newer version %d", read.VersionOf(existing)))
			continue
		}
		if _, err := c.Apply(ctx, o, ""); err != nil {
			return err
		}
	}
	return nil
}

// InstallCRDs applies the CRDs that are missing, with update all of them, and waits until the API server serves all of
// them.
func (c *Writer) InstallCRDs(ctx context.Context, crds []*unstructured.Unstructured, update bool) error {
	for _, d := range crds {
		existing, err := c.Find(ctx, d)
		if err != nil {
			return err
		}
		if existing != nil && !update {
			c.Report(d, Unchanged, "")
			continue
		}
		if _, err := c.Apply(ctx, d, ""); err != nil {
			return err
		}
	}
	if c.Options.DryRun != DryRunNone {
		return nil
	}
	for _, d := range crds {
		err := c.Options.WaitUntil(ctx, "the API server serves CRD "+d.GetName(),
			func(ctx context.Context) (bool, error) { return c.servesCRD(ctx, d) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.Role, err)
		}
	}
	return nil
}

// servesCRD reports whether objects of every served version of a CRD can be read.
func (c *Writer) servesCRD(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
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
