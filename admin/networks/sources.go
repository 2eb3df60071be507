package networks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// A Query selects the objects that a source reads: by name, or without a name by the labels.
type Query struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Labels          string
}

// String is how kubectl names the objects: "ippools.crd.projectcalico.org", "configmaps kube-system/cilium-config".
func (q Query) String() string {
	text := q.Resource.GroupResource().String()
	if q.Name != "" {
		text += " " + strings.TrimPrefix(q.Namespace+"/"+q.Name, "/")
	}
	return text
}

// A source is a kind of object that names networks.
type source struct {
	query   Query
	perNode string // what the networks are of, where each object has that of one Node
	cidrs   func(*unstructured.Unstructured) ([]string, error)
}

// Objects that more than one source reads.
var (
	nodes     = Query{Resource: resource("", "v1", "nodes")}
	kubeadm   = configMap("kubeadm-config")
	openShift = Query{Resource: resource("config.openshift.io", "v1", "networks"), Name: "cluster"}
)

// podSources begins with the allocators of Pod addresses, wherever they are installed. The values of kubeadm and the
// flags are what kube-controller-manager gives to Nodes, which a CNI plugin may use or not. The whole network comes
// before the parts that Nodes have now.
var podSources = []source{
	{query: Query{Resource: resource("crd.projectcalico.org", "v1", "ippools")}, cidrs: calicoPool},
	{query: Query{Resource: resource("projectcalico.org", "v3", "ippools")},
		cidrs: calicoPool},
	{query: configMap("cilium-config"), cidrs: ciliumPool},
	{query: Query{Resource: resource("cilium.io", "v2alpha1", "ciliumpodippools")}, cidrs: ciliumPodPool},
	{query: Query{Resource: resource("cilium.io", "v2", "ciliumnodes")},
		perNode: "CiliumNodes", cidrs: stringsAt("spec", "ipam", "podCIDRs")},
	{query: openShift, cidrs: openShiftPods},
	{query: nodes, perNode: "annotation k8s.ovn.org/node-subnets of Nodes", cidrs: ovnSubnets},
	{query: kubeadm, cidrs: kubeadmNetwork("podSubnet")},
	{query: controlPlane("kube-controller-manager"), cidrs: nodeAllocator},
	{query: nodes, perNode: "spec.podCIDRs of Nodes", cidrs: stringsAt("spec", "podCIDRs")},
}

// serviceSources begins with what the API server allocates cluster IPs from, since Kubernetes 1.33.
var serviceSources = []source{
	{query: Query{Resource: resource("networking.k8s.io", "v1", "servicecidrs")}, cidrs: stringsAt("spec", "cidrs")},
	{query: openShift, cidrs: stringsAt("status", "serviceNetwork")},
	{query: kubeadm, cidrs: kubeadmNetwork("serviceSubnet")},
	{query: controlPlane("kube-apiserver"), cidrs: flagValues("service-cluster-ip-range")},
}

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

func configMap(name string) Query {
	return Query{Resource: resource("", "v1", "configmaps"), Namespace: "kube-system",
		Name: name}
}

// controlPlane are the Pods of a component that runs as a static Pod, with the label that kubeadm sets.
func controlPlane(component string) Query {
	return Query{Resource: resource("", "v1", "pods"), Namespace: "kube-system",
		Labels: "component=" + component}
}

// stringsAt reads a list of networks.
func stringsAt(path ...string) func(*unstructured.Unstructured) ([]string, error) {
	return func(o *unstructured.Unstructured) ([]string, error) {
		all, _, err := unstructured.NestedStringSlice(o.Object, path...)
		return all, err
	}
}

// calicoPool leaves out a pool that no Pod gets an address from: one that is disabled often describes networks of
// others, and one may be for tunnels or load balancers alone.
func calicoPool(o *unstructured.Unstructured) ([]string, error) {
	disabled, _, _ := unstructured.NestedBool(o.Object, "spec", "disabled")
	uses, limited, _ := unstructured.NestedStringSlice(o.Object, "spec", "allowedUses")
	if disabled || limited && len(uses) > 0 && !slices.Contains(uses, "Workload") {
		return nil, nil
	}
	cidr, _, err := unstructured.NestedString(o.Object, "spec", "cidr")
	return []string{cidr}, err
}

