package crd

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"
)

// changed returns the CRD of a requirement with every version changed.
func changed(t *testing.T, r Requirement, change func(version map[string]any)) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(r.Manifest, &u.Object); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		change(v.(map[string]any))
	}
	if err := unstructured.SetNestedSlice(u.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	return u
}

// without drops a field from the schema; the path names the maps between.
func without(path string) func(map[string]any) {
	return func(version map[string]any) {
		unstructured.RemoveNestedField(version, append([]string{"schema", "openAPIV3Schema"}, strings.Split(path, ".")...)...)
	}
}

func notServed(name string) func(map[string]any) {
	return func(version map[string]any) { version["served"] = version["served"] == true && version["name"] != name }
}

// preserving drops the fields of spec and keeps unknown fields instead.
func preserving(version map[string]any) {
	spec := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	_ = unstructured.SetNestedMap(version, spec, "schema", "openAPIV3Schema", "properties", "spec")
}

// dropCluster drops a field from the items of the clusters in the status of a ServiceImport.
func dropCluster(version map[string]any) {
	at := []string{"schema", "openAPIV3Schema", "properties", "status", "properties", "clusters"}
	_ = unstructured.SetNestedMap(version, map[string]any{"type": "array", "items": map[string]any{"type": "object"}},
		at...)
}

// docs/spec/controller.md 5.3.
func TestCheck(t *testing.T) {
	exports, imports, properties := MCS()[0], MCS()[1], Properties()
	for _, tt := range []struct {
		name    string
		require Requirement
		change  func(version map[string]any) // nil means that the CRD does not exist
		version string
		lacks   string // joined by a space
		want    string // the error without the name of the CRD
	}{
		{name: "missing", require: exports, want: "is not there: install that of sigs.k8s.io/mcs-api v0.5 or later"},
		{name: "ours: export", require: exports, change: func(map[string]any) {}, version: "v1beta1"},
		{name: "ours: import", require: imports, change: func(map[string]any) {}, version: "v1beta1"},
		{name: "ours: property", require: properties, change: func(map[string]any) {}, version: "v1beta1"},
		{name: "older version of the property", require: properties, change: notServed("v1beta1"), version: "v1alpha1"},
		{name: "no v1beta1", require: imports, change: notServed("v1beta1"),
			want: "does not serve v1 or v1beta1: update it to that of sigs.k8s.io/mcs-api v0.5 or later"},
		{name: "v1", require: imports, change: func(v map[string]any) {
			if v["name"] == "v1beta1" {
				v["name"] = "v1"
			}
		}, version: "v1"},
		{name: "no version of the property", require: properties, change: func(v map[string]any) { v["served"] = false },
			want: "does not serve v1beta1 or v1alpha1: update it to that of sigs.k8s.io/about-api"},
		{name: "no schema", require: exports, change: func(v map[string]any) { delete(v, "schema") }, version: "v1beta1",
			lacks: "apiVersion kind metadata spec",
			want:  "has no field status at v1beta1: update it to that of sigs.k8s.io/mcs-api v0.5 or later"},
		{name: "no fields of spec", require: exports, change: without("properties.spec.properties"), version: "v1beta1",
			lacks: "spec.exportedAnnotations spec.exportedLabels"},
		{name: "an older import", require: imports, change: without("properties.status.properties.endpointSliceObjects"),
			version: "v1beta1",
			lacks:   "status.endpointSliceObjects"},
		{name: "no application protocols", require: imports, version: "v1beta1", lacks: "spec.ports[].appProtocol",
			change: without("properties.spec.properties.ports.items.properties.appProtocol")},
		{name: "no addresses", require: imports, change: without("properties.spec.properties.ips"), version: "v1beta1",
			want: "has no field spec.ips at v1beta1: update it to that of sigs.k8s.io/mcs-api v0.5 or later"},
		{name: "no value", require: properties, change: without("properties.spec.properties.value"), version: "v1beta1",
			want: "has no field spec.value at v1beta1: update it to that of sigs.k8s.io/about-api"},
		{name: "no field in a list", require: imports, change: dropCluster, version: "v1beta1",
			want: "has no field status.clusters[].cluster at v1beta1: update it to that of sigs.k8s.io/mcs-api v0.5 or later"},
		{name: "unknown fields are kept", require: imports, change: preserving, version: "v1beta1"},
	} {
		var existing *unstructured.Unstructured
		if tt.change != nil {
			existing = changed(t, tt.require, tt.change)
		}
		served, err := tt.require.Check(existing)
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "CRD "+tt.require.Name+" ")
		}
		if lacks := strings.Join(served.Lacks, " "); served.Version != tt.version || lacks != tt.lacks || got != tt.want {
			t.Errorf("%s: Check = %q, lacks %q, %q; want %q, %q, %q", tt.name, served.Version, lacks, got, tt.version, tt.lacks,
				tt.want)
		}
		if warning := tt.require.Warning(served); (warning == "") != (tt.lacks == "") {
			t.Errorf("%s: Warning = %q, want one if fields are lacking: %q", tt.name, warning, tt.lacks)
		}
	}
}

func TestHas(t *testing.T) {
	for _, tt := range []struct {
		of   Requirement
		path string
		want bool
	}{
		{MCS()[0], "status.clusters[].cluster", false}, {MCS()[1], "status.clusters[].cluster", true},
		{MCS()[1], "status.clusters[].other", false}, {MCS()[1], "none.clusters", false},
	} {
		if got := Has(changed(t, tt.of, func(map[string]any) {}), "v1beta1", tt.path); got != tt.want {
			t.Errorf("%s has %s: %t, want %t", tt.of.Name, tt.path, got, tt.want)
		}
	}
}

func TestWithout(t *testing.T) {
	imp := &mcsv1beta1.ServiceImport{
		Spec: mcsv1beta1.ServiceImportSpec{
			Ports:               []mcsv1beta1.ServicePort{{Name: "pg", Port: 5432, AppProtocol: new("tls")}, {Port: 80}},
			TrafficDistribution: new("PreferClose"),
		},
		Status: mcsv1beta1.ServiceImportStatus{
			Clusters:             []mcsv1beta1.ClusterStatus{{Cluster: "east"}},
			EndpointSliceObjects: mcsv1beta1.EndpointSliceObjectsPresent,
		},
	}
	want := imp.DeepCopy()
	want.Spec.Ports[0].AppProtocol, want.Spec.TrafficDistribution, want.Status.EndpointSliceObjects = nil, nil, ""
	got, err := Without(imp, []string{"spec.ports[].appProtocol", "spec.trafficDistribution",
		"status.endpointSliceObjects", "none[].of.these"})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Without(%+v) = %+v, %v; want %+v", imp, got, err, want)
	}
	if imp.Spec.TrafficDistribution == nil {
		t.Error("Without changed what it was given")
	}
	empty := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{Ports: []mcsv1beta1.ServicePort{}}}
	if got, err := Without(empty, []string{"spec.ips"}); err != nil || got.Spec.Ports == nil {
		t.Errorf("Without(%+v) = %+v, %v; want ports that are empty, not null", empty, got, err)
	}
}
