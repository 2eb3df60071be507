package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// crdOf is a CRD of any content.
func crdOf(group, version, plural, kind string) []byte {
	return fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: Cluster
  names: {plural: %[3]s, kind: %[4]s}
  versions:
  - name: %[2]s
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, version, plural, kind)
}

func apply(t *testing.T, c *controlplane.ControlPlane, manifest string) {
	t.Helper()
	if err := c.ApplyYAML(t.Context(), []byte(manifest)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, c *controlplane.ControlPlane, manifest string) {
	t.Helper()
	if err := c.DeleteYAML(t.Context(), []byte(manifest)); err != nil {
		t.Fatal(err)
	}
}

// pod is one that runs, with these addresses. It names no Node: it would then stay until the kubelet there ends it.
func pod(name string, addresses ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec: {containers: [{name: a, image: a}]}
status: {phase: Running, podIP: "%s", podIPs: [{ip: "%s"}]}
`, name, addresses[0], strings.Join(addresses, `"}, {ip: "`))
}

func nodeWith(name, cidr string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %[1]s}
spec: {podCIDR: %[2]s, podCIDRs: [%[2]s]}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
`, name, cidr)
}

// undeclaredPods: Nodes name the IPv4 network of Pods, which have IPv6 addresses, too. join reports it before its first
// write, and status until that network is declared. docs/spec/install.md 3.
func undeclaredPods(t *testing.T, onBroker, east *controlplane.ControlPlane, o status.Options) {
	apply(t, east, nodeWith("a", "10.9.0.0/24")+"---"+pod("db-0", "10.9.0.5", "fd00:9::5"))
	problems := func(when string, want ...string) {
		t.Helper()
		if state := statusOf(t, nil, east.Config(), o); !slices.Equal(state.Problems, want) {
			t.Errorf("%s: problems %q, want %q", when, state.Problems, want)
		}
	}
	const has = "1 running Pod has an address in none of the networks that this cluster declared, such as "
	problems("Pods of other networks",
		has+"10.9.0.5 of Pod default/db-0 and fd00:9::5 of Pod default/db-0: other members do not accept them; "+
			`run "clusterset join --pod-cidr=10.244.0.0/16 --pod-cidr=NETWORK --pod-cidr=NETWORK", with a NETWORK that contains 10.9.0.5, and one that contains fd00:9::5`)

	join := options("east")
	join.PodCIDRs = nil
	var said []string
	join.Progress = func(line string) { said = append(said, line) }
	join.Report = func(s write.Step) { said = append(said, "step") }
	joined := mustJoin(t, onBroker, east, join)
	const ofPod = "1 running Pod has an address in none of the networks of this cluster, such as fd00:9::5 of Pod default/db-0: other members will not accept them; " +
		`run "clusterset join --pod-cidr=10.9.0.0/24 --pod-cidr=10.244.0.0/16 --pod-cidr=NETWORK", with a NETWORK that contains fd00:9::5`
	wantWarning(t, joined, ofPod)
	wantWarning(t, joined, "pod CIDRs are those of the current nodes")
	first := []string{
		"network of Pods: 10.9.0.0/24 (spec.podCIDRs of Nodes)",
		"network of Pods: 10.244.0.0/16 (declared by an earlier join)",
		"network of Services: 10.101.0.0/16 (ServiceCIDR kubernetes)", ofPod,
		"step",
	}
	if got := said[:min(len(first), len(said))]; !slices.Equal(got, first) {
		t.Errorf("join said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(first, "\n"))
	}
	problems("only IPv4 is found", has+"fd00:9::5 of Pod default/db-0: other members do not accept them; "+
		`run "clusterset join --pod-cidr=10.9.0.0/24 --pod-cidr=10.244.0.0/16 --pod-cidr=NETWORK", with a NETWORK that contains fd00:9::5`)

	join.PodCIDRs = []string{"10.9.0.0/24", "fd00:9::/64"}
	if joined := mustJoin(t, onBroker, east, join); len(joined.Networks) != 3 ||
		joined.Networks[1] != (networks.Declared{Of: "Pods", CIDR: "fd00:9::/64", Source: "--pod-cidr"}) {
		t.Errorf("networks %+v, want the two that were given, and one of Services", joined.Networks)
	}
	problems("both are given")
	apply(t, east, nodeWith("b", "10.10.0.0/24"))
	if got, want := statusOf(t, nil, east.Config(), o).Warnings,
		"network 10.10.0.0/24 (spec.podCIDRs of Nodes) is not declared: "; !strings.Contains(strings.Join(got, "\n"), want) {
		t.Errorf("warnings %q, want %s", got, want)
	}
	apply(t, east, pod("db-1", "10.10.0.7"))
	problems("a new Node", has+`10.10.0.7 of Pod default/db-1: other members do not accept them; run "clusterset join" again, which finds their networks`)
	unreadPods(t, east, o)
	checkIsKept(t, east, o)
	remove(t, east, nodeWith("a", "10.9.0.0/24")+"---"+nodeWith("b", "10.10.0.0/24")+"---"+pod("db-0",
		"10.9.0.5")+"---"+pod("db-1", "10.10.0.7"))
	mustJoin(t, onBroker, east, options("east"))
	problems("all is gone")
}

// checkIsKept: status --watch does not read all Pods each time, except for other networks.
func checkIsKept(t *testing.T, east *controlplane.ControlPlane, o status.Options) {
	o.Slow = &status.SlowChecks{}
	was := statusOf(t, nil, east.Config(), o).Cluster.Outside
	if is := statusOf(t, nil, east.Config(), o).Cluster.Outside; is != was {
		t.Errorf("what is outside of the networks was read again after 0s, want that of before")
	}
}

// unreadPods: without the right to list Pods, status reports the gap.
func unreadPods(t *testing.T, east *controlplane.ControlPlane, o status.Options) {
	apply(t, east, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules:
- {apiGroups: [""], resources: [namespaces, secrets], verbs: [get]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get]}
- {apiGroups: [about.k8s.io], resources: [clusterproperties], verbs: [get]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}
- {apiGroups: [multicluster.x-k8s.io], resources: [serviceexports], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
`)
	state := statusOf(t, nil, asUser(t, east, "viewer"), o)
	const want = `whether Pods have addresses outside of the declared networks is not known: pods is forbidden: User "viewer" cannot list resource "pods"`
	if len(state.Problems) > 0 || len(state.Warnings) != 1 || !strings.HasPrefix(state.Warnings[0], want) {
		t.Errorf("problems %q, warnings %q, want one warning: %s", state.Problems, state.Warnings, want)
	}
}

func asUser(t *testing.T, c *controlplane.ControlPlane, user string) *rest.Config {
	t.Helper()
	kubeconfig, err := c.UserKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// staticPod is one of the control plane, as kubeadm writes it.
func staticPod(component string, flags ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-a, namespace: kube-system, labels: {component: %[1]s}}
spec: {hostNetwork: true, containers: [{name: a, image: a, command: [%[1]s, "%[2]s"]}]}
`, component, strings.Join(flags, `", "`))
}

// findsNetworks: all sources exist. The one that is trusted most counts; then it is deleted.
func findsNetworks(t *testing.T, c *controlplane.ControlPlane) {
	crds := [][]byte{
		crdOf("crd.projectcalico.org", "v1", "ippools", "IPPool"), crdOf("projectcalico.org", "v3", "ippools", "IPPool"),
		crdOf("cilium.io", "v2", "ciliumnodes", "CiliumNode"),
		crdOf("cilium.io", "v2alpha1", "ciliumpodippools", "CiliumPodIPPool"),
		crdOf("config.openshift.io", "v1", "networks", "Network"),
	}
	if err := c.InstallCRDs(t.Context(), crds...); err != nil {
		t.Fatal(err)
	}
	sources := []struct{ pods, manifest string }{
		{"10.1.0.0/16 IPPool a",
			"{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.1.0.0/16}}"},
		{"10.2.0.0/16 IPPool b",
			"{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: b}, spec: {cidr: 10.2.0.0/16}}"},
		{"10.3.0.0/16 ConfigMap cilium-config",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config, namespace: kube-system}, data: {cluster-pool-ipv4-cidr: 10.3.0.0/16}}"},
		{"10.11.0.0/16 CiliumPodIPPool default",
			"{apiVersion: cilium.io/v2alpha1, kind: CiliumPodIPPool, metadata: {name: default}, spec: {ipv4: {cidrs: [10.11.0.0/16], maskSize: 24}}}"},
		{"10.4.0.0/24 CiliumNodes",
			"{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: a}, spec: {ipam: {podCIDRs: [10.4.0.0/24]}}}"},
		{"10.5.0.0/16 Network cluster",
			"{apiVersion: config.openshift.io/v1, kind: Network, metadata: {name: cluster}, status: {clusterNetwork: [{cidr: 10.5.0.0/16}]}}"},
		{"10.6.0.0/24 annotation k8s.ovn.org/node-subnets of Nodes", `{apiVersion: v1, kind: Node, metadata: {name: o, annotations: {k8s.ovn.org/node-subnets: '{"default":["10.6.0.0/24"]}'}}}`},
		{"10.7.0.0/16 ConfigMap kubeadm-config", `{apiVersion: v1, kind: ConfigMap, metadata: {name: kubeadm-config, namespace: kube-system}, data: {ClusterConfiguration: "networking: {podSubnet: 10.7.0.0/16}"}}`},
		{"10.8.0.0/16 Pod kube-controller-manager-a", staticPod("kube-controller-manager", "--allocate-node-cidrs=true",
			"--cluster-cidr=10.8.0.0/16")},
		{"10.9.0.0/24 spec.podCIDRs of Nodes", nodeWith("a", "10.9.0.0/24")},
	}
	for _, s := range sources {
		apply(t, c, s.manifest)
	}
	for _, s := range sources {
		found, err := mustOpen(t, c).FindNetworks(t.Context())
		if err != nil || len(found.Unread) > 0 || len(found.Pods) != 1 ||
			found.Pods[0].Prefix.String()+" "+found.Pods[0].Source != s.pods {
			t.Errorf("found %+v, error %v, want Pods in %s", found, err, s.pods)
		}
		if len(found.Services) != 1 || found.Services[0].Source != "ServiceCIDR kubernetes" {
			t.Errorf("networks of Services %+v, want that of the ServiceCIDR", found.Services)
		}
		remove(t, c, s.manifest)
	}
	if err := c.DeleteCRDs(t.Context(), crds...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mustOpen(t, c).FindNetworks(ctx); err == nil {
		t.Error("no error after an interruption, want one")
	}
}

func mustOpen(t *testing.T, c *controlplane.ControlPlane) *read.Cluster {
	t.Helper()
	opened, err := read.Open(read.RoleMember, c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return opened
}
