package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		helper()
	}
	goleak.VerifyTestMain(suite{m})
}

// A suite ends with the control plane that its tests share.
type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if theControlPlane != nil {
		if err := theControlPlane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

var theControlPlane *ControlPlane

// shared returns a control plane, for a test that leaves it as it was but for namespace shop, what [readers] has, and
// definitions.
func shared(t *testing.T) *ControlPlane {
	t.Helper()
	if theControlPlane == nil {
		var err error
		theControlPlane, err = Start(t.Context(), Options{ServiceCIDR: "10.97.0.0/16,fd00:10:97::/108"})
		must(t, err)
	}
	t.Cleanup(func() {
		ctx, c := context.WithoutCancel(t.Context()), theControlPlane
		must(t, c.StartAPIServer(ctx))
		err := c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		must(t, c.InstallCRDs(ctx, DefaultCRDs()...))
	})
	return theControlPlane
}

var (
	serviceImports = schema.GroupVersionResource{
		Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports",
	}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

const shop = `
# A comment alone is no object.
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: List
items:
- apiVersion: multicluster.x-k8s.io/v1beta1
  kind: ServiceImport
  metadata: {name: db, namespace: shop, labels: {tier: data}}
  spec:
    type: ClusterSetIP
    ips: [10.96.7.7]
    ports: [{name: pg, port: 5432, protocol: TCP}]
  status:
    clusters: [{cluster: east}, {cluster: west}]
- apiVersion: v1
  kind: Service
  metadata: {name: db, namespace: shop}
  spec: {ports: [{port: 5432}], ipFamilyPolicy: RequireDualStack}
`

func TestApplyAndDelete(t *testing.T) {
	tier.All(t)
	ctx := t.Context()
	c := shared(t)
	must(t, c.ApplyYAML(ctx, []byte(shop)))
	imp := get(t, c, serviceImports, "shop", "db")
	if got, want := slice(imp, "spec", "ips"), "[10.96.7.7]"; got != want {
		t.Errorf("spec.ips = %s, want %s", got, want)
	}
	if got, want := slice(imp, "status", "clusters"), "[map[cluster:east] map[cluster:west]]"; got != want {
		t.Errorf("status.clusters = %s, want %s", got, want)
	}
	ips := slice(get(t, c, services, "shop", "db"), "spec", "clusterIPs")
	if !strings.HasPrefix(ips, "[10.97.") || !strings.Contains(ips, " fd00:10:97:") {
		t.Errorf("spec.clusterIPs = %s, want one of each range given", ips)
	}

	must(t, c.Apply(ctx, &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "shop"},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{{Name: "pg", Port: 5432, Protocol: corev1.ProtocolTCP}},
		},
	}))
	imp = get(t, c, serviceImports, "shop", "db")
	if got, want := slice(imp, "spec", "ips"), "[]"; got != want {
		t.Errorf("spec.ips = %s after an apply without, want %s", got, want)
	}
	if labels := imp.GetLabels(); len(labels) != 0 {
		t.Errorf("labels = %v after an apply without, want none", labels)
	}

	must(t, c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	_, err := c.Dynamic().Resource(namespaces).Get(ctx, "shop", metav1.GetOptions{})
	wantNotFound(t, "the namespace after Delete", err)
	_, err = c.Dynamic().Resource(serviceImports).Namespace("shop").Get(ctx, "db", metav1.GetOptions{})
	wantNotFound(t, "the import after Delete of its namespace", err)
	wantNotFound(t, "Delete of what does not exist", c.DeleteYAML(ctx, []byte(shop)))
}

func TestApplyErrorNamesTheObject(t *testing.T) {
	c := shared(t)
	err := c.Apply(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "Bad_Name"}})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "Bad_Name") {
		t.Errorf("Apply of a service with a bad name = %v, want the server's refusal with that name", err)
	}
}

