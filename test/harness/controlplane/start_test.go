package controlplane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// TestReuse: a control plane is handed out again as new, unless it cannot be made so.
func TestReuse(t *testing.T) {
	tier.All(t)
	opts := Options{CRDs: [][]byte{}}
	var used *ControlPlane
	next := func(name string, again bool, use func(t *testing.T, c *ControlPlane)) {
		t.Run(name, func(t *testing.T) {
			c := StartT(t, opts)
			if (c == used) != again {
				t.Errorf("the control plane of the test before: %t, want %t", c == used, again)
			}
			resources, err := c.listed()
			must(t, err)
			is, err := c.inventory(t.Context(), resources)
			must(t, err)
			for o := range is {
				if _, ok := c.fresh[o]; !ok {
					t.Errorf("%v is left", o)
				}
			}
			used = c
			use(t, c)
		})
	}
	code := Main(runner(func() int {
		next("first", false, func(t *testing.T, c *ControlPlane) {
			must(t, c.Apply(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "b"}},
				&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}))
			must(t, c.InstallCRDs(t.Context(), crd.ClusterProperties))
		})
		next("objects and definitions are gone", true, func(t *testing.T, c *ControlPlane) {
			must(t, c.Apply(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault,
				Labels: map[string]string{"changed": "yes"}}}))
		})
		next("a namespace of the API server was changed", false,
			func(t *testing.T, c *ControlPlane) { must(t, c.StopAPIServer()) })
		next("it was stopped", false, func(*testing.T, *ControlPlane) {})
		return 0
	}))
	if code != 0 {
		t.Errorf("Main = %d, want 0", code)
	}
	pool.idle = nil
}

type runner func() int

func (r runner) Run() int { return r() }
