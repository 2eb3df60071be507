package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// helm runs test/tools/helm, with a file of values if there are any.
func helm(t *testing.T, values map[string]any, args ...string) (string, error) {
	t.Helper()
	tier.All(t) // It takes minutes to compile.
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
	manifest, _, _ = strings.Cut(manifest, helmTests)
	return manifest, notes
}

// helmTests precedes the templates of "helm test". Helm does not install them.
const helmTests = "---\n# Source: clusterset/templates/tests/"

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
	{overlay: "member", mode: deploy.Separate,
		notes: "clusterset dns apply --context=CONTEXT --zone=clusterset.local --service=clusterset-system/clusterset-dns\n"},
	{overlay: "dns", mode: deploy.OnlyDNS, notes: "clusterset-system/clusterset-dns\n"},
	{overlay: "all-in-one", mode: deploy.AllInOne, notes: "--service=clusterset-system/clusterset\n"},
	{overlay: "openshift", mode: deploy.Separate, values: map[string]any{"openshift": true}},
	{mode: deploy.OnlyController,
		notes:  "--vip=cidr --vip-cidr-pool=10.250.0.0/15,fd00:250::/48 --endpoints=service_ip\n",
		values: map[string]any{"vip": "cidr 10.250.0.0/15 fd00:250::/48", "endpoints": "service_ip"}},
	{mode: deploy.Separate, values: map[string]any{"createNamespaces": true}},
	{mode: deploy.Separate, values: map[string]any{"createNamespaces": true, "controllerOptions": chartOptions}},
	{mode: deploy.AllInOne, values: map[string]any{"createNamespaces": true, "controllerOptions": chartOptions}},
	{mode: deploy.AllInOne, values: map[string]any{
		"createNamespaces": true,
		"image":            "example.org/a:1", "imagePullSecrets": []map[string]string{{"name": "a"}, {"name": "b"}}, "replicas": 3, "zone": "example.org",
		"clusterDomain": "k8s.example",
		"nodeSelector":  map[string]string{"kubernetes.io/os": "linux"},
		"tolerations":   []map[string]string{{"operator": "Exists", "effect": "NoSchedule"}},
	}},
	{mode: deploy.Separate, notes: "--service=clusterset-system/canary-dns\n", values: map[string]any{
		"affinity": map[string]any{"podAntiAffinity": map[string]any{}},
		"zone":     "clusterset.local example.org", "serverBlocks": "a.example:1053 {\n    whoami\n}\n",
		"service": map[string]any{"ipFamilies": []string{"IPv4", "IPv6"}}, "fullnameOverride": "canary",
		"serviceMonitor":    map[string]any{"enabled": true, "labels": map[string]string{"release": "a"}},
		"priorityClassName": "", "podAnnotations": map[string]string{"a": "b"},
		"serviceAccountAnnotations": map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"},
		"resources": map[string]any{
			"dns":        container("2", "1Gi", "2Gi"),
			"controller": container("10m", "64Mi", "512Mi"),
		},
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
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
				filepath.Join("overlays", v.overlay))
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
		{"mode": "both"}, {"image": ""}, {"image": "a b"}, {"replicas": 0}, {"clusterDomain": "."},
		{"vip": "x"}, {"vip": "none 10.0.0.0/8"}, {"vip": "cidr a\n"}, {"unknown": 1}, {"createNamespaces": "yes"},
		{"nodeSelector": map[string]any{"a": 1}}, {"zone": "a {\n"}, {"zone": "a\n"},
		{"zone": "a  b"}, {"serverBlocks": "a {\r\n}"}, {"service": map[string]any{"ipFamilies": []string{"IPv5"}}},
		{"service": map[string]any{"ipFamilies": []string{"IPv4", "IPv4"}}}, {"fullnameOverride": ""},
		{"fullnameOverride": "a_b"}, {"serviceMonitor": true}, {"serviceMonitor": map[string]any{"labels": map[string]any{"a": 1}}},
		{"imagePullSecrets": []string{"a"}}, {"priorityClassName": "a]"}, {"podAnnotations": map[string]any{"a": 1}},
		{"resources": map[string]any{"dns": container("1", "1Gi", "1.5Gi")}},
		{"resources": map[string]any{"dns": map[string]any{"limits": nil}}},
		options("ttl", "5"), options("vip", "none"), options("broker", "x"), options("lease", ""),
		options("lease", "5s  30s"), options("lease", "banana"), options("lease", "5s"), options("lease", 5),
		options("on_expiry", "remove 1h"), options("on_expiry", "last_resort soon"), options("merge", "kep first"),
		options("affinity", "near"), options("affinity", "local soon"), options("exported_affinity", "yes"),
		options("legacy_conditions", 1), options("controller_qps", 0), options("controller_qps", "50 many"),
		options("status_page", "localhost:80"), options("cluster_id", "a_b"), options("service_cidr", "10.96.0.0"),
		options("lease", "0\n}"), options("lease", "0\n"), options("affinity", `local" #`), options("affinity", "{$HOME}"), options("affinity", nil),
		options("affinity", []string{"local"}), options("import_namespaces", "create"),
		options("import_namespaces", "create a"),
		{"createNamespaces": true, "controllerOptions": map[string]any{"import_namespaces": "team=a"}},
	} {
		if out, err := helm(t, values, "template", "chart", system); err == nil {
			t.Errorf("values %v make\n%s\nwant an error", values, out)
		}
		if out, err := helm(t, values, "lint", "chart"); err == nil {
			t.Errorf("values %v pass helm lint:\n%s\nwant an error", values, out)
		}
	}
}

