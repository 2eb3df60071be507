//go:build traffic && linux

package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/nodeenv"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A zoneNode is the node of a member in one zone. One pod of the service runs on it.
type zoneNode struct {
	*netns.Node
	member     *testclusterset.Member
	zone, name string
	index      int
	pod        []netip.Addr
}

// near is the service of TestZones.
var near = service{Name: "near", Ports: map[string]int32{"http": 80}, Pods: 1}

// TestZones has two clusters with a node in each of the zones a and b, and a pod on each node. Which pods clients on a
// node reach follows from the traffic distribution of the service, and from which pods are ready
// (docs/spec/controller.md 5.6).
func TestZones(t *testing.T) {
	nodes := startZones(t)
	for _, n := range nodes {
		must(t, n.Serve(int(podPort(80))))
		n.setReady(t, true)
	}
	east, west := nodes[0].member, nodes[2].member
	distribute := func(distribution string) {
		for _, m := range []*testclusterset.Member{east, west} {
			object := near.Object()
			if distribution != "" {
				object.Spec.TrafficDistribution = &distribution
			}
			must(t, m.Apply(t.Context(), object))
		}
	}
	// reached waits until clients on each node reach the pods of these nodes.
	reached := func(what string, want map[string]string) {
		t.Helper()
		for _, n := range nodes {
			n.reaches(t, what, nodes, strings.Fields(want[n.String()]))
		}
	}
	const everywhere = "east/a east/b west/a west/b"
	all := map[string]string{"east/a": everywhere, "east/b": everywhere, "west/a": everywhere, "west/b": everywhere}
	own := map[string]string{"east/a": "east/a west/a", "east/b": "east/b west/b", "west/a": "east/a west/a",
		"west/b": "east/b west/b"}

	distribute("")
	for _, m := range []*testclusterset.Member{east, west} {
		m.Put(t, testclusterset.Export(namespace, near.Name))
	}
	reached("no distribution", all)
	for _, distribution := range []string{"PreferClose", "", "PreferSameZone", "", "PreferSameNode"} {
		distribute(distribution)
		if distribution == "" {
			reached("no distribution again", all)
		} else {
			reached(distribution, own) // of the other cluster's endpoints the node is not known
		}
	}

	distribute("PreferSameZone")
	nodes[0].setReady(t, false)
	reached("east/a is not ready", map[string]string{"east/a": "west/a", "east/b": "east/b west/b", "west/a": "west/a",
		"west/b": "east/b west/b"})
	nodes[2].setReady(t, false)
	const left = "east/b west/b"
	reached("zone a is empty", map[string]string{"east/a": left, "east/b": left, "west/a": left, "west/b": left})
	nodes[0].setReady(t, true)
	nodes[2].setReady(t, true)
	reached("zone a is back", own)

	distribute("PreferSameNode")
	itself := map[string]string{"east/a": "east/a", "east/b": "east/b", "west/a": "west/a", "west/b": "west/b"}
	for _, m := range []*testclusterset.Member{east, west} {
		prefer(t, m, "local")
	}
	reached("the other cluster is not selected, PreferSameNode", itself)
	for _, m := range []*testclusterset.Member{east, west} {
		prefer(t, m, "none")
	}
	reached("all clusters again, PreferSameNode", own)
	west.Drop(t, testclusterset.Export(namespace, near.Name))
	reached("one exporter, PreferSameNode", map[string]string{"east/a": "east/a", "east/b": "east/b", "west/a": "east/a",
		"west/b": "east/b"})
	nodes[1].setReady(t, false)
	reached("its zone b is empty", map[string]string{"east/a": "east/a", "east/b": "east/a", "west/a": "east/a",
		"west/b": "east/a"})
}

