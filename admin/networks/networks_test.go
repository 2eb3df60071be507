package networks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func prefixes(text string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range strings.Fields(text) {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func text(all []netip.Prefix) string { return strings.Trim(fmt.Sprint(all), "[]") }

func TestAggregate(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{name: "none"},
		{name: "two halves", in: "10.0.1.0/24 10.0.0.0/24", want: "10.0.0.0/23"},
		{name: "neighbours of two pairs", in: "10.0.1.0/24 10.0.2.0/24", want: "10.0.1.0/24 10.0.2.0/24"},
		{name: "all the way up", in: "10.0.0.0/24 10.0.1.0/24 10.0.2.0/24 10.0.3.0/24", want: "10.0.0.0/22"},
		{name: "one in the other", in: "10.0.3.0/24 10.0.0.0/16 10.0.0.0/16", want: "10.0.0.0/16"},
		{name: "families apart", in: "fd00::/64 10.0.0.0/24 fd00:0:0:1::/64", want: "10.0.0.0/24 fd00::/63"},
		{name: "of different size", in: "10.0.0.0/24 10.0.1.0/25", want: "10.0.0.0/24 10.0.1.0/25"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(Aggregate(prefixes(tt.in))); got != tt.want {
				t.Errorf("Aggregate(%s) = %s, want %s", tt.in, got, tt.want)
			}
		})
	}
}

// inCluster answers queries with the objects of a manifest: one document for each, without metadata.namespace.
func inCluster(t *testing.T, manifest string) func(Query) ([]*unstructured.Unstructured, error) {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, document := range strings.Split(manifest, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.Object != nil {
			all = append(all, o)
		}
	}
	return func(q Query) (found []*unstructured.Unstructured, err error) {
		for _, o := range all {
			group, kind := o.GroupVersionKind().Group, strings.ToLower(o.GetKind())+"s"
			if group != q.Resource.Group || o.GroupVersionKind().Version != q.Resource.Version || kind != q.Resource.Resource {
				continue
			}
			label, value, _ := strings.Cut(q.Labels, "=")
			if (q.Name == "" || q.Name == o.GetName()) && o.GetLabels()[label] == value {
				found = append(found, o)
			}
		}
		return found, nil
	}
}

// The objects of the sources, each with networks of its own.
const (
	pool     = "{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.1.0.0/16}}\n---\n"
	poolV3   = "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: b}, spec: {cidr: \"fd00:1::/64\", allowedUses: [Workload, Tunnel]}}\n---\n"
	unused   = "{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: c}, spec: {cidr: 10.91.0.0/16, disabled: true}}\n---\n"
	tunnels  = "{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: d}, spec: {cidr: 10.92.0.0/16, allowedUses: [Tunnel]}}\n---\n"
	cilium   = "{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config}, data: {ipam: cluster-pool, cluster-pool-ipv4-cidr: 10.2.0.0/16 10.3.0.0/16, cluster-pool-ipv6-cidr: \"fd00:2::/104\"}}\n---\n"
	clouds   = "{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config}, data: {ipam: eni, cluster-pool-ipv4-cidr: 10.93.0.0/16}}\n---\n"
	multi    = "{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config}, data: {ipam: multi-pool}}\n---\n"
	ciliumC  = "{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: c}, spec: {ipam: {pools: {allocated: [{pool: default, cidrs: [10.11.0.0/24]}]}}}}\n---\n"
	ciliumA  = "{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: a}, spec: {ipam: {podCIDRs: [10.4.0.0/24]}}}\n---\n"
	ciliumB  = "{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: b}, spec: {ipam: {podCIDRs: [10.4.1.0/24]}}}\n---\n"
	poolA    = "{apiVersion: cilium.io/v2alpha1, kind: CiliumPodIPPool, metadata: {name: default}, spec: {ipv4: {cidrs: [10.11.0.0/16], maskSize: 24}, ipv6: {cidrs: [\"fd00:11::/104\"]}}}\n---\n"
	poolB    = "{apiVersion: cilium.io/v2alpha1, kind: CiliumPodIPPool, metadata: {name: green}, spec: {ipv4: {cidrs: [10.12.0.0/16, 10.13.0.0/16]}}}\n---\n"
	shift    = "{apiVersion: config.openshift.io/v1, kind: Network, metadata: {name: cluster}, status: {clusterNetwork: [{cidr: 10.128.0.0/14, hostPrefix: 23}], serviceNetwork: [172.30.0.0/16]}}\n---\n"
	ovn      = "{apiVersion: v1, kind: Node, metadata: {name: a, annotations: {k8s.ovn.org/node-subnets: '{\"default\":[\"10.5.0.0/24\",\"fd00:5::/64\"],\"blue\":\"10.94.0.0/24\"}'}}, spec: {podCIDRs: [10.95.0.0/24]}}\n---\n"
	ovnOne   = "{apiVersion: v1, kind: Node, metadata: {name: b, annotations: {k8s.ovn.org/node-subnets: '{\"default\":\"10.5.1.0/24\"}'}}}\n---\n"
	node     = "{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {podCIDRs: [10.8.0.0/24, \"fd00:8::/64\"]}}\n---\n"
	manager  = "{apiVersion: v1, kind: Pod, metadata: {name: m, labels: {component: kube-controller-manager}}, spec: {containers: [{command: [kube-controller-manager, --allocate-node-cidrs=true, \"--cluster-cidr=10.7.0.0/16,fd00:7::/48\"]}]}}\n---\n"
	idle     = "{apiVersion: v1, kind: Pod, metadata: {name: m, labels: {component: kube-controller-manager}}, spec: {containers: [{command: [kube-controller-manager, --cluster-cidr=10.96.0.0/16]}]}}\n---\n"
	server   = "{apiVersion: v1, kind: Pod, metadata: {name: s, labels: {component: kube-apiserver}}, spec: {containers: [{args: [--service-cluster-ip-range=10.99.0.0/16]}]}}\n---\n"
	services = "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: kubernetes}, spec: {cidrs: [10.97.0.0/16]}}\n---\n"
	kubeadmC = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kubeadm-config}\ndata:\n  ClusterConfiguration: |\n    networking: {podSubnet: \"10.6.0.7/16,fd00:6::/56\", serviceSubnet: 10.98.0.0/16}\n---\n"
)

