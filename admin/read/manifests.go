package read

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/crd"
)

// Parse returns the objects of an embedded manifest, which has "---" between its documents.
func Parse(manifest []byte) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(manifest), "\n---") {
		content, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			panic("read: every embedded manifest is valid: " + err.Error())
		}
		if string(content) == "null" {
			continue // only comments
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(content); err != nil {
			panic("read: every embedded manifest is valid: " + err.Error())
		}
		all = append(all, o)
	}
	return all
}

// BrokerCRDs are the CRDs that a broker needs.
func BrokerCRDs() []*unstructured.Unstructured {
	return slices.Concat(Parse(crd.Members), Parse(crd.ExportedServices), Parse(crd.Inventories))
}

// memberRequirements are the CRDs that a member needs, in the order of their installation.
func memberRequirements() []crd.Requirement {
	return append([]crd.Requirement{crd.Properties()}, crd.MCS()...)
}

// MemberCRDs are the CRDs that a member needs, in the order of their installation.
func MemberCRDs() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, r := range memberRequirements() {
		all = append(all, Parse(r.Manifest)...)
	}
	return all
}

// ServedVersions returns the versions that a CRD serves.
func ServedVersions(definition *unstructured.Unstructured) (names []string) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			names = append(names, fmt.Sprint(v["name"]))
		}
	}
	return names
}
