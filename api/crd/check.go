package crd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/about"
)

// A Requirement is a CRD that a member needs (docs/spec/controller.md 5.3). A CRD of a cluster meets it if it serves
// one of the versions with the fields that the controller needs. It may lack others of ours; objects are then written
// without them (see [Without]).
type Requirement struct {
	Name     string
	Versions []string // the preferred first; all have the same fields
	Manifest []byte   // our CRD, as YAML; it has at least one of the versions
	needed   []string // paths of the fields that must be there, with all below them
	source   string   // of a CRD that has all fields
}

// Served is what a CRD of a cluster offers of a [Requirement].
type Served struct {
	Version string   // the first of the versions that is served, ""
	Lacks   []string // the paths, sorted, of the fields of ours that it lacks and that are not needed
}

// MCS requires ServiceExport and ServiceImport.
func MCS() []Requirement {
	const source = "sigs.k8s.io/mcs-api v0.5 or later"
	versions := []string{"v1", "v1beta1"}
	return []Requirement{
		{
			Name: mcsv1beta1.ServiceExportFullName, Versions: versions, Manifest: mcscrd.ServiceExportCRD, source: source,
			needed: []string{"status.conditions"},
		},
		{
			Name: mcsv1beta1.ServiceImportFullName, Versions: versions, Manifest: mcscrd.ServiceImportCRD, source: source,
			needed: []string{
				"spec.type", "spec.ips", "spec.ports[].name", "spec.ports[].protocol", "spec.ports[].port",
				"status.clusters[].cluster",
			},
		},
	}
}

// Properties requires ClusterProperty.
func Properties() Requirement {
	return Requirement{
		Name: "clusterproperties." + about.GroupName, Versions: []string{"v1beta1", "v1alpha1"}, Manifest: ClusterProperties,
		needed: []string{"spec.value"}, source: "sigs.k8s.io/about-api",
	}
}

// Check returns the features of a CRD of a cluster. existing is nil if the cluster does not have the CRD. An error
// names the CRD, the missing part, and where to find one that meets the requirement.
func (r Requirement) Check(existing *unstructured.Unstructured) (Served, error) {
	if existing == nil {
		return Served{}, fmt.Errorf("CRD %s is not there: install that of %s", r.Name, r.source)
	}
	for _, version := range r.Versions {
		have, served := servedSchema(existing.Object, version)
		if !served {
			continue
		}
		s := Served{Version: version}
		var missing []string
		for _, field := range missingFields(r.schema(), have, "") {
			if slices.ContainsFunc(r.needed, func(n string) bool { return isBelow(n, field) || isBelow(field, n) }) {
				missing = append(missing, field)
			} else {
				s.Lacks = append(s.Lacks, field)
			}
		}
		if len(missing) > 0 {
			return s, errors.New(r.lacks(version, missing))
		}
		return s, nil
	}
	return Served{}, fmt.Errorf("CRD %s does not serve %s: update it to that of %s", r.Name,
		strings.Join(r.Versions, " or "), r.source)
}

// Warning names the optional fields that a CRD lacks, or is "".
func (r Requirement) Warning(s Served) string {
	if len(s.Lacks) == 0 {
		return ""
	}
	return r.lacks(s.Version, s.Lacks)
}

func (r Requirement) lacks(version string, fields []string) string {
	return fmt.Sprintf("CRD %s has no field %s at %s: update it to that of %s", r.Name, strings.Join(fields, ", "),
		version, r.source)
}

// Has reports whether a version of a CRD has the field at a path, such as "status.clusters[].cluster".
func Has(definition *unstructured.Unstructured, version, path string) bool {
	schema, _ := servedSchema(definition.Object, version)
	for part := range strings.SplitSeq(path, ".") {
		name, isList := strings.CutSuffix(part, "[]")
		fields, _ := schema["properties"].(map[string]any)
		if schema, _ = fields[name].(map[string]any); isList {
			schema, _ = schema["items"].(map[string]any)
		}
	}
	return schema != nil
}

// isBelow reports whether path is that of a field, or of one below it.
func isBelow(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// schema returns our schema.
func (r Requirement) schema() map[string]any {
	var ours map[string]any
	if err := yaml.Unmarshal(r.Manifest, &ours); err != nil {
		panic("crd: every embedded manifest is valid: " + err.Error())
	}
	for _, version := range r.Versions {
		if schema, served := servedSchema(ours, version); served {
			return schema
		}
	}
	panic("crd: the manifest of " + r.Name + " serves no required version")
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

// missingFields returns the paths, sorted, of the fields that want has and have would drop. A field below a missing one
// is not listed.
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

// Without returns a copy of o, a pointer to an API object, without the fields of these paths ([Served].Lacks): a
// server-side apply with a field that the schema lacks fails, and other writes drop it.
func Without[T any](o *T, fields []string) (*T, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	for _, field := range fields {
		remove(content, strings.Split(field, "."))
	}
	less := new(T)
	return less, runtime.DefaultUnstructuredConverter.FromUnstructured(content, less)
}

// remove deletes the field at a path from a value.
func remove(from map[string]any, path []string) {
	name, isList := strings.CutSuffix(path[0], "[]")
	if len(path) == 1 {
		delete(from, name)
		return
	}
	if !isList {
		if inner, ok := from[name].(map[string]any); ok {
			remove(inner, path[1:])
		}
		return
	}
	items, _ := from[name].([]any)
	for _, item := range items {
		if inner, ok := item.(map[string]any); ok {
			remove(inner, path[1:])
		}
	}
}