// TestFind: of each family the first source counts. docs/spec/install.md 3.
func TestFind(t *testing.T) {
	for _, tt := range []struct{ name, objects, pods, services, unread string }{
		{name: "nothing"},
		{name: "Calico", objects: unused + tunnels + pool + node,
			pods: "10.1.0.0/16 IPPool a, fd00:8::/64 spec.podCIDRs of Nodes+"},
		{name: "Calico, both APIs", objects: pool + poolV3 + kubeadmC, pods: "10.1.0.0/16 IPPool a, fd00:1::/64 IPPool b",
			services: "10.98.0.0/16 ConfigMap kubeadm-config"},
		{name: "Cilium, its own pools", objects: cilium + ciliumA + node,
			pods: "10.2.0.0/16 ConfigMap cilium-config, 10.3.0.0/16 ConfigMap cilium-config, fd00:2::/104 ConfigMap cilium-config"},
		{name: "Cilium, pools of a cloud", objects: clouds + ciliumA + ciliumB + node,
			pods: "10.4.0.0/23 CiliumNodes+, fd00:8::/64 spec.podCIDRs of Nodes+"},
		{name: "Cilium, several pools", objects: multi + poolA + poolB + ciliumC + node,
			pods: "10.11.0.0/16 CiliumPodIPPool default, 10.12.0.0/16 CiliumPodIPPool green, " +
				"10.13.0.0/16 CiliumPodIPPool green, fd00:11::/104 CiliumPodIPPool default"},
		{name: "OpenShift", objects: shift + ovn + services,
			pods:     "10.128.0.0/14 Network cluster, fd00:5::/64 annotation k8s.ovn.org/node-subnets of Nodes+",
			services: "10.97.0.0/16 ServiceCIDR kubernetes"},
		{name: "OpenShift, before ServiceCIDRs", objects: shift, pods: "10.128.0.0/14 Network cluster",
			services: "172.30.0.0/16 Network cluster"},
		{name: "OVN-Kubernetes", objects: ovn + ovnOne + kubeadmC,
			pods:     "10.5.0.0/23 annotation k8s.ovn.org/node-subnets of Nodes+, fd00:5::/64 annotation k8s.ovn.org/node-subnets of Nodes+",
			services: "10.98.0.0/16 ConfigMap kubeadm-config"},
		{name: "kubeadm", objects: kubeadmC + manager + node + server,
			pods:     "10.6.0.0/16 ConfigMap kubeadm-config, fd00:6::/56 ConfigMap kubeadm-config",
			services: "10.98.0.0/16 ConfigMap kubeadm-config"},
		{name: "flags", objects: manager + node + server, pods: "10.7.0.0/16 Pod m, fd00:7::/48 Pod m",
			services: "10.99.0.0/16 Pod s"},
		{name: "flags that nothing follows", objects: idle + node,
			pods: "10.8.0.0/24 spec.podCIDRs of Nodes+, fd00:8::/64 spec.podCIDRs of Nodes+"},
		{name: "what is no network", objects: strings.Replace(pool, "10.1.0.0/16", "ten", 1) + strings.Replace(ovnOne,
			"{\"default\"", "[\"default\"", 1) + node,
			pods:   "10.8.0.0/24 spec.podCIDRs of Nodes+, fd00:8::/64 spec.podCIDRs of Nodes+",
			unread: "IPPool a: CIDR \"ten\": want a network such as"},
		{name: "what is no YAML", objects: strings.Replace(kubeadmC, "networking: {", "networking: [", 1),
			unread: "ConfigMap kubeadm-config: ClusterConfiguration is not YAML"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := Find(inCluster(t, tt.objects))
			if got := describe(found.Pods); got != tt.pods {
				t.Errorf("Pods: %s\nwant  %s", got, tt.pods)
			}
			if got := describe(found.Services); got != tt.services {
				t.Errorf("Services: %s\nwant      %s", got, tt.services)
			}
			if once := slices.Compact(slices.Sorted(slices.Values(found.Unread))); len(once) != len(found.Unread) {
				t.Errorf("unread: %q, want each once", found.Unread)
			}
			if got := strings.Join(found.Unread, "\n"); !strings.HasPrefix(got, tt.unread) || (got == "") != (tt.unread == "") {
				t.Errorf("unread: %q, want %q", got, tt.unread)
			}
		})
	}
}