func TestCRDsComeAndGo(t *testing.T) {
	tier.All(t)
	ctx := t.Context()
	c := shared(t)
	must(t, c.DeleteCRDs(ctx, DefaultCRDs()...))
	err := c.ApplyYAML(ctx, []byte(shop))
	if !meta.IsNoMatchError(err) {
		t.Fatalf("Apply without CRDs = %v, want no match", err)
	}
	must(t, c.InstallCRDs(ctx, MCSCRDs()...))
	must(t, c.ApplyYAML(ctx, []byte(shop)))
	old := serviceImports
	old.Version = "v1alpha1"
	get(t, c, old, "shop", "db")

	must(t, c.DeleteCRDs(ctx, MCSCRDs()...))
	_, err = c.Dynamic().Resource(serviceImports).List(ctx, metav1.ListOptions{})
	wantNotFound(t, "a list after DeleteCRDs", err)
	if err := c.ApplyYAML(ctx, []byte(shop)); !meta.IsNoMatchError(err) {
		t.Errorf("Apply after DeleteCRDs = %v, want no match", err)
	}
	must(t, c.InstallCRDs(ctx, MCSCRDs()...))
	_, err = c.Dynamic().Resource(serviceImports).Namespace("shop").Get(ctx, "db", metav1.GetOptions{})
	wantNotFound(t, "an import after its CRD came back", err)
	must(t, c.ApplyYAML(ctx, []byte(shop)))
}

func TestAPIServerStopsAndComesBack(t *testing.T) {
	tier.All(t)
	ctx := t.Context()
	c := shared(t)
	must(t, c.ApplyYAML(ctx, []byte(shop)))
	before := get(t, c, serviceImports, "shop", "db")
	for _, tt := range []struct {
		name string
		stop func() error
	}{
		{name: "stop", stop: c.StopAPIServer},
		{name: "kill", stop: func() error { c.KillAPIServer(); return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must(t, tt.stop())
			must(t, tt.stop()) // The second time there is nothing to do.
			if _, err := read(t, c); err == nil || isAnswer(err) {
				t.Fatalf("a read without an API server = %v, want a failed connection", err)
			}
			if err := c.Freeze(); err == nil {
				t.Error("Freeze without an API server succeeded")
			}
			must(t, c.StartAPIServer(ctx))
			must(t, c.StartAPIServer(ctx)) // Here too.
			after, err := read(t, c)
			must(t, err)
			if after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
				t.Errorf("the import came back as %v, want %v", after, before)
			}
		})
	}
}

func TestFreeze(t *testing.T) {
	tier.All(t)
	c := shared(t)
	must(t, c.Freeze())
	// That nothing answers could only be shown by waiting; the kernel knows at once.
	if state, err := processState(c.api.Pid()); err != nil || state != "T" {
		t.Errorf("state of the frozen API server = %s, %v, want T", state, err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Dynamic().Resource(namespaces).Get(t.Context(), "default", metav1.GetOptions{})
		answered <- err
	}()
	must(t, c.Thaw())
	must(t, <-answered)
	must(t, c.Freeze())
	must(t, c.StopAPIServer())
}

func TestRestoreEtcd(t *testing.T) {
	tier.All(t)
	ctx := t.Context()
	c := shared(t)
	must(t, c.ApplyYAML(ctx, []byte(shop)))
	early := get(t, c, serviceImports, "shop", "db")
	saved, err := c.SaveEtcd(ctx)
	must(t, err)
	for range 2 {
		for i := range 200 {
			must(t, c.Apply(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("late-%d", i)}}))
		}
		must(t, c.DeleteYAML(ctx, []byte(shop)))
		last := get(t, c, configMaps, "default", "late-199")

		must(t, c.RestoreEtcd(ctx, saved))
		again := get(t, c, serviceImports, "shop", "db")
		if again.GetUID() != early.GetUID() || again.GetResourceVersion() != early.GetResourceVersion() {
			t.Errorf("the import came back as %v, want %v", again, early)
		}
		list, err := c.Dynamic().Resource(configMaps).Namespace("default").List(ctx, metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != 0 {
			t.Errorf("%d config maps are left of a later state", len(list.Items))
		}
		later, err := newerOrEqual(list.GetResourceVersion(), last.GetResourceVersion())
		if err != nil || later {
			t.Errorf("resource version %s, which was %s before the restore: it has to go back (%v)",
				list.GetResourceVersion(), last.GetResourceVersion(), err)
		}
	}
}