// startZones returns the nodes of east and then of west. All of it ends with the test.
func startZones(t *testing.T) []*zoneNode {
	t.Helper()
	proxy, err := nodeenv.Proxy(t.Context(), *kubeProxy)
	must(t, err)
	network := netns.NewT(t)
	var nodes []*zoneNode
	for _, of := range testclusterset.StartT(t, "east", "west").Members {
		must(t, of.StartControllers(t.Context(), "endpointslice-controller"))
		of.Put(t, testclusterset.Namespace(namespace))
		for i, zone := range []string{"a", "b"} {
			n := &zoneNode{member: of, zone: zone, name: "node-" + zone, index: i}
			n.start(t, network, proxy)
			nodes = append(nodes, n)
		}
		of.Run(t, func(c *controller.Config) { c.Renew, c.TTL = renew, leaseTTL })
	}
	return nodes
}

// start joins the node to the network, with its half of the pod networks of its cluster, and starts kube-proxy.
func (n *zoneNode) start(t *testing.T, network *netns.Network, proxy netns.Proxy) {
	t.Helper()
	var pods []netip.Prefix
	for _, cidr := range n.member.PodCIDRs() {
		pods = append(pods, half(netip.MustParsePrefix(cidr), n.index))
	}
	for _, p := range pods {
		n.pod = append(n.pod, nodeenv.Nth(p, 1))
	}
	var err error
	n.Node, err = nodeenv.StartNode(t.Context(), network, n.member, nodeenv.NodeConfig{
		Title: n.String(), Name: n.name, Labels: map[string]any{corev1.LabelTopologyZone: n.zone}, Pods: pods, Proxy: proxy,
	})
	must(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		rules, err := n.Ruleset(context.WithoutCancel(t.Context()))
		t.Logf("rules in %s (%v):\n%s", n, err, rules)
	})
}

// String is "east/a".
func (n *zoneNode) String() string { return n.member.ID + "/" + n.zone }

// half returns the first or second half of a network.
func half(p netip.Prefix, index int) netip.Prefix {
	b := p.Addr().AsSlice()
	if index == 1 {
		b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits()+1)
}

// setReady writes the pod of the node.
func (n *zoneNode) setReady(t *testing.T, ready bool) {
	t.Helper()
	pod := near.Pod(n.index, n.pod)
	pod.Spec.NodeName = n.name
	if !ready {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	must(t, n.member.Apply(t.Context(), pod))
}

// reaches waits until clients on the node reach, by the import's addresses of both families, the pods of the nodes with
// these names and no others.
func (n *zoneNode) reaches(t *testing.T, what string, nodes []*zoneNode, want []string) {
	t.Helper()
	until.OK(t, fmt.Sprintf("%s: from %s", what, n), func(context.Context) error {
		imp, err := n.member.Import(t.Context(), namespace, near.Name)
		if err != nil {
			return err
		}
		if len(imp.Spec.IPs) != len(families) {
			return fmt.Errorf("addresses of the import: %v, want both families", imp.Spec.IPs)
		}
		var all []error
		for _, ip := range imp.Spec.IPs {
			got, err := n.connect(t.Context(), netip.AddrPortFrom(netip.MustParseAddr(ip), 80), nodes, 30*len(want))
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("by %s: reached %s, want %s", ip, got, want)
			}
			all = append(all, err)
		}
		return errors.Join(all...)
	})
}

// connect connects that many times and returns the nodes whose pods accepted, sorted.
func (n *zoneNode) connect(ctx context.Context, to netip.AddrPort, nodes []*zoneNode, times int) ([]string, error) {
	reached := map[string]bool{}
	for range times {
		r, err := n.Connect(ctx, to)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(nodes, func(o *zoneNode) bool { return slices.Contains(o.pod, r.Pod.Addr()) })
		if at < 0 || r.Pod.Port() != uint16(podPort(80)) {
			return nil, fmt.Errorf("reached %s, which is no pod", r.Pod)
		}
		reached[nodes[at].String()] = true
	}
	return slices.Sorted(maps.Keys(reached)), nil
}
