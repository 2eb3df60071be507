package nodeenv

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// NodeName is the name of the node of a [Cluster], and Namespace that of the namespace of its Services.
const (
	NodeName  = "node"
	Namespace = "shop"
)

// Proxy builds kube-proxy, if need be: that of the control plane if version is empty, else one that
// [controlplane.KubeProxy] knows. The oldest one has no nftables mode.
func Proxy(ctx context.Context, version string) (p netns.Proxy, err error) {
	if version == "" {
		further, err := controlplane.FurtherBinaries(ctx, os.Stderr)
		return netns.Proxy{Bin: further.Proxy}, err
	}
	if version == "oldest" {
		p.Mode = "iptables"
	}
	p.Bin, err = controlplane.KubeProxy(ctx, version, os.Stderr)
	return p, err
}

// A Cluster is a member with one node, and with the controller that makes EndpointSlices. Its methods may be called
// from one goroutine at a time.
type Cluster struct {
	*testclusterset.Member
	Node  *netns.Node
	Proxy netns.Proxy

	pods   int          // how many there were
	served map[int]bool // ports at which they listen
}

// Start makes a cluster of a member. What runs ends with the network and with the member's control plane.
func Start(ctx context.Context, network *netns.Network, m *testclusterset.Member, p netns.Proxy) (*Cluster, error) {
	c := &Cluster{Member: m, Proxy: p, served: map[int]bool{}}
	if err := m.StartControllers(ctx, "endpointslice-controller"); err != nil {
		return nil, err
	}
	if err := m.Apply(ctx, testclusterset.Namespace(Namespace)); err != nil {
		return nil, err
	}
	var pods []netip.Prefix
	for _, cidr := range m.PodCIDRs() {
		pods = append(pods, netip.MustParsePrefix(cidr))
	}
	var err error
	c.Node, err = StartNode(ctx, network, m, NodeConfig{Title: m.ID, Name: NodeName, Pods: pods, Proxy: p})
	return c, err
}

// A NodeConfig describes a node of a member.
type NodeConfig struct {
	Title  string // what its Pods say that accept connections
	Name   string // of the Node object
	Labels map[string]any
	Pods   []netip.Prefix // where the addresses of its Pods lie
	Proxy  netns.Proxy
}

// StartNode joins a node to the network, makes the member's API server reachable there, and starts kube-proxy.
func StartNode(ctx context.Context, network *netns.Network, m *testclusterset.Member, c NodeConfig) (*netns.Node,
	error) {
	node, err := network.Join(ctx, c.Title, c.Pods...)
	if err != nil {
		return nil, err
	}
	if err := node.Relay(strings.TrimPrefix(m.Config().Host, "https://")); err != nil {
		return nil, err
	}
	if err := createNode(ctx, m, node, c); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Title, err)
	}
	return node, node.StartProxy(ctx, c.Proxy, m.Kubeconfig(), c.Name)
}

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// createNode creates what kube-proxy and the endpointslice controller read of the node. It is not applied: an apply
// takes only one address of a type.
func createNode(ctx context.Context, m *testclusterset.Member, node *netns.Node, c NodeConfig) error {
	var addresses []any
	for _, a := range node.Addresses {
		addresses = append(addresses, map[string]any{"type": string(corev1.NodeInternalIP), "address": a.String()})
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": c.Name, "labels": c.Labels},
		"status": map[string]any{"addresses": addresses},
	}}
	_, err := m.Dynamic().Resource(nodes).Create(ctx, object, metav1.CreateOptions{})
	return err
}