const readers = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: readers}
rules: [{apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: readers}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}
- {kind: ServiceAccount, namespace: default, name: dns}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: dns, namespace: default}
`

func TestRBAC(t *testing.T) {
	tier.All(t)
	ctx := t.Context()
	c := shared(t)
	must(t, c.ApplyYAML(ctx, []byte(readers)))
	user := func(name string, groups ...string) func() (string, error) {
		return func() (string, error) { return c.UserKubeconfig(name, groups...) }
	}
	for _, tt := range []struct {
		name       string
		kubeconfig func() (string, error)
		mayRead    bool
	}{
		{name: "user", kubeconfig: user("alice"), mayRead: true},
		{name: "group", kubeconfig: user("bob", "other", "team"), mayRead: true},
		{name: "nobody", kubeconfig: user("bob", "other"), mayRead: false},
		{name: "service account", mayRead: true, kubeconfig: func() (string, error) {
			return c.ServiceAccountKubeconfig(ctx, "default", "dns")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, err := tt.kubeconfig()
			must(t, err)
			client := clientFor(t, path)
			_, err = client.Resource(secrets).List(ctx, metav1.ListOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("list of secrets = %v, want forbidden", err)
			}
			_, err = client.Resource(serviceImports).List(ctx, metav1.ListOptions{})
			if tt.mayRead && err != nil || !tt.mayRead && !apierrors.IsForbidden(err) {
				t.Errorf("list of imports = %v, want allowed: %t", err, tt.mayRead)
			}
		})
	}
	if _, err := c.ServiceAccountKubeconfig(ctx, "default", "unknown"); !apierrors.IsNotFound(err) {
		t.Errorf("kubeconfig of an unknown service account = %v, want not found", err)
	}
	t.Run("in force", func(t *testing.T) { testInForce(t, c) })
}

const frozen = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: frozen}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}]
  validations: [{expression: "object.metadata.name != 'frozen'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: frozen}
spec: {policyName: frozen, validationActions: [Deny]}
`

// testInForce gives and takes rights, and makes and deletes a policy: the very next request is decided by that.
func testInForce(t *testing.T, c *ControlPlane) {
	ctx := t.Context()
	path, err := c.UserKubeconfig("alice")
	must(t, err)
	alice := clientFor(t, path).Resource(serviceImports)
	write := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "frozen"}}
	for range 3 {
		must(t, c.DeleteYAML(ctx, []byte(readers)))
		if _, err := alice.List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list after the rights are deleted = %v, want forbidden", err)
		}
		must(t, c.ApplyYAML(ctx, []byte(readers)))
		if _, err := alice.List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("list after the rights are given = %v", err)
		}
		must(t, c.ApplyYAML(ctx, []byte(frozen)))
		if err := c.Apply(ctx, write); !apierrors.IsInvalid(err) {
			t.Errorf("Apply after the policy is made = %v, want that it denies the request", err)
		}
		must(t, c.DeleteYAML(ctx, []byte(frozen)))
		must(t, c.Apply(ctx, write))
		must(t, c.Delete(ctx, write))
	}
}

func TestTwoAtOnce(t *testing.T) {
	tier.All(t)
	ctx := t.Context()
	started := make(chan *ControlPlane, 2)
	for range 2 {
		go func() {
			c, err := Start(ctx, Options{})
			if err != nil {
				t.Error(err)
			}
			started <- c
		}()
	}
	a, b := <-started, <-started
	for _, c := range []*ControlPlane{a, b} {
		if c != nil {
			t.Cleanup(func() { must(t, c.Stop()) })
		}
	}
	if t.Failed() {
		return
	}
	t.Run("kubeconfigs", func(t *testing.T) { testKubeconfigs(t, a, b) })
	must(t, a.ApplyYAML(ctx, []byte(shop)))
	get(t, a, serviceImports, "shop", "db")
	_, err := read(t, b)
	wantNotFound(t, "the import in the other cluster", err)
	must(t, a.Stop())
	must(t, a.Stop())
	must(t, b.ApplyYAML(ctx, []byte(shop)))
}

