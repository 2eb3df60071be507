package controlplane

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Serving returns a definition that serves these versions alone. A version that it lacks is v1beta1 by another name.
func Serving(manifest []byte, served ...string) []byte {
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal(manifest, &crd.Object); err != nil {
		panic("controlplane: a manifest: " + err.Error())
	}
	spec := crd.Object["spec"].(map[string]any)
	byName := make(map[string]map[string]any)
	for _, v := range spec["versions"].([]any) {
		version := v.(map[string]any)
		version["served"] = slices.Contains(served, version["name"].(string))
		byName[version["name"].(string)] = version
	}
	for _, name := range served {
		if byName[name] == nil {
			other := runtime.DeepCopyJSON(byName["v1beta1"])
			other["name"], other["served"], other["storage"] = name, true, false
			spec["versions"] = append(spec["versions"].([]any), other)
		}
	}
	text, err := yaml.Marshal(crd.Object)
	if err != nil {
		panic("controlplane: a definition: " + err.Error())
	}
	return text
}
