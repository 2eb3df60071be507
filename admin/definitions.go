package admin

import (
	"context"
	"errors"
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

// parse returns the objects of a manifest: documents with "---" between them.
func parse(manifest []byte) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(manifest), "\n---") {
		content, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			panic("membership: every manifest here can be read: " + err.Error())
		}
		if string(content) == "null" {
			continue // only comments
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(content); err != nil {
			panic("membership: every manifest here can be read: " + err.Error())
		}
		all = append(all, o)
	}
	return all
}

// brokerDefinitions are the CRDs of a broker.
func brokerDefinitions(aggregateView bool) []*unstructured.Unstructured {
	all := slices.Concat(parse(crd.Members), parse(crd.ExportedServices))
	if aggregateView {
		all = append(all, parse(mcscrd.ServiceImportCRD)...)
	}
	return all
}

// memberDefinitions are the CRDs of a member.
func memberDefinitions() []*unstructured.Unstructured {
	return slices.Concat(parse(crd.ClusterProperties), parse(mcscrd.ServiceExportCRD), parse(mcscrd.ServiceImportCRD))
}

// checkDefinition returns why a CRD that is there cannot serve, or nil: the version that ours stores has to be served with
// all the fields that ours has (section 5).
func checkDefinition(ours, there *unstructured.Unstructured) error {
	if ours.GetName() == "clusterproperties.about.k8s.io" {
		if aboutVersion(there) == "" {
			return fmt.Errorf("CRD %s serves neither v1beta1 nor v1alpha1: update it to that of KEP-2149", there.GetName())
		}
		return nil
	}
	const source = "update it to that of sigs.k8s.io/mcs-api v0.5 or later"
	want, have := servedSchema(ours, "v1beta1"), servedSchema(there, "v1beta1")
	if have == nil {
		return fmt.Errorf("CRD %s does not serve v1beta1: %s", there.GetName(), source)
	}
	if missing := missingField(want, have, ""); missing != "" {
		return fmt.Errorf("CRD %s has no field %s at v1beta1: %s", there.GetName(), missing, source)
	}
	return nil
}

// aboutVersion is the version of ClusterProperty to use, "" if a CRD serves none that we know.
func aboutVersion(definition *unstructured.Unstructured) string {
	for _, v := range []string{"v1beta1", "v1alpha1"} {
		if servedSchema(definition, v) != nil {
			return v
		}
	}
	return ""
}

// servedSchema returns the schema of a version, nil if it is not served.
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

// missingField returns the path of the first field, by name, that want has and have would drop; "" if there is none.
func missingField(want, have map[string]any, path string) string {
	if have["x-kubernetes-preserve-unknown-fields"] == true {
		return ""
	}
	if items, ok := want["items"].(map[string]any); ok {
		there, _ := have["items"].(map[string]any)
		return missingField(items, there, path+"[]")
	}
	fields, _ := want["properties"].(map[string]any)
	there, _ := have["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		got, ok := there[name].(map[string]any)
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

// install applies those of the CRDs that are not there, and returns when all of them serve.
func (s *side) install(ctx context.Context, definitions []*unstructured.Unstructured, update bool) error {
	for _, d := range definitions {
		there, err := s.find(ctx, d)
		if err != nil {
			return err
		}
		if there != nil && !update {
			s.report(d, Unchanged, "")
			continue
		}
		if _, err := s.apply(ctx, d, ""); err != nil {
			return err
		}
	}
	if s.writing.DryRun != DryRunNone {
		return nil
	}
	for _, d := range definitions {
		err := await(ctx, "CRD "+d.GetName()+" serves", func() (bool, error) { return s.serves(ctx, d) })
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// serves reports whether objects of every version that a CRD serves can be read.
func (s *side) serves(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	there, err := s.find(ctx, definition)
	if err != nil || there == nil || !established(there) {
		return false, err
	}
	resource := schema.GroupResource{Group: text(there, "spec", "group"), Resource: text(there, "spec", "names", "plural")}
	versions, _, _ := unstructured.NestedSlice(there.Object, "spec", "versions")
	for _, v := range versions {
		v, ok := v.(map[string]any)
		if !ok || v["served"] != true {
			continue
		}
		_, err := s.client.Resource(resource.WithVersion(fmt.Sprint(v["name"]))).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
			return false, nil
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return false, err
		}
	}
	return true, nil
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}

// text returns a string in an object, "" if it is not there.
func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}