// testKubeconfigs shows that a kubeconfig is good for one server alone.
func testKubeconfigs(t *testing.T, one, other *ControlPlane) {
	config, err := clientcmd.BuildConfigFromFlags("", one.Kubeconfig())
	must(t, err)
	if config.Insecure || len(config.CAData) == 0 {
		t.Errorf("insecure: %t, %d octets of CA certificates", config.Insecure, len(config.CAData))
	}
	client := clientFor(t, other.Kubeconfig())
	_, err = client.Resource(namespaces).List(t.Context(), metav1.ListOptions{})
	must(t, err)

	config.Host = other.Config().Host
	stranger, err := dynamic.NewForConfig(config)
	must(t, err)
	_, err = stranger.Resource(namespaces).List(t.Context(), metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("a list with the CA of another control plane = %v, want an unknown authority", err)
	}
}

func TestStartFails(t *testing.T) {
	tier.All(t)
	t.Run("bad flag", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		_, err := Start(t.Context(), Options{APIServerArgs: []string{"--no-such-flag"}})
		if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
			t.Errorf("Start = %v, want what kube-apiserver said", err)
		}
		wantNames(t, os.Getenv("TMPDIR"))
	})
	t.Run("context ends", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Start(ctx, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("Start = %v, want %v", err, context.Canceled)
		}
		wantNames(t, os.Getenv("TMPDIR"))
	})
	t.Run("bad CRD", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		_, err := Start(t.Context(), Options{CRDs: [][]byte{[]byte(shop)}})
		if err == nil || !strings.Contains(err.Error(), "want only CustomResourceDefinitions") {
			t.Errorf("Start = %v, want a word about the manifest", err)
		}
		wantNames(t, os.Getenv("TMPDIR"))
	})
}

// Start takes another port if it reads these words.
func TestPortIsTaken(t *testing.T) {
	tier.All(t)
	c := shared(t)
	must(t, c.StopAPIServer())
	other, err := net.Listen("tcp", c.port.String())
	must(t, err)
	err = c.StartAPIServer(t.Context())
	if err == nil || !strings.Contains(err.Error(), portTaken) {
		t.Errorf("StartAPIServer on a port that is taken = %v, want %q in it", err, portTaken)
	}
	must(t, other.Close())
	must(t, c.StartAPIServer(t.Context()))
}

func TestStopTellsOfProgramsThatEnded(t *testing.T) {
	tier.All(t)
	c, err := Start(t.Context(), Options{CRDs: [][]byte{}})
	must(t, err)
	must(t, c.StartControllers(t.Context(), "endpointslice-controller"))
	for _, p := range []*process{c.controllers, c.api} {
		must(t, p.signal(os.Kill))
		<-p.Done()
	}
	err = c.Stop()
	for _, name := range []string{"kube-apiserver", "kube-controller-manager"} {
		if err == nil || !strings.Contains(err.Error(), name+" had ended: signal: killed") {
			t.Errorf("Stop = %v, want a word about %s", err, name)
		}
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder after Stop: %v, want that it does not exist", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *ControlPlane, r schema.GroupVersionResource, namespace,
	name string) *unstructured.Unstructured {
	t.Helper()
	u, err := c.Dynamic().Resource(r).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return u
}

func read(t *testing.T, c *ControlPlane) (*unstructured.Unstructured, error) {
	return c.Dynamic().Resource(serviceImports).Namespace("shop").Get(t.Context(), "db", metav1.GetOptions{})
}

func slice(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedSlice(u.Object, path...)
	return fmt.Sprint(s)
}

// isAnswer reports whether err is the answer of a server, and not an error on the way to it.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

func wantNotFound(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsNotFound(err) {
		t.Errorf("%s: got %v, want not found", what, err)
	}
}

func clientFor(t *testing.T, kubeconfig string) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return client
}

func newerOrEqual(a, b string) (bool, error) {
	var x, y int
	if _, err := fmt.Sscan(a+" "+b, &x, &y); err != nil {
		return false, err
	}
	return x >= y, nil
}
