package member

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// edited returns a definition with every version changed.
func edited(t *testing.T, manifest []byte, change func(version map[string]any)) []byte {
	t.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal(manifest, &u.Object); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		change(v.(map[string]any))
	}
	if err := unstructured.SetNestedSlice(u.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func lacking(path ...string) func(map[string]any) {
	full := []string{"schema", "openAPIV3Schema"}
	for _, name := range path {
		full = append(full, "properties", name)
	}
	return func(version map[string]any) { unstructured.RemoveNestedField(version, full...) }
}

// notServed also makes the other versions the one that is stored, as one must be.
func notServed(name string) func(map[string]any) {
	return func(version map[string]any) {
		version["served"] = version["name"] != name
		version["storage"] = version["name"] != name
	}
}

// docs/spec/controller.md 5: the needed definitions, and the messages without them.
func TestCheckKinds(t *testing.T) {
	server := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	client, err := apiserver.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for _, step := range []struct {
		name    string
		install []byte
		want    []string // in the error; empty: all is well
		unknown bool     // ServiceImport is
		warning string
		lacks   []string // of a ServiceImport
	}{
		{name: "nothing", want: []string{"clusterproperties", "not there"}},
		{name: "old import", install: edited(t, mcscrd.ServiceImportCRD, lacking("spec", "ips")),
			want: []string{"serviceimports", "has no field spec.ips", "v0.5"}},
		{name: "import", install: mcscrd.ServiceImportCRD, want: []string{"clusterproperties", "not there"}},
		{name: "old about", install: edited(t, crd.ClusterProperties, notServed("v1beta1"))},
		{name: "older import", install: edited(t, mcscrd.ServiceImportCRD, lacking("status", "endpointSliceObjects")),
			lacks: []string{"status.endpointSliceObjects"}},
		{name: "import at v1", install: controlplane.Serving(mcscrd.ServiceImportCRD, "v1")},
		{name: "import at unknown version", install: controlplane.Serving(mcscrd.ServiceImportCRD, "v2"), unknown: true},
		{name: "import again", install: mcscrd.ServiceImportCRD},
		{name: "all but exports", install: crd.ClusterProperties},
		{name: "old export", install: edited(t, mcscrd.ServiceExportCRD, lacking("status")),
			warning: "has no field status at v1beta1"},
		{name: "all", install: mcscrd.ServiceExportCRD},
	} {
		if step.install != nil {
			if err := server.InstallCRDs(t.Context(), step.install); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		has, err := CheckKinds(t.Context(), client)
		if len(step.want) == 0 {
			if err != nil || has.NoImports != step.unknown || !has.ServiceCIDRs || !slices.Equal(has.ImportLacks, step.lacks) {
				t.Errorf("%s: %+v, %v; want an unknown ServiceImport %t, ServiceCIDRs, and that ServiceImport lacks %q",
					step.name, has, err, step.unknown, step.lacks)
			}
			text := strings.Join(append(step.lacks, step.warning), "")
			if warned := strings.Join(has.Warnings, "\n"); (warned == "") != (text == "") || !strings.Contains(warned, text) {
				t.Errorf("%s: warnings %q, want one with %q", step.name, has.Warnings, text)
			}
			continue
		}
		for _, part := range step.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want an error with %q", step.name, err, part)
			}
		}
	}
	testBlind(t, server.Config()) // all kinds are there
}
