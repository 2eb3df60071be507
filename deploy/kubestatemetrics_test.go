package deploy_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// A stateMetric is a metric of kube-state-metrics. Its labels are fields of the object, or of what the path leads to.
type stateMetric struct {
	Path           []string            `json:"path"`
	LabelsFromPath map[string][]string `json:"labelsFromPath"`
}

type stateMetrics struct {
	Kind string `json:"kind"`
	Spec struct {
		Resources []struct {
			GroupVersionKind struct{ Group, Version, Kind string } `json:"groupVersionKind"`
			MetricNamePrefix string                                `json:"metricNamePrefix"`
			LabelsFromPath   map[string][]string                   `json:"labelsFromPath"`
			Metrics          []struct {
				Name string `json:"name"`
				Help string `json:"help"`
				Each struct {
					Type  string       `json:"type"`
					Info  *stateMetric `json:"info"`
					Gauge *stateMetric `json:"gauge"`
				} `json:"each"`
			} `json:"metrics"`
		} `json:"resources"`
	} `json:"spec"`
}

// TestKubeStateMetrics looks up each path of the configuration of kube-state-metrics in the schema of its kind.
func TestKubeStateMetrics(t *testing.T) {
	text, err := os.ReadFile("kube-state-metrics/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config stateMetrics
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, r := range config.Spec.Resources {
		kind := r.GroupVersionKind
		object := schemaOf(t, kind.Group, kind.Version, kind.Kind)
		check := func(schema map[string]any, paths map[string][]string) {
			for label, path := range paths {
				if field(schema, path)["type"] != "string" {
					t.Errorf("label %s of %s: %q leads to no string", label, kind.Kind, path)
				}
			}
		}
		check(object, r.LabelsFromPath)
		for _, m := range r.Metrics {
			if names[m.Name] || m.Help == "" || !strings.HasPrefix(m.Name, strings.ToLower(kind.Kind)+"_") || r.MetricNamePrefix != "clusterset" {
				t.Errorf("metric %s_%s of %s, %q: want a name of its own with the kind, and a help", r.MetricNamePrefix, m.Name, kind.Kind, m.Help)
			}
			names[m.Name] = true
			if (m.Each.Type == "Info") != (m.Each.Info != nil) || (m.Each.Type == "Gauge") != (m.Each.Gauge != nil) {
				t.Errorf("metric %s: want the fields of its type %s", m.Name, m.Each.Type)
				continue
			}
			if g := m.Each.Gauge; g != nil {
				check(object, map[string][]string{"(value)": g.Path})
				continue
			}
			from := field(object, m.Each.Info.Path)
			if from == nil || len(m.Each.Info.LabelsFromPath) == 0 {
				t.Errorf("metric %s: %q leads to nothing, or has no label, without which there is no value", m.Name, m.Each.Info.Path)
			}
			check(from, m.Each.Info.LabelsFromPath)
		}
	}
	if len(names) != 9 || config.Kind != "CustomResourceStateMetrics" {
		t.Errorf("%s with the metrics %q, want all", config.Kind, slices.Sorted(maps.Keys(names)))
	}
}

// schemaOf returns the schema of a kind, with the metadata that the metrics use.
func schemaOf(t *testing.T, group, version, kind string) map[string]any {
	t.Helper()
	for _, text := range allCRDs() {
		parsed, err := controlplane.ParseYAML(text)
		if err != nil {
			t.Fatal(err)
		}
		definition := parsed[0].(*unstructured.Unstructured).Object
		versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
		g, _, _ := unstructured.NestedString(definition, "spec", "group")
		k, _, _ := unstructured.NestedString(definition, "spec", "names", "kind")
		for _, v := range versions {
			v := v.(map[string]any)
			if g != group || k != kind || v["name"] != version {
				continue
			}
			schema, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
			for _, name := range []string{"name", "namespace", "creationTimestamp"} {
				err := unstructured.SetNestedField(schema, "string", "properties", "metadata", "properties", name, "type")
				if err != nil {
					t.Fatal(err)
				}
			}
			return schema
		}
	}
	t.Fatalf("want a definition of %s/%s %s", group, version, kind)
	return nil
}

// field returns the schema of a field, or nil. A path passes through each element of a list.
func field(schema map[string]any, path []string) map[string]any {
	for _, name := range path {
		schema, _, _ = unstructured.NestedMap(schema, "properties", name)
		if schema["type"] == "array" {
			schema, _, _ = unstructured.NestedMap(schema, "items")
		}
	}
	return schema
}
