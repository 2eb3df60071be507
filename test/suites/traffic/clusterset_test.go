//go:build traffic && linux

// Package traffic proves by real packets that clients reach exported services: each member is a network namespace with
// kube-proxy and our CoreDNS in it, over a real API server with the controller that makes EndpointSlices. Our
// controller runs in this process, with the rights that are shipped, and meets the others by way of a broker. It needs
// root.
package traffic

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/nodeenv"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// How often members say that they are alive, and how long the others believe it.
const renew, leaseTTL = time.Second, 5 * time.Second

// failbackDelay is how long preferred clusters must have been back.
const failbackDelay = 2 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A clusterset is members that reach each other's pods.
type clusterset struct {
	east, west *member
}

func (c *clusterset) members() []*member { return []*member{c.east, c.west} }

// A member is a cluster with one node.
type member struct {
	*nodeenv.Cluster
	resolver *net.Resolver // asks the cluster's DNS server, from the node
	kill     func()        // ends the controller
	options  []func(*controller.Config)
}

const (
	nodeName  = nodeenv.NodeName
	namespace = nodeenv.Namespace
	zone      = "clusterset.local"
	dnsServer = "127.0.0.1:53" // in each node
)

// start starts a clusterset with nothing in it but the namespace. It ends with the test.
func start(t *testing.T) *clusterset {
	t.Helper()
	return startWith(t)
}

// startWith is start with options of each controller. The members have VIP CIDRs.
func startWith(t *testing.T, options ...func(*controller.Config)) *clusterset {
	t.Helper()
	bin := build(t)
	network := netns.NewT(t)
	f := testclusterset.StartT(t, "east", "west")
	for _, m := range f.Members {
		_, err := m.Join(t.Context(), func(o *join.Options) { o.VIPCIDR = join.VIPAuto })
		must(t, err)
	}
	return &clusterset{east: startMember(t, network, bin, f.Members[0], options),
		west: startMember(t, network, bin, f.Members[1], options)}
}

// programs are what runs in a node.
type programs struct {
	proxy   netns.Proxy
	coredns string
}

// kubeProxy is which one runs in the nodes: that of the control plane if empty.
var kubeProxy = flag.String("kube-proxy", "", "`version` of kube-proxy: oldest or newest of those that can be built")

// build makes them, if they are not there and up to date. That can take minutes.
func build(t *testing.T) programs {
	t.Helper()
	coredns, err := server.Program(t.Context(), "coredns")
	must(t, err)
	proxy, err := nodeenv.Proxy(t.Context(), *kubeProxy)
	must(t, err)
	return programs{proxy, coredns}
}

// startMember gives the member of the fleet a node, and starts what runs in it.
func startMember(
	t *testing.T, network *netns.Network, bin programs, of *testclusterset.Member, options []func(*controller.Config),
) *member {
	t.Helper()
	c, err := nodeenv.Start(t.Context(), network, of, bin.proxy)
	must(t, err)
	m := &member{Cluster: c, resolver: c.Node.Resolver(dnsServer), options: options}
	m.startDNS(t, bin.coredns)
	m.startController(t)
	t.Cleanup(func() { m.logState(t) })
	return m
}

// startController starts a controller, which ends with the test unless it is killed before.
func (m *member) startController(t *testing.T) {
	t.Helper()
	m.kill = m.Run(t, append([]func(*controller.Config){
		func(c *controller.Config) { c.Renew, c.TTL, c.FailbackDelay = renew, leaseTTL, failbackDelay },
	}, m.options...)...)
}

// startDNS starts in the node the CoreDNS that is shipped, with the rights that are shipped.
func (m *member) startDNS(t *testing.T, bin string) {
	t.Helper()
	kubeconfig, err := m.ServiceAccountKubeconfig(t.Context(), wellknown.ControllerNamespace, "clusterset-dns")
	must(t, err)
	// Beside the parts that are removed with this process in any case.
	corefile := filepath.Join(filepath.Dir(kubeconfig), "Corefile")
	must(t, os.WriteFile(corefile, fmt.Appendf(nil, `%s {
    bind 127.0.0.1
    errors
    clusterset {
        kubeconfig %s
    }
}
`, zone, kubeconfig), 0o600))
	s, err := server.Start(m.Node.Command(subprocess.Command{Bin: bin, Args: []string{"-conf", corefile}}))
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
	conn, err := m.Node.Dial(ctx, "udp", dnsServer)
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

// logState logs, of a test that failed, what the member's kube-proxy has made of the Services.
func (m *member) logState(t *testing.T) {
	if !t.Failed() {
		return
	}
	rules, err := m.Node.Ruleset(context.WithoutCancel(t.Context()))
	t.Logf("rules in %s (%v):\n%s", m.ID, err, rules)
}
