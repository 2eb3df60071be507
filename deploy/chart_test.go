package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/program"
)

// helm runs test/tools/helm, with a file of values if there are any.
func helm(t *testing.T, values map[string]any, args ...string) (string, error) {
	t.Helper()
	if values != nil {
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	out, err := exec.CommandContext(t.Context(), program.Find(t, "helm"), args...).CombinedOutput()
	return string(out), err
}

// template returns what Helm sends to the API server, and the notes that it prints.
func template(t *testing.T, values map[string]any) (manifest, notes string) {
	t.Helper()
	out, err := helm(t, values, "template", "chart", system)
	manifest, notes, found := strings.Cut(out, "---\n# NOTES:\n")
	if err != nil || !found {
		t.Fatalf("helm template with %v: %v\n%s", values, err, out)
	}
	return manifest, notes
}

// canonical returns one line for each object, sorted.
func canonical(t *testing.T, manifest []byte) []string {
	t.Helper()
	parsed, err := controlplane.ParseYAML(manifest)
	if err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	var lines []string
	for _, o := range parsed {
		text, err := o.(*unstructured.Unstructured).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(text))
	}
	slices.Sort(lines)
	return lines
}

// sameObjects compares two manifests, whatever the order of their objects.
func sameObjects(t *testing.T, what string, got, want []byte) {
	t.Helper()
	g, w := canonical(t, got), canonical(t, want)
	if !slices.Equal(g, w) || len(w) == 0 {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
}

// variants are the ways to install a member, and the overlay that has the same, if there is one.
var variants = []struct {
	overlay, notes string
	mode           deploy.Mode
	values         map[string]any
}{
	{overlay: "member", mode: deploy.Separate, notes: "clusterset dns apply --zone=clusterset.local --service=clusterset-system/clusterset-dns\n"},
	{overlay: "dns", mode: deploy.OnlyDNS, notes: "clusterset-system/clusterset-dns\n"},
	{overlay: "all-in-one", mode: deploy.AllInOne, notes: "--service=clusterset-system/clusterset\n"},
	{overlay: "openshift", mode: deploy.Separate, values: map[string]any{"openshift": true}},
	{mode: deploy.OnlyController, notes: "--vip=cidr --vip-cidr-pool=10.250.0.0/15,fd00:250::/48 --endpoints=service_ip\n", values: map[string]any{"vip": "cidr 10.250.0.0/15 fd00:250::/48", "endpoints": "service_ip"}},
	{mode: deploy.Separate, values: map[string]any{"createNamespaces": true}},
	{mode: deploy.AllInOne, values: map[string]any{
		"createNamespaces": true,
		"image":            "example.org/a:1", "imagePullSecrets": []string{"a", "b"}, "replicas": 3, "zone": "example.org", "clusterDomain": "k8s.example",
		"nodeSelector": map[string]string{"kubernetes.io/os": "linux"}, "tolerations": []map[string]string{{"operator": "Exists", "effect": "NoSchedule"}},
	}},
}

// TestChart: Helm and [deploy.Render] make the same of the chart, and so does kustomize of the overlays.
func TestChart(t *testing.T) {
	for _, v := range variants {
		t.Run(fmt.Sprint(v.mode, v.values), func(t *testing.T) {
			ours, err := deploy.Render(deploy.Options{Mode: v.mode, ManagedBy: "Helm", Values: v.values})
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]any{"mode": string(v.mode)}
			for key, value := range v.values {
				values[key] = value
			}
			if out, err := helm(t, values, "lint", "chart"); err != nil {
				t.Errorf("helm lint: %v\n%s", err, out)
			}
			manifest, notes := template(t, values)
			sameObjects(t, "helm template", []byte(manifest), ours)
			if !strings.Contains(notes, v.notes) {
				t.Errorf("the notes are\n%s\nwant %q in them", notes, v.notes)
			}
			if v.overlay == "" {
				return
			}
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("overlays", v.overlay))
			if err != nil {
				t.Fatal(err)
			}
			text, err := built.AsYaml()
			if err != nil {
				t.Fatal(err)
			}
			want, err := deploy.Render(deploy.Options{Mode: v.mode, Values: v.values})
			if err != nil {
				t.Fatal(err)
			}
			sameObjects(t, "kustomize build overlays/"+v.overlay, text, slices.Concat(deploy.Namespace, []byte("\n---\n"), want))
		})
	}
}

// Values that would make something else of a manifest are rejected.
func TestChartValues(t *testing.T) {
	for _, values := range []map[string]any{
		{"mode": "both"}, {"image": ""}, {"image": "a b"}, {"replicas": 0}, {"zone": "a b"}, {"clusterDomain": "."}, {"vip": "x"}, {"vip": "none 10.0.0.0/8"}, {"vip": "cidr a\n"}, {"unknown": 1}, {"createNamespaces": "yes"},
		{"nodeSelector": map[string]any{"a": 1}}, {"zone": "a {\n"}, {"zone": "a\n"}, {"imagePullSecrets": []string{"a\n- name: b"}},
	} {
		if out, err := helm(t, values, "template", "chart", system); err == nil {
			t.Errorf("values %v make\n%s\nwant an error", values, out)
		}
		if out, err := helm(t, values, "lint", "chart"); err == nil {
			t.Errorf("values %v pass helm lint:\n%s\nwant an error", values, out)
		}
	}
}
