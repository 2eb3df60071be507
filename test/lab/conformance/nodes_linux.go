package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// nodes are what runs in the members: one node in each.
type nodes struct {
	vip         string // option of joins and controllers, "" for the default
	network     *netns.Network
	controllers []*subprocess.Process
	servers     []*server.Server
	kubelets    []*kubelet
}

// startNodes makes clusters of the members, with everything that the suite expects in one.
func startNodes(ctx context.Context, bin map[string]string, vip string, members []*testclusterset.Member) (_ *nodes,
	err error) {
	n := &nodes{vip: vip}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.network, err = netns.New(ctx); err != nil {
		return nil, err
	}
	for _, m := range members {
		if err := n.start(ctx, bin, m); err != nil {
			return nil, fmt.Errorf("member %s: %w", m.ID, err)
		}
	}
	return n, nil
}

func (n *nodes) start(ctx context.Context, bin map[string]string, m *testclusterset.Member) error {
	err := m.StartControllers(ctx, "endpointslice-controller", "deployment-controller", "replicaset-controller",
		"statefulset-controller", "namespace-controller", "garbage-collector-controller")
	if err != nil {
		return err
	}
	var pods []netip.Prefix
	for _, cidr := range m.PodCIDRs() {
		pods = append(pods, netip.MustParsePrefix(cidr))
	}
	node, err := n.network.Join(ctx, m.ID, pods...)
	if err != nil {
		return err
	}
	if err := node.Relay(strings.TrimPrefix(m.Config().Host, "https://")); err != nil {
		return err
	}
	if err := n.startKubelet(ctx, m, node); err != nil {
		return err
	}
	if err := node.StartProxy(ctx, netns.Proxy{Bin: bin["kube-proxy"]}, m.Kubeconfig(), nodeName); err != nil {
		return err
	}
	if err := n.startDNS(ctx, bin["coredns"], m, node); err != nil {
		return err
	}
	return n.startController(ctx, bin["clusterset"], m)
}

// startKubelet creates the Node, and starts the stand-in for what runs its Pods.
func (n *nodes) startKubelet(ctx context.Context, m *testclusterset.Member, node *netns.Node) error {
	client, err := kubernetes.NewForConfig(m.Config())
	if err != nil {
		return err
	}
	tlsConfig, err := m.KubeletTLS()
	if err != nil {
		return err
	}
	// On the host, where the API server reaches it.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	k := newKubelet(client, m, node)
	k.server = &http.Server{Handler: http.HandlerFunc(k.exec), TLSConfig: tlsConfig, ReadHeaderTimeout: time.Minute}
	n.kubelets = append(n.kubelets, k)
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "127.0.0.1"}}
	for _, a := range node.Addresses {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	port := int32(l.Addr().(*net.TCPAddr).Port)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Status: corev1.NodeStatus{
		Addresses:       addresses,
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	if _, err := client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return errors.Join(err, l.Close())
	}
	return k.start(ctx, l)
}

// startDNS starts CoreDNS in the node: ours for the clusterset, with the rights that are shipped, and the plugin
// kubernetes for the cluster itself.
func (n *nodes) startDNS(ctx context.Context, bin string, m *testclusterset.Member, node *netns.Node) error {
	ours, err := m.ServiceAccountKubeconfig(ctx, wellknown.ControllerNamespace, "clusterset-dns")
	if err != nil {
		return err
	}
	corefile := filepath.Join(filepath.Dir(ours), "Corefile") // removed whatever becomes of this process
	text := fmt.Sprintf(`.:53 {
    bind %s
    errors
    clusterset clusterset.local {
        kubeconfig %s
    }
    kubernetes cluster.local {
        kubeconfig %s
    }
}
`, dnsServer, ours, m.Kubeconfig())
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		return err
	}
	s, err := server.Start(node.Command(subprocess.Command{Bin: bin, Args: []string{"-conf", corefile}}))
	if err != nil {
		return err
	}
	n.servers = append(n.servers, s)
	return s.Await(ctx, func(ctx context.Context) error {
		// The Service that every cluster has, and a name that every clusterset has.
		resolver := node.Resolver(net.JoinHostPort(dnsServer, "53"))
		_, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		if err == nil {
			_, err = resolver.LookupTXT(ctx, "dns-version.clusterset.local.")
		}
		return err
	})
}

// startController makes the cluster a member, and starts the controller as it is shipped: its program, its rights, its
// defaults but for the option vip.
func (n *nodes) startController(ctx context.Context, bin string, m *testclusterset.Member) error {
	args := []string{"controller", "--metrics-address=", "--health-address=", "--broker", m.BrokerKubeconfig()}
	if n.vip != "" {
		args = append(args, "--vip", n.vip)
	}
	if _, err := m.Join(ctx, func(o *join.Options) {
		if n.vip == "cidr" {
			o.VIPCIDR = join.VIPAuto
		}
	}); err != nil {
		return err
	}
	kubeconfig, err := m.ServiceAccountKubeconfig(ctx, wellknown.ControllerNamespace, "clusterset-controller")
	if err != nil {
		return err
	}
	c, err := subprocess.Start(subprocess.Command{Bin: bin, Args: append(args, "--kubeconfig", kubeconfig)})
	if err != nil {
		return err
	}
	n.controllers = append(n.controllers, c)
	return nil
}

// failed returns what went wrong in the kubelets.
func (n *nodes) failed() error {
	var errs []error
	for _, k := range n.kubelets {
		errs = append(errs, k.failed())
	}
	return errors.Join(errs...)
}

func (n *nodes) close() error {
	var errs []error
	for _, c := range n.controllers {
		select {
		case <-c.Done():
			errs = append(errs, fmt.Errorf("a controller had ended: %s\n%s", c.State(), c.Out.String()))
		default:
			c.Stop(30 * time.Second)
		}
	}
	for _, s := range n.servers {
		errs = append(errs, s.Stop())
	}
	for _, k := range n.kubelets {
		errs = append(errs, k.stop())
	}
	if n.network != nil {
		errs = append(errs, n.network.Close())
	}
	return errors.Join(errs...)
}