// ciliumPool reads the pools that Cilium's operator gives to Nodes. In other modes, such as those of clouds, they mean
// nothing.
func ciliumPool(o *unstructured.Unstructured) ([]string, error) {
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if mode := data["ipam"]; mode != "" && mode != "cluster-pool" && mode != "cluster-pool-v2beta" {
		return nil, err
	}
	return splitList(data["cluster-pool-ipv4-cidr"] + " " + data["cluster-pool-ipv6-cidr"]), err
}

// ciliumPodPool reads a pool of the IPAM mode multi-pool, in which neither the configuration nor spec.ipam.podCIDRs of
// CiliumNodes has networks.
func ciliumPodPool(o *unstructured.Unstructured) ([]string, error) {
	v4, _, err := unstructured.NestedStringSlice(o.Object, "spec", "ipv4", "cidrs")
	v6, _, err6 := unstructured.NestedStringSlice(o.Object, "spec", "ipv6", "cidrs")
	return append(v4, v6...), errors.Join(err, err6)
}

// ovnSubnets reads the default network of a Node: one network, or a list with one of each family. Other networks are
// secondary ones.
func ovnSubnets(o *unstructured.Unstructured) ([]string, error) {
	text, ok := o.GetAnnotations()["k8s.ovn.org/node-subnets"]
	if !ok {
		return nil, nil
	}
	var subnets struct {
		Default json.RawMessage `json:"default"`
	}
	if err := json.Unmarshal([]byte(text), &subnets); err != nil {
		return nil, fmt.Errorf("annotation k8s.ovn.org/node-subnets %.80q: want JSON with the key default", text)
	}
	var one string
	var several []string
	if json.Unmarshal(subnets.Default, &one) == nil {
		return []string{one}, nil
	}
	if subnets.Default != nil && json.Unmarshal(subnets.Default, &several) != nil {
		return nil, fmt.Errorf(
			"annotation k8s.ovn.org/node-subnets %.80q: want a network or a list of networks under default", text)
	}
	return several, nil
}

func openShiftPods(o *unstructured.Unstructured) ([]string, error) {
	entries, _, err := unstructured.NestedSlice(o.Object, "status", "clusterNetwork")
	var all []string
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		cidr, _, _ := unstructured.NestedString(entry, "cidr")
		all = append(all, cidr)
	}
	return all, err
}

func kubeadmNetwork(field string) func(*unstructured.Unstructured) ([]string, error) {
	return func(o *unstructured.Unstructured) ([]string, error) {
		text, _, err := unstructured.NestedString(o.Object, "data", "ClusterConfiguration")
		if err != nil {
			return nil, err
		}
		var configuration struct {
			Networking map[string]any `json:"networking"`
		}
		if err := yaml.Unmarshal([]byte(text), &configuration); err != nil {
			return nil, fmt.Errorf("ClusterConfiguration is not YAML: %w", err)
		}
		cidrs, _ := configuration.Networking[field].(string)
		return splitList(cidrs), nil
	}
}

// nodeAllocator reads the network that kube-controller-manager divides among Nodes, if it does so.
func nodeAllocator(o *unstructured.Unstructured) ([]string, error) {
	if allocates, err := flagValues("allocate-node-cidrs")(o); err != nil || !slices.Equal(allocates, []string{"true"}) {
		return nil, err
	}
	return flagValues("cluster-cidr")(o)
}

// flagValues reads a flag of the containers of a Pod, in its form --name=value.
func flagValues(name string) func(*unstructured.Unstructured) ([]string, error) {
	return func(o *unstructured.Unstructured) ([]string, error) {
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "containers")
		for _, c := range containers {
			container, _ := c.(map[string]any)
			command, _, _ := unstructured.NestedStringSlice(container, "command")
			args, _, _ := unstructured.NestedStringSlice(container, "args")
			for _, arg := range append(command, args...) {
				if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
					return splitList(value), err
				}
			}
		}
		return nil, err
	}
}

// splitList splits a list at commas and blanks.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}
