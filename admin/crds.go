package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
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

func brokerCRDs(aggregateView bool) []*unstructured.Unstructured {
	all := slices.Concat(parse(crd.Members), parse(crd.ExportedServices))
	if aggregateView {
		all = append(all, parse(mcscrd.ServiceImportCRD)...)
	}
	return all
}

func memberCRDs() []*unstructured.Unstructured {
	return slices.Concat(parse(crd.ClusterProperties), parse(mcscrd.ServiceExportCRD), parse(mcscrd.ServiceImportCRD))
}

// checkCRD returns an error if a CRD that exists in a cluster cannot be used. It has to serve the version that ours stores, with
// all fields of ours (docs/spec/controller.md 5.3).
func checkCRD(ours, existing *unstructured.Unstructured) error {
	if ours.GetName() == "clusterproperties.about.k8s.io" {
		if aboutVersion(existing) == "" {
			return fmt.Errorf("CRD %s serves neither v1beta1 nor v1alpha1: update it to that of KEP-2149", existing.GetName())
		}
		return nil
	}
	const source = "update it to that of sigs.k8s.io/mcs-api v0.5 or later"
	want, have := servedSchema(ours, "v1beta1"), servedSchema(existing, "v1beta1")
	if have == nil {
		return fmt.Errorf("CRD %s does not serve v1beta1: %s", existing.GetName(), source)
	}
	if missing := missingField(want, have, ""); missing != "" {
		return fmt.Errorf("CRD %s has no field %s at v1beta1: %s", existing.GetName(), missing, source)
	}
	return nil
}

// aboutVersion returns the version of ClusterProperty to use, "" if the CRD serves no version that we know.
func aboutVersion(definition *unstructured.Unstructured) string {
	for _, v := range []string{"v1beta1", "v1alpha1"} {
		if servedSchema(definition, v) != nil {
			return v
		}
	}
	return ""
}

// servedSchema returns the schema of a version, nil if the version is not served.
func servedSchema(definition *unstructured.Unstructured, version string) map[string]any {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["name"] == version && v["served"] == true {
			s, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
			return s
		}
	}
	return nil
}

// missingField returns the path of the first field, in order of names, that want has and have would prune; "" if it has all.
func missingField(want, have map[string]any, path string) string {
	if have["x-kubernetes-preserve-unknown-fields"] == true {
		return ""
	}
	if items, ok := want["items"].(map[string]any); ok {
		existing, _ := have["items"].(map[string]any)
		return missingField(items, existing, path+"[]")
	}
	fields, _ := want["properties"].(map[string]any)
	existing, _ := have["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		got, ok := existing[name].(map[string]any)
		if !ok {
			return at
		}
		field, _ := fields[name].(map[string]any)
		if missing := missingField(field, got, at); missing != "" {
			return missing
		}
	}
	return ""
}

// install applies the CRDs that are missing, with update all of them, and waits until the API server serves all of them.
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
		err := c.options.waitUntil(ctx, "the API server serves CRD "+d.GetName(), func(ctx context.Context) (bool, error) { return c.serves(ctx, d) })
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
	resource := schema.GroupResource{Group: stringAt(existing, "spec", "group"), Resource: stringAt(existing, "spec", "names", "plural")}
	versions, _, _ := unstructured.NestedSlice(existing.Object, "spec", "versions")
	for _, v := range versions {
		v, ok := v.(map[string]any)
		if !ok || v["served"] != true {
			continue
		}
		_, err := c.client.Resource(resource.WithVersion(fmt.Sprint(v["name"]))).List(ctx, metav1.ListOptions{Limit: 1})
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
