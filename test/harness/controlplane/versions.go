package controlplane

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Serving returns a definition that serves these versions alone. A version that it lacks is v1beta1 by another name.
func Serving(manifest []byte, served ...string) []byte {
	return edited(manifest, func(versions []any) []any {
		byName := make(map[string]map[string]any)
		for _, v := range versions {
			version := v.(map[string]any)
			version["served"] = slices.Contains(served, version["name"].(string))
			byName[version["name"].(string)] = version
		}
		for _, name := range served {
			if byName[name] == nil {
				other := runtime.DeepCopyJSON(byName["v1beta1"])
				other["name"], other["served"], other["storage"] = name, true, false
				versions = append(versions, other)
			}
		}
		return versions
	})
}

// WithStatus returns a definition whose status has a further field, of this schema, in each version.
func WithStatus(manifest []byte, field string, schema map[string]any) []byte {
	return edited(manifest, func(versions []any) []any {
		for _, v := range versions {
			err := unstructured.SetNestedMap(v.(map[string]any), schema, "schema", "openAPIV3Schema", "properties", "status",
				"properties", field)
			if err != nil {
				panic("controlplane: a version: " + err.Error())
			}
		}
		return versions
	})
}

// edited returns a definition with other versions.
func edited(manifest []byte, edit func(versions []any) []any) []byte {
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal(manifest, &crd.Object); err != nil {
		panic("controlplane: a manifest: " + err.Error())
	}
	spec := crd.Object["spec"].(map[string]any)
	spec["versions"] = edit(spec["versions"].([]any))
	text, err := yaml.Marshal(crd.Object)
	if err != nil {
		panic("controlplane: a definition: " + err.Error())
	}
	return text
}
