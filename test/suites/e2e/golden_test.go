package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/program"
)

// TestGolden sends the questions of all golden files with dig, over UDP and TCP, while their objects are in an API
// server. It sends them to CoreDNS's plugin kubernetes, too, see differences.
func TestGolden(t *testing.T) {
	program.Find(t, "dig") // before anything is started for it
	files, err := golden.ReadAll("../../../plugin/testdata")
	if err != nil {
		t.Fatal(err)
	}
	c := controlplane.StartT(t, controlplane.Options{})
	peer := build(t)
	all := differences{complete: true}
	for _, f := range files {
		whole := t.Run(f.Name, func(t *testing.T) {
			if f.ManifestsOnly {
				testManifests(t, c, f)
				return
			}
			objects := apply(t, c, f)
			defer remove(t, c, objects)
			all.add(f, testFile(t, c, f, peer))
		})
		all.complete = all.complete && whole
	}
	t.Run("reverse", func(t *testing.T) { testReverse(t, c, peer) })
	t.Run("differences", func(t *testing.T) { all.check(t, "../../../docs/differences.md") })
}

// testManifests runs a file whose objects no API server accepts, and checks that.
func testManifests(t *testing.T, c *controlplane.ControlPlane, f *golden.File) {
	objects := parse(t, f)
	var refused error
	for _, o := range namespacesFirst(objects) {
		err := c.Apply(t.Context(), o)
		refused = errors.Join(refused, err)
		if err == nil {
			defer remove(t, c, []runtime.Object{o})
		}
	}
	if !apierrors.IsInvalid(refused) {
		t.Errorf("applying all objects: %v, want some of them to be invalid: the file says manifests only", refused)
	}
	path := filepath.Join(t.TempDir(), "objects.yaml")
	manifest, err := golden.Expand(f.Objects)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	p := port(t)
	start(t, block(f.Zones, p, ours(t, f, "manifests "+path)))
	askOurs(t, p, f)
}

// testFile tests our replies and returns those of the plugin kubernetes, which is compiled into the CoreDNS at the path
// peer.
func testFile(t *testing.T, c *controlplane.ControlPlane, f *golden.File, peer string) []golden.Reply {
	us, them := port(t), port(t)
	start(t, block(f.Zones, us, ours(t, f, "kubeconfig "+c.Kubeconfig())))
	askOurs(t, us, f)
	startProgram(t, peer, block(f.Zones, them, theirs(t, f, c.Kubeconfig())), them)
	return askTheirs(t, them, f)
}

func askOurs(t *testing.T, p *controlplane.Port, f *golden.File) {
	t.Helper()
	for _, transport := range []string{"+notcp", "+tcp"} {
		for i, got := range dig(t, p, questions(f), transport) {
			if c := f.Cases[i]; !c.Want.Permits(got) {
				t.Errorf("dig %s %s: got\n%s\nwant\n%s", transport, c.Question, got, c.Want)
			}
		}
	}
}

func questions(f *golden.File) (list []golden.Question) {
	for _, c := range f.Cases {
		list = append(list, c.Question)
	}
	return list
}

// ours returns the body of a server block with the directives of a golden file.
func ours(t *testing.T, f *golden.File, source string) string {
	t.Helper()
	return fmt.Sprintf("clusterset {\nstartup_timeout 5m\n%s\n%s}\n%s", source, f.Corefile, next(t, f))
}

func next(t *testing.T, f *golden.File) string {
	t.Helper()
	if f.Next == "" {
		return ""
	}
	path := filepath.Join(t.TempDir(), "next.zone")
	if err := os.WriteFile(path, []byte(f.Next), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file " + path + " " + golden.Origin(f.Next) + "\n"
}

// shared matches the directives that the plugin kubernetes has, too.
var shared = regexp.MustCompile(`(?m)^\s*(ttl|namespaces|namespace_labels|labels|noendpoints|fallthrough)\b.*$`)

// theirs returns the body of a server block with CoreDNS's plugin kubernetes.
func theirs(t *testing.T, f *golden.File, kubeconfig string) string {
	t.Helper()
	return fmt.Sprintf("kubernetes {\nstartup_timeout 5m\nkubeconfig %s\nmulticluster %s\n%s\n}\n%s", kubeconfig,
		strings.Join(forward(f.Zones), " "),
		strings.Join(shared.FindAllString(f.Corefile, -1), "\n"), next(t, f))
}

func parse(t *testing.T, f *golden.File) []runtime.Object {
	t.Helper()
	manifest, err := golden.Expand(f.Objects)
	if err != nil {
		t.Fatal(err)
	}
	return objectsOf(t, string(manifest))
}

func objectsOf(t *testing.T, manifest string) []runtime.Object {
	t.Helper()
	objects, err := controlplane.ParseYAML([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// apply creates the objects of a file in the API server, and the namespaces they need.
func apply(t *testing.T, c *controlplane.ControlPlane, f *golden.File) []runtime.Object {
	t.Helper()
	objects := parse(t, f)
	if err := c.Apply(t.Context(), namespacesFirst(objects)...); err != nil {
		t.Fatal(err)
	}
	return objects
}

// namespacesFirst returns the objects with every Namespace before its content. It adds namespaces that are missing.
func namespacesFirst(objects []runtime.Object) []runtime.Object {
	var first, rest []runtime.Object
	seen := map[string]bool{}
	for _, o := range objects {
		if u := o.(*unstructured.Unstructured); u.GetKind() == "Namespace" {
			seen[u.GetName()] = true
			first = append(first, o)
			continue
		}
		rest = append(rest, o)
	}
	for _, o := range rest {
		if name := o.(*unstructured.Unstructured).GetNamespace(); name != "" && !seen[name] {
			seen[name] = true
			first = append(first, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
			}})
		}
	}
	return append(first, rest...)
}

// remove takes out what apply put in, but for the namespaces: emptying one takes longer than all the rest. They have no
// labels then.
func remove(t *testing.T, c *controlplane.ControlPlane, objects []runtime.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, o := range objects {
		u := o.(*unstructured.Unstructured)
		if u.GetKind() == "Namespace" {
			bare := u.DeepCopy()
			bare.SetLabels(nil)
			if err := c.Apply(ctx, bare); err != nil {
				t.Error(err)
			}
			continue
		}
		gvk := u.GroupVersionKind()
		resource := schema.GroupVersionResource{
			Group: gvk.Group, Version: gvk.Version, Resource: plurals[gvk.Kind],
		}
		err := c.Dynamic().Resource(resource).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	}
}

var plurals = map[string]string{
	"Service":       "services",
	"ServiceImport": "serviceimports", "EndpointSlice": "endpointslices", "ClusterProperty": "clusterproperties",
}

// forward returns zones without the reverse zones.
func forward(zones []string) []string {
	return slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return strings.HasSuffix(z, ".arpa") })
}
