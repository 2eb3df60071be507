package crd

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/about"
)

// A Requirement is a CRD that a member needs (docs/spec/controller.md 5.3). A CRD of a cluster meets it if it serves one of the
// versions with all fields of ours: an API server silently drops a field that its schema lacks.
type Requirement struct {
	Name     string
	Versions []string // the preferred first
	Manifest []byte   // our CRD, as YAML; it has all of the versions
	source   string   // of a CRD that meets the requirement
}

// MCS requires ServiceExport and ServiceImport.
func MCS() []Requirement {
	const source = "sigs.k8s.io/mcs-api v0.5 or later"
	versions := []string{mcsv1beta1.GroupVersion.Version}
	return []Requirement{
		{Name: mcsv1beta1.ServiceExportFullName, Versions: versions, Manifest: mcscrd.ServiceExportCRD, source: source},
		{Name: mcsv1beta1.ServiceImportFullName, Versions: versions, Manifest: mcscrd.ServiceImportCRD, source: source},
	}
}

// Properties requires ClusterProperty.
func Properties() Requirement {
	return Requirement{
		Name: "clusterproperties." + about.GroupName, Versions: []string{"v1beta1", "v1alpha1"}, Manifest: ClusterProperties,
		source: "sigs.k8s.io/about-api",
	}
}

// Check returns the first of the versions that a CRD of a cluster serves, or "". existing is nil if the cluster does not have
// the CRD. An error names the CRD, what is missing, and where to find one that meets the requirement.
func (r Requirement) Check(existing *unstructured.Unstructured) (version string, err error) {
	if existing == nil {
		return "", fmt.Errorf("CRD %s is not there: install that of %s", r.Name, r.source)
	}
	for _, version := range r.Versions {
		have, served := servedSchema(existing.Object, version)
		if !served {
			continue
		}
		if missing := missingFields(r.schema(version), have, ""); len(missing) > 0 {
			return version, fmt.Errorf("CRD %s has no field %s at %s: update it to that of %s",
				r.Name, strings.Join(missing, ", "), version, r.source)
		}
		return version, nil
	}
	return "", fmt.Errorf("CRD %s does not serve %s: update it to that of %s", r.Name, strings.Join(r.Versions, " or "), r.source)
}

// schema returns our schema of a version.
func (r Requirement) schema(version string) map[string]any {
	var ours map[string]any
	if err := yaml.Unmarshal(r.Manifest, &ours); err != nil {
		panic("crd: every embedded manifest is valid: " + err.Error())
	}
	schema, served := servedSchema(ours, version)
	if !served {
		panic("crd: the manifest of " + r.Name + " serves every required version")
	}
	return schema
}

// servedSchema returns the schema of a version, and whether the version is served.
func servedSchema(definition map[string]any, version string) (schema map[string]any, served bool) {
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["name"] == version && v["served"] == true {
			schema, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
			return schema, true
		}
	}
	return nil, false
}

// missingFields returns the paths, sorted, of the fields that want has and have would drop. A field below a missing one is not
// listed.
func missingFields(want, have map[string]any, path string) (missing []string) {
	if have["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	if items, ok := want["items"].(map[string]any); ok {
		existing, _ := have["items"].(map[string]any)
		return missingFields(items, existing, path+"[]")
	}
	fields, _ := want["properties"].(map[string]any)
	existing, _ := have["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		got, ok := existing[name].(map[string]any)
		if !ok {
			missing = append(missing, at)
			continue
		}
		field, _ := fields[name].(map[string]any)
		missing = append(missing, missingFields(field, got, at)...)
	}
	return missing
}