// describe marks networks of single Nodes with a plus sign.
func describe(all []Network) string {
	var texts []string
	for _, n := range all {
		text := n.Prefix.String() + " " + n.Source
		if n.PerNode {
			text += "+"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// A source that cannot be read is left out and named, once; the others are read.
func TestFindWithoutRights(t *testing.T) {
	read := inCluster(t, node+server)
	found := Find(func(q Query) ([]*unstructured.Unstructured, error) {
		if q.Resource.Resource == "ippools" || q.Name == "kubeadm-config" {
			return nil, errors.New("forbidden")
		}
		return read(q)
	})
	if got, want := describe(
		found.Pods), "10.8.0.0/24 spec.podCIDRs of Nodes+, fd00:8::/64 spec.podCIDRs of Nodes+"; got != want {
		t.Errorf("Pods: %s, want %s", got, want)
	}
	const want = "ippools.crd.projectcalico.org: forbidden\nippools.projectcalico.org: forbidden\nconfigmaps kube-system/kubeadm-config: forbidden"
	if got := strings.Join(found.Unread, "\n"); got != want {
		t.Errorf("unread:\n%s\nwant\n%s", got, want)
	}
}

// TestOutside: an object counts once, and of each family the first address is the example.
func TestOutside(t *testing.T) {
	pod := func(name, spec, phase, addresses string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		manifest := fmt.Sprintf("{metadata: {name: %s, namespace: shop}, spec: {%s}, status: {phase: %s, podIPs: [%s]}}",
			name, spec, phase, addresses)
		if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
			t.Fatal(err)
		}
		return o
	}
	declared := prefixes("10.1.0.0/16 10.96.0.0/16")
	var o Outside
	for _, p := range []*unstructured.Unstructured{
		pod("inside", "", "Running", "{ip: 10.1.0.1}"),
		pod("host", "hostNetwork: true", "Running", "{ip: 192.0.2.1}"),
		pod("done", "", "Succeeded", "{ip: 10.2.0.1}"),
		pod("new", "", "Running", ""),
		pod("both", "", "Running", "{ip: 10.1.0.2}, {ip: \"fd00::2\"}"),
		pod("neither", "", "Running", "{ip: 10.2.0.3}, {ip: \"fd00::3\"}"),
	} {
		o.AddPod(p, declared)
	}
	if got, want := fmt.Sprint(o), "{2 [{fd00::2 Pod shop/both} {10.2.0.3 Pod shop/neither}]}"; got != want {
		t.Errorf("outside: %s, want %s", got, want)
	}
}