func container(cpu, memory, limit string) map[string]any {
	return map[string]any{"requests": map[string]string{"cpu": cpu, "memory": memory}, "limits": map[string]string{"memory": limit}}
}

func options(name string, value any) map[string]any {
	return map[string]any{"controllerOptions": map[string]any{name: value}}
}

// chartOptions are values of controllerOptions, one for each option of the controller that the chart does not set by
// other values.
var chartOptions = map[string]any{
	"cluster_id": "east", "service_cidr": "10.96.0.0/12 fd00::/108", "lease": "5s 30s", "on_expiry": "keep",
	"merge":    "first",
	"affinity": "local 1m", "exported_affinity": false, "import_namespaces": "shop bank", "legacy_conditions": true,
	"aggregate_view": "on", "status_page": "0.0.0.0:9154", "controller_qps": 50,
}

// TestHelmTest runs the command of the Pod of "helm test": it succeeds while the server has both zones, and else fails.
func TestHelmTest(t *testing.T) {
	out, err := helm(t, map[string]any{"zone": "clusterset.local example.org"}, "template", "chart", system)
	_, text, _ := strings.Cut(out, helmTests)
	text, _, _ = strings.Cut(text, "---\n")
	var pod corev1.Pod
	if err := errors.Join(err, yaml.UnmarshalStrict([]byte(strings.TrimPrefix(text, "ask.yaml\n")), &pod)); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	container := pod.Spec.Containers[0]
	if got, want := container.Args[0], "--dns-server=clusterset-dns.clusterset-system.svc.cluster.local:53"; got != want {
		t.Errorf("first argument %s, want %s", got, want)
	}
	command, err := server.Program(t.Context(), "clusterset")
	if err != nil {
		t.Fatal(err)
	}
	for zones, want := range map[string]bool{"clusterset.local example.org": true, "clusterset.local": false} {
		args := slices.Concat(container.Command[1:], container.Args, []string{"--dns-server=" + serve(t, zones), "--patience=1s"})
		out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput()
		if (err == nil) != want {
			t.Errorf("%q with a server of %s: %v, %s; want success %t", args, zones, err, out, want)
		}
	}
}

