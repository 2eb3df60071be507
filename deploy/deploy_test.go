package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

const system = "clusterset-system"

// dryRun makes of a write a question: admission answers as for any other.
var dryRun = []string{metav1.DryRunAll}

// allCRDs are those of a member and of a broker.
func allCRDs() [][]byte {
	return append(controlplane.DefaultCRDs(), crd.ExportedServices, crd.Inventories, crd.Members)
}

// manifests returns the paths of the manifests, the namespace first.
func manifests(t *testing.T) []string {
	t.Helper()
	paths := []string{"namespace/namespace.yaml"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{"alerts", "chart", "gitops", "kube-state-metrics", "overlays"}, path) {
			return fs.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".yaml" && path != paths[0] && d.Name() != "kustomization.yaml" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// objects returns those in the manifests at the paths.
func objects(t *testing.T, paths ...string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := controlplane.ParseYAML(b)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, o := range parsed {
			all = append(all, o.(*unstructured.Unstructured))
		}
	}
	return all
}

// quotaRule is that of GKE: Pods of these classes need a quota that names the class.
const quotaRule = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical, system-cluster-critical]}
`

// startWithQuotaRule returns an API server with that rule.
func startWithQuotaRule(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(quotaRule), 0o600); err != nil {
		t.Fatal(err)
	}
	c := controlplane.StartT(t, controlplane.Options{CRDs: allCRDs(),
		APIServerArgs: []string{"--admission-control-config-file=" + file}})
	if err := c.StartControllers(t.Context(), "resourcequota-controller"); err != nil {
		t.Fatal(err)
	}
	return c
}

// applyManifests applies every manifest.
func applyManifests(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	for _, path := range manifests(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ApplyYAML(t.Context(), b); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestQuota creates the Pods of the Deployments where the priority class needs a quota.
func TestQuota(t *testing.T) {
	tier.All(t) // It needs kube-controller-manager.
	c := startWithQuotaRule(t)
	client := clientset(t, c.Config())
	critical := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: corev1.PodSpec{PriorityClassName: "system-cluster-critical",
			Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), critical, metav1.CreateOptions{DryRun: dryRun})
	if err := rejected(err, "insufficient quota to match these scopes"); err != nil {
		t.Errorf("Pod of the priority class where no quota names it: %v", err)
	}
	applyManifests(t, c)
	restricted(t, client)
}

// TestManifests applies every manifest, twice, and creates the Pods of the Deployments where the namespace forbids all
// that is not restricted.
func TestManifests(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{CRDs: allCRDs()})
	client := clientset(t, c.Config())
	for range 2 {
		applyManifests(t, c)
	}
	for _, v := range variants {
		values := map[string]any{"mode": string(v.mode), "openshift": v.values["openshift"] == true}
		manifest, _ := template(t, values)
		if err := c.ApplyYAML(t.Context(), []byte(manifest)); err != nil {
			t.Errorf("chart with %v: %v", values, err)
		}
		if v.mode != deploy.OnlyController {
			restricted(t, client)
		}
	}
	deployments := 0
	for _, o := range objects(t, manifests(t)...) {
		if o.GetKind() != "Deployment" {
			continue
		}
		deployments++
		d, err := client.AppsV1().Deployments(system).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkDeployment(t, client, d)
	}
	restricted(t, client)
	if deployments != 3 {
		t.Errorf("%d Deployments, want those of DNS server, controller and both in one", deployments)
	}
	root := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "root"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	_, err := client.CoreV1().Pods(system).Create(t.Context(), root, metav1.CreateOptions{DryRun: dryRun})
	if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("Pod that may be root: %v, want it rejected", err)
	}
}

// restricted creates a Pod of each Deployment where the namespace forbids all that is not restricted.
func restricted(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	all, err := client.AppsV1().Deployments(system).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all.Items {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Labels: d.Spec.Template.Labels},
			Spec: d.Spec.Template.Spec}
		// A quota counts a moment after it is made.
		until.OK(t, "Pod of Deployment "+d.Name, func(ctx context.Context) error {
			_, err := client.CoreV1().Pods(system).Create(ctx, pod, metav1.CreateOptions{DryRun: dryRun})
			return err
		})
	}
}

// checkDeployment compares what has to fit together: selectors, probes, ports and mounts.
func checkDeployment(t *testing.T, client kubernetes.Interface, d *appsv1.Deployment) {
	t.Helper()
	service, err := client.CoreV1().Services(system).Get(t.Context(), d.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	budget, err := client.PolicyV1().PodDisruptionBudgets(system).Get(t.Context(), d.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(d.Spec.Template.Labels)
	for what, got := range map[string]map[string]string{
		"Service": service.Spec.Selector, "PodDisruptionBudget": budget.Spec.Selector.MatchLabels,
		"Deployment": d.Spec.Selector.MatchLabels,
	} {
		if fmt.Sprint(got) != want {
			t.Errorf("%s %s selects %v, want %s", what, d.Name, got, want)
		}
	}
	if most := budget.Spec.MaxUnavailable; most == nil || most.IntValue() != 1 {
		t.Errorf("PodDisruptionBudget %s: maxUnavailable %v, want 1, so that a drain ends with any number of replicas", d.Name, most)
	}
	container := &d.Spec.Template.Spec.Containers[0]
	for _, p := range service.Spec.Ports {
		if !slices.ContainsFunc(container.Ports, func(q corev1.ContainerPort) bool {
			return q.Name == p.TargetPort.StrVal && q.Protocol == p.Protocol
		}) {
			t.Errorf("Service %s: port %s leads to %s, which the container does not have", d.Name, p.Name, p.TargetPort.String())
		}
	}
	if d.Name != "clusterset-controller" { // it has no port for clients
		checkNetworkPolicy(t, client, d)
	}
	_, err = client.CoreV1().ServiceAccounts(system).Get(t.Context(), d.Spec.Template.Spec.ServiceAccountName,
		metav1.GetOptions{})
	if err != nil {
		t.Errorf("Deployment %s: %v", d.Name, err)
	}
	if got := d.Spec.Template.Spec.PriorityClassName; got != "system-cluster-critical" {
		t.Errorf("Deployment %s has the priority class %q, want that of other parts of the control plane", d.Name, got)
	}
	if *d.Spec.Replicas != 2 || container.LivenessProbe == nil || container.ReadinessProbe == nil {
		t.Errorf("Deployment %s has %d replicas, liveness %v, readiness %v, want 2 and both", d.Name, *d.Spec.Replicas,
			container.LivenessProbe, container.ReadinessProbe)
	}
}

// checkNetworkPolicy wants the NetworkPolicy of a Deployment to select its Pods and to open all of their ports, and no
// other.
func checkNetworkPolicy(t *testing.T, client kubernetes.Interface, d *appsv1.Deployment) {
	t.Helper()
	policy, err := client.NetworkingV1().NetworkPolicies(system).Get(t.Context(), d.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := policy.Spec.PodSelector.MatchLabels, d.Spec.Template.Labels; !maps.Equal(got, want) {
		t.Errorf("NetworkPolicy %s selects %v, want %v", d.Name, got, want)
	}
	open, want := map[string]corev1.Protocol{}, map[string]corev1.Protocol{}
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			open[p.Port.StrVal] = *p.Protocol
		}
	}
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		want[p.Name] = p.Protocol
	}
	if !maps.Equal(open, want) {
		t.Errorf("NetworkPolicy %s opens %v, want %v", d.Name, open, want)
	}
}

// The Corefiles differ in the name of the Service and in the lines of the controller; the ports in them are those of
// the Pods.
func TestCorefiles(t *testing.T) {
	corefile := func(path string) string {
		for _, o := range objects(t, path) {
			if text, ok, _ := unstructured.NestedString(o.Object, "data", "Corefile"); ok {
				return text
			}
		}
		t.Fatalf("%s has no Corefile", path)
		return ""
	}
	dns, both := corefile("dns/dns.yaml"), corefile("all-in-one/all-in-one.yaml")
	for _, want := range []string{"clusterset.local:1053 {", "health {", "ready\n", "prometheus :9153"} {
		if !strings.Contains(dns, want) {
			t.Errorf("the Corefile lacks %q:\n%s", want, dns)
		}
	}
	const controller = `        # DNS neither waits for the controller nor depends on it.
        broker /etc/clusterset/broker/kubeconfig
        controller_namespace clusterset-system
        vip derived
        endpoints pod_ip
