//go:build traffic && linux

// Package traffic proves by real packets that clients reach what is exported: each member is a network namespace with
// kube-proxy and our CoreDNS in it, over a real API server with the controller that makes EndpointSlices. It needs root.
package traffic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/test/child"
	"github.com/clusterset-dns/clusterset/test/controlplane"
	"github.com/clusterset-dns/clusterset/test/netns"
	"github.com/clusterset-dns/clusterset/test/server"
)

// patience is how long something may take that takes no time on an idle machine.
const patience = 2 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually ends the test if check does not return nil one day.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A clusterset is members that reach each other's pods.
type clusterset struct {
	east, west *member
}

func (c *clusterset) members() []*member { return []*member{c.east, c.west} }

// A member is a cluster with one node.
type member struct {
	*controlplane.ControlPlane
	id       string
	node     *netns.Node
	resolver *net.Resolver // asks the cluster's DNS server, from the node
	pods     int           // how many there were
	served   map[int]bool  // ports at which they listen
}

const (
	nodeName  = "node"
	namespace = "shop"
	zone      = "clusterset.local"
	dnsServer = "127.0.0.1:53" // in each node
)

// start starts a clusterset with nothing in it but the namespace. It ends with the test.
func start(t *testing.T) *clusterset {
	t.Helper()
	bin := build(t)
	network := netns.NewT(t)
	return &clusterset{
		east: startMember(t, network, bin, "east", 1),
		west: startMember(t, network, bin, "west", 2),
	}
}

// programs are the files of what runs in a node.
type programs struct{ proxy, coredns string }

// build makes them, if they are not there and up to date. That can take minutes.
func build(t *testing.T) programs {
	t.Helper()
	further, err := controlplane.FurtherBinaries(t.Context(), os.Stderr)
	must(t, err)
	root, err := server.Root(t.Context())
	must(t, err)
	coredns := filepath.Join(root, "bin", "coredns")
	must(t, server.Build(t.Context(), root, coredns))
	return programs{proxy: further.Proxy, coredns: coredns}
}

// startMember starts the member with this id and number. No two have an address in common.
func startMember(t *testing.T, network *netns.Network, bin programs, id string, number int) *member {
	t.Helper()
	ctx := t.Context()
	c := controlplane.StartT(t, controlplane.Options{
		ServiceCIDR: fmt.Sprintf("10.%d.0.0/16,fd00:%d::/108", 100+number, 100+number),
	})
	must(t, c.StartControllers(ctx, "endpointslice-controller"))
	node, err := network.Join(ctx, id,
		netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", number)), netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", number)))
	must(t, err)
	must(t, node.Relay(strings.TrimPrefix(c.Config().Host, "https://")))
	m := &member{ControlPlane: c, id: id, node: node, resolver: node.Resolver(dnsServer), served: map[int]bool{}}
	must(t, c.Apply(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	m.createNode(t)
	must(t, node.StartProxy(ctx, bin.proxy, c.Kubeconfig(), nodeName))
	m.startDNS(t, bin.coredns)
	t.Cleanup(func() { m.tell(t) })
	return m
}

// createNode creates what kube-proxy and the endpointslice controller read of the node. It is not applied: an apply takes
// only one address of a type.
func (m *member) createNode(t *testing.T) {
	t.Helper()
	var addresses []any
	for _, a := range m.node.Addresses {
		addresses = append(addresses, map[string]any{"type": string(corev1.NodeInternalIP), "address": a.String()})
	}
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": nodeName},
		"status": map[string]any{"addresses": addresses},
	}}
	_, err := m.Dynamic().Resource(nodes).Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
}

// startDNS starts in the node the CoreDNS that is shipped.
func (m *member) startDNS(t *testing.T, bin string) {
	t.Helper()
	dir := t.TempDir()
	corefile := filepath.Join(dir, "Corefile")
	must(t, os.WriteFile(corefile, fmt.Appendf(nil, `%s {
    bind 127.0.0.1
    errors
    clusterset {
        kubeconfig %s
    }
}
`, zone, m.Kubeconfig()), 0o600))
	s, err := server.Start(m.node.Command(child.Command{Bin: bin, Args: []string{"-conf", corefile}, Dir: dir}))
	must(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	must(t, s.Await(t.Context(), m.serves))
}

// serves fails while the DNS server does not answer for its zone.
func (m *member) serves(ctx context.Context) error {
	conn, err := m.node.Dial(ctx, "udp", dnsServer)
	if err != nil {
		return err
	}
	defer conn.Close()
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(zone), dns.TypeSOA)
	client := dns.Client{Timeout: time.Second}
	reply, _, err := client.ExchangeWithConnContext(ctx, question, &dns.Conn{Conn: conn})
	if err != nil {
		return err
	}
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) == 0 {
		return fmt.Errorf("SOA of %s: %s with %d records", zone, dns.RcodeToString[reply.Rcode], len(reply.Answer))
	}
	return nil
}

// tell logs, of a test that failed, what the member's kube-proxy has made of the Services.
func (m *member) tell(t *testing.T) {
	if !t.Failed() {
		return
	}
	rules, err := m.node.Ruleset(context.WithoutCancel(t.Context()))
	t.Logf("rules in %s (%v):\n%s", m.id, err, rules)
}
