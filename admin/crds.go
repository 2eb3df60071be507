package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/crd"
)

// parse returns the objects of an embedded manifest, which has "---" between its documents.
func parse(manifest []byte) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(manifest), "\n---") {
		content, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			panic("admin: every embedded manifest is valid: " + err.Error())
		}
		if string(content) == "null" {
			continue // only comments
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(content); err != nil {
			panic("admin: every embedded manifest is valid: " + err.Error())
		}
		all = append(all, o)
	}
	return all
}

func brokerCRDs() []*unstructured.Unstructured {
	return slices.Concat(parse(crd.Members), parse(crd.ExportedServices), parse(crd.Inventories))
}

// memberRequirements are the CRDs that a member needs, in the order of their installation.
func memberRequirements() []crd.Requirement {
	return append([]crd.Requirement{crd.Properties()}, crd.MCS()...)
}

func memberCRDs() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, r := range memberRequirements() {
		all = append(all, parse(r.Manifest)...)
	}
	return all
}

// install applies the CRDs that are missing, with update all of them, and waits until the API server serves all of
// them.
func (c *cluster) install(ctx context.Context, crds []*unstructured.Unstructured, update bool) error {
	for _, d := range crds {
		existing, err := c.find(ctx, d)
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
			return fmt.Errorf("%s: %w", c.role, err)
		}
	}
	return nil
}

// serves reports whether objects of every served version of a CRD can be read.
func (c *cluster) serves(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	existing, err := c.find(ctx, definition)
	if err != nil || existing == nil || !isEstablished(existing) {
		return false, err
	}
	resource := schema.GroupResource{Group: stringAt(existing, "spec", "group"),
		Resource: stringAt(existing, "spec", "names", "plural")}
	for _, version := range servedVersions(existing) {
		_, err := c.client.Resource(resource.WithVersion(version)).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func servedVersions(definition *unstructured.Unstructured) (names []string) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			names = append(names, fmt.Sprint(v["name"]))
		}
	}
	return names
}

// servedVersion returns the preferred version if a CRD serves it, else another one, or "".
func servedVersion(definition *unstructured.Unstructured, preferred string) string {
	switch served := servedVersions(definition); {
	case slices.Contains(served, preferred):
		return preferred
	case len(served) > 0:
		return served[0]
	}
	return ""
}

func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}