// serve starts a server of the zones, and returns its address.
func serve(t *testing.T, zones string) string {
	t.Helper()
	coredns, err := server.Program(t.Context(), "coredns")
	if err != nil {
		t.Fatal(err)
	}
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	file := filepath.Join(t.TempDir(), "Corefile")
	text := fmt.Sprintf(".:%d {\n bind 127.0.0.1\n clusterset %s {\n manifests %s\n }\n}\n", port.Number, zones, t.TempDir())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(subprocess.Command{Bin: coredns, Args: []string{"-conf", file}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Process.Stop(until.Patience) })
	err = s.Await(t.Context(), func(ctx context.Context) error { return server.Serves(ctx, port.String(), "clusterset.local") })
	if err != nil {
		t.Fatal(err)
	}
	return port.String()
}

// TestControllerOptions sets each option of the controller by a value of the chart, for a controller alone and for one
// in a DNS server.
func TestControllerOptions(t *testing.T) {
	for _, create := range []bool{false, true} {
		want := controller.Defaults()
		for _, o := range controller.Options() {
			value, ok := chartOptions[o.Name]
			words := strings.Fields(fmt.Sprint(value))
			if own := slices.Contains([]string{"broker", "controller_namespace", "vip", "endpoints"}, o.Name); own == ok {
				t.Fatalf("option %s: got %v in controllerOptions; want it there, or as a value of its own", o.Name, value)
			}
			if !ok {
				continue
			}
			switch value {
			case true:
				words = []string{"on"}
			case false:
				words = []string{"off"}
			}
			if o.Name == "import_namespaces" && create {
				words = append([]string{"create"}, words...)
			}
			set(t, &want, o.Name, words)
		}
		for _, mode := range []deploy.Mode{deploy.OnlyController, deploy.AllInOne} {
			manifest, _ := template(t, map[string]any{"mode": string(mode), "createNamespaces": create,
				"controllerOptions": chartOptions})
			got := configured(t, manifest)
			got.Broker = ""
			if different := want.Difference(&got); different != "" {
				t.Errorf("mode %s, createNamespaces %t: %s differs: %+v, want %+v, in\n%s", mode, create, different, got, want,
					manifest)
			}
		}
	}
}

// An upgrade with the values of an older release has no options of the controller: "helm upgrade --reuse-values".
func TestNoControllerOptions(t *testing.T) {
	for _, mode := range []deploy.Mode{deploy.OnlyController, deploy.AllInOne} {
		manifest, _ := template(t, map[string]any{"mode": string(mode), "createNamespaces": true, "controllerOptions": nil})
		if got := configured(t, manifest); !got.CreateNamespaces {
			t.Errorf("mode %s: missing namespaces are not created", mode)
		}
	}
}

// configured returns what the arguments or the Corefile in a manifest make of a controller.
func configured(t *testing.T, manifest string) controller.Config {
	t.Helper()
	config := controller.Defaults()
	all, err := controlplane.ParseYAML([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		object := o.(*unstructured.Unstructured).Object
		if text, ok, _ := unstructured.NestedString(object, "data", "Corefile"); ok {
			_, block, _ := strings.Cut(text, "    clusterset {\n")
			block, _, _ = strings.Cut(block, "    }\n")
			for line := range strings.Lines(block) {
				if words := strings.Fields(line); len(words) > 1 {
					set(t, &config, words[0], words[1:])
				}
			}
		}
		containers, _, _ := unstructured.NestedSlice(object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			args, _, _ := unstructured.NestedStringSlice(c.(map[string]any), "args")
			var namespaces []string // the words of repeated flags add up
			for _, arg := range args {
				name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
				name = strings.ReplaceAll(name, "-", "_")
				words := strings.Fields(value)
				if name == "import_namespaces" {
					namespaces = append(namespaces, words...)
					words = namespaces
				}
				set(t, &config, name, words)
			}
		}
	}
	return config
}

// set sets an option of the controller. Other names are ignored: they are directives of the DNS server, or flags of the
// command.
func set(t *testing.T, config *controller.Config, name string, words []string) {
	t.Helper()
	for _, o := range controller.Options() {
		if o.Name != name {
			continue
		}
		if len(words) < o.Min || o.Max >= 0 && len(words) > o.Max {
			t.Fatalf("%s %q: want %s", name, words, o.Args)
		}
		if err := o.Set(config, words); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}
