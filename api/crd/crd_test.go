package crd_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

func TestVersionsShareOneSchema(t *testing.T) {
	var definition struct {
		Spec struct {
			Versions []struct {
				Name            string
				Served, Storage bool
				Schema          map[string]any
			}
		}
	}
	if err := yaml.Unmarshal(crd.ClusterProperties, &definition); err != nil {
		t.Fatal(err)
	}
	v := definition.Spec.Versions
	if len(v) != 2 || v[0].Name != "v1alpha1" || v[1].Name != "v1beta1" {
		t.Fatalf("versions = %+v, want v1alpha1 and v1beta1", v)
	}
	if !v[0].Served || !v[1].Served || v[0].Storage || !v[1].Storage {
		t.Errorf("versions = %+v, want both served and v1beta1 stored", v)
	}
	if len(v[1].Schema) == 0 || !reflect.DeepEqual(v[0].Schema, v[1].Schema) {
		t.Errorf("schema of v1alpha1 = %v, want that of v1beta1, %v", v[0].Schema, v[1].Schema)
	}
}

// TestClusterProperty installs the definition on a real API server and uses it as its clients do.
func TestClusterProperty(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{crd.ClusterProperties}})
	beta, alpha := client(t, c, v1beta1.GroupVersion), client(t, c, older)

	t.Run("established", func(t *testing.T) { established(t, c) })
	t.Run("round trip", func(t *testing.T) {
		const id, set = "east.registry1", "fleet"
		create(t, beta, &v1beta1.ClusterProperty{ObjectMeta: named(about.ClusterIDName),
			Spec: v1beta1.ClusterPropertySpec{Value: id}})
		create(t, alpha, &v1beta1.ClusterProperty{ObjectMeta: named(about.ClusterSetName),
			Spec: v1beta1.ClusterPropertySpec{Value: set}})

		for name, want := range map[string]string{about.ClusterIDName: id, about.ClusterSetName: set} {
			var a, b v1beta1.ClusterProperty
			read(t, beta, name, &b)
			read(t, alpha, name, &a)
			if b.Spec.Value != want || a.Spec.Value != want {
				t.Errorf("%s = %q at v1beta1 and %q at v1alpha1, want %q", name, b.Spec.Value, a.Spec.Value, want)
			}
			if b.UID == "" || b.UID != a.UID {
				t.Errorf("%s has UID %q at v1beta1 and %q at v1alpha1, want one object", name, b.UID, a.UID)
			}
		}
		var all v1beta1.ClusterPropertyList
		if err := alpha.Get().Resource(v1beta1.Resource.Resource).Do(t.Context()).Into(&all); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range all.Items {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		if want := []string{about.ClusterIDName, about.ClusterSetName}; !slices.Equal(names, want) {
			t.Errorf("list = %q, want %q", names, want)
		}
	})
	t.Run("length of a value", func(t *testing.T) {
		for name, length := range map[string]int{"shortest.example.org": 1, "longest.example.org": 128_000} {
			value := strings.Repeat("🌐", length)
			create(t, beta, &v1beta1.ClusterProperty{ObjectMeta: named(name), Spec: v1beta1.ClusterPropertySpec{Value: value}})
			var got v1beta1.ClusterProperty
			if read(t, beta, name, &got); got.Spec.Value != value {
				t.Errorf("%s holds %d octets, want %d", name, len(got.Spec.Value), len(value))
			}
		}
		for name, value := range map[string]string{"empty.example.org": "",
			"long.example.org": strings.Repeat("a", 128_001)} {
			p := &v1beta1.ClusterProperty{ObjectMeta: named(name), Spec: v1beta1.ClusterPropertySpec{Value: value}}
			rejected(t, beta, v1beta1.Resource, p)
			rejected(t, alpha, older.WithResource(v1beta1.Resource.Resource), p)
		}
	})
}

func established(t *testing.T, c *controlplane.ControlPlane) {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	d, err := c.Dynamic().Resource(definitions).Get(t.Context(), "clusterproperties.about.k8s.io", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	for _, c := range conditions {
		c := c.(map[string]any)
		got[c["type"].(string)] = c["status"].(string)
	}
	want := map[string]string{"NamesAccepted": "True", "Established": "True",
		"KubernetesAPIApprovalPolicyConformant": "True"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("conditions = %v, want %v", got, want)
	}
	if stored, _, _ := unstructured.NestedStringSlice(d.Object, "status", "storedVersions"); !slices.Equal(stored,
		[]string{"v1beta1"}) {
		t.Errorf("storedVersions = %q, want v1beta1 alone", stored)
	}
}

// older is the version that shares the Go types of v1beta1.
var older = schema.GroupVersion{Group: about.GroupName, Version: "v1alpha1"}

// client returns a typed client of one version of the group.
func client(t *testing.T, c *controlplane.ControlPlane, version schema.GroupVersion) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, &v1beta1.ClusterProperty{}, &v1beta1.ClusterPropertyList{})
	metav1.AddToGroupVersion(scheme, version)
	config := c.Config()
	config.GroupVersion, config.APIPath = &version, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func create(t *testing.T, c *rest.RESTClient, o runtime.Object) {
	t.Helper()
	if err := c.Post().Resource(v1beta1.Resource.Resource).Body(o).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c *rest.RESTClient, name string, into runtime.Object) {
	t.Helper()
	if err := c.Get().Resource(v1beta1.Resource.Resource).Name(name).Do(t.Context()).Into(into); err != nil {
		t.Fatal(err)
	}
}

func rejected(t *testing.T, c *rest.RESTClient, r schema.GroupVersionResource, o metav1.Object) {
	t.Helper()
	err := c.Post().Resource(r.Resource).Body(o).Do(t.Context()).Error()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.value") {
		t.Errorf("%s %s: %v, want spec.value rejected", r.Version, o.GetName(), err)
	}
}
