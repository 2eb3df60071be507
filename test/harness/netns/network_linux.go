package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"testing"
)

// A Network joins nodes: each reaches the nodes and pods of all. Its methods may be called from one goroutine at a
// time.
type Network struct {
	bridge *namespace
	nodes  []*Node
	cables int // how many were ever there: the kernel takes its time to remove one
}

// NewT is [New] for a test, which ends if it fails. The network is closed when the test ends.
func NewT(t testing.TB) *Network {
	t.Helper()
	n, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// New makes a network without nodes. The caller has to close it.
func New(ctx context.Context) (*Network, error) {
	bridge, err := newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	// Without snooping the bridge floods, as the neighbour discovery of IPv6 needs before anybody has listened.
	if err := bridge.ip(ctx, "link add bridge type bridge mcast_snooping 0", "link set bridge up"); err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), bridge.close())
	}
	return &Network{bridge: bridge}, nil
}

// Close ends what was started in the nodes, and the network. Processes that others started there have to be gone by
// then. The error reports a kube-proxy that had ended by itself.
func (n *Network) Close() error {
	var all []error
	for _, node := range n.nodes {
		all = append(all, node.close())
	}
	return errors.Join(append(all, n.bridge.close())...)
}

// maxNodes is how many addresses there are for them.
const maxNodes = 254

// nodeAddresses returns the IPv4 and the IPv6 address of the node with a number from 1 to maxNodes.
func nodeAddresses(number int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{172, 31, 0, byte(number)}),
		netip.MustParseAddr(fmt.Sprintf("fd00:172:31::%x", number)),
	}
}

// Join adds the node of a cluster whose pods have their addresses in these networks, which no other node may have. The
// cluster's name is what its pods say about themselves.
func (n *Network) Join(ctx context.Context, cluster string, pods ...netip.Prefix) (*Node, error) {
	if n.cables == maxNodes {
		return nil, fmt.Errorf("node %s: want at most %d nodes", cluster, maxNodes)
	}
	if other := n.overlapping(pods); other != nil {
		return nil, fmt.Errorf("node %s: pods in %v: want none of those of node %s, %v", cluster, pods, other.Cluster,
			other.Pods)
	}
	ns, err := newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	n.cables++
	node := &Node{
		Cluster: cluster, Addresses: nodeAddresses(n.cables), Pods: pods, ns: ns,
		open: map[io.Closer]struct{}{}, silent: map[netip.Addr]bool{},
	}
	if err := n.connect(ctx, node); err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", cluster, err), node.close())
	}
	n.nodes = append(n.nodes, node)
	return node, nil
}

// overlapping returns a node that has pods in one of the networks, or nil.
func (n *Network) overlapping(pods []netip.Prefix) *Node {
	for _, node := range n.nodes {
		for _, p := range node.Pods {
			if slices.ContainsFunc(pods, p.Overlaps) {
				return node
			}
		}
	}
	return nil
}

// connect puts a cable between the node and the bridge, and routes to everywhere.
func (n *Network) connect(ctx context.Context, node *Node) error {
	cable := fmt.Sprintf("node%d", n.cables)
	err := n.bridge.ip(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", cable, node.ns.path()),
		fmt.Sprintf("link set %s master bridge up", cable))
	if err != nil {
		return err
	}
	commands := []string{
		"link set eth0 up",
		fmt.Sprintf("address add %s/24 dev eth0", node.Addresses[0]),
		// "nodad": no other host has the address, so it is usable at once.
		fmt.Sprintf("address add %s/64 dev eth0 nodad", node.Addresses[1]),
	}
	for _, p := range node.Pods {
		commands = append(commands, fmt.Sprintf("route add local %s dev lo", p))
	}
	// A packet to a cluster IP needs a route before kube-proxy gives it another destination.
	commands = append(commands, "route add 0.0.0.0/0 dev eth0", "route add ::/0 dev eth0")
	for _, other := range n.nodes {
		commands = append(commands, other.routes()...)
	}
	if err := node.ns.ip(ctx, commands...); err != nil {
		return err
	}
	for _, other := range n.nodes {
		if err := other.ns.ip(ctx, node.routes()...); err != nil {
			return err
		}
	}
	return nil
}