`
	name := "ns clusterset-dns.clusterset-system.svc.cluster.local\n"
	if want := strings.Replace(dns, name, "ns clusterset.clusterset-system.svc.cluster.local\n"+controller,
		1); both != want {
		t.Errorf("the Corefile of both in one is\n%s\nwant\n%s", both, want)
	}
}

// TestDefaultMode: options without a mode are those of the mode separate, whether all objects are rendered or the
// rights alone.
func TestDefaultMode(t *testing.T) {
	for name, render := range map[string]func(deploy.Options) ([]byte, error){"Render": deploy.Render,
		"Rights": deploy.Rights} {
		got, err := render(deploy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := render(deploy.Options{Mode: deploy.Separate})
		if err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 || !bytes.Equal(got, want) {
			t.Errorf("%s without a mode:\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestMemberV1alpha1(t *testing.T) {
	for _, tt := range []struct{ text, want, not string }{
		{string(deploy.Member), "about.k8s.io/v1beta1", "about.k8s.io/v1alpha1"},
		{string(deploy.MemberV1alpha1()), "about.k8s.io/v1alpha1", "about.k8s.io/v1beta1"},
	} {
		if !strings.Contains(tt.text, tt.want) || strings.Contains(tt.text, tt.not) {
			t.Errorf("policies look %s up:\n%s", tt.want, tt.text)
		}
	}
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// as returns a configuration from the file that one of the functions for kubeconfigs wrote.
func as(t *testing.T, kubeconfig string, err error) *rest.Config {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	return config
}

func apply(t *testing.T, c *controlplane.ControlPlane, all ...runtime.Object) {
	t.Helper()
	if err := c.Apply(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
}

func applyYAML(t *testing.T, c *controlplane.ControlPlane, text []byte) {
	t.Helper()
	if err := c.ApplyYAML(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// rejected returns the fault in the outcome of a write: with a reason given, it has to be rejected with that.
func rejected(err error, reason string) error {
	switch {
	case reason == "" && err != nil:
		return fmt.Errorf("rejected (%w), want it allowed", err)
	case reason != "" && err == nil:
		return fmt.Errorf("allowed, want it rejected with %q", reason)
	case reason != "" && !strings.Contains(err.Error(), reason):
		return fmt.Errorf("rejected with %.400q, want %q in it", err.Error(), reason)
	}
	return nil
}
