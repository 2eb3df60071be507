package netns

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// startPatience is how long kube-proxy may take to get ready, on a machine that is busy with other tests.
const startPatience = 3 * time.Minute

// Where kube-proxy has its health and its metrics: addresses in its node.
const proxyHealth, proxyMetrics = "127.0.0.1:10256", "127.0.0.1:10249"

// A Proxy is the program kube-proxy of some version.
type Proxy struct {
	Bin string
	// how it has the kernel translate: "nftables" if empty, or "iptables", which needs the programs of that name
	Mode string
	// MinSync is the least time between two changes of its rules; if 0, the 1 s of kube-proxy.
	MinSync time.Duration
}

// StartProxy starts kube-proxy in the node and returns when it is healthy. It ends with the network. The API server
// that the kubeconfig names has to be reachable in the node ([Node.Relay]) and to have a Node of this name with the
// addresses of this one.
func (n *Node) StartProxy(ctx context.Context, p Proxy, kubeconfig, name string) error {
	started, err := subprocess.Start(n.Command(subprocess.Command{Bin: p.Bin, Args: n.proxyFlags(p, kubeconfig, name)}))
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Cluster, err)
	}
	if err := n.awaitProxy(ctx, started); err != nil {
		started.Stop(stopPatience)
		return fmt.Errorf("node %s: kube-proxy: %w\n%s", n.Cluster, err, started.Out.String())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy = started
	return nil
}

// RestartProxy ends kube-proxy, which leaves the rules that it made, and starts it as [Node.StartProxy] does.
func (n *Node) RestartProxy(ctx context.Context, p Proxy, kubeconfig, name string) error {
	if err := n.stopProxy(); err != nil {
		return err
	}
	n.mu.Lock()
	n.proxy = nil
	n.mu.Unlock()
	return n.StartProxy(ctx, p, kubeconfig, name)
}

func (n *Node) proxyFlags(p Proxy, kubeconfig, name string) []string {
	var pods []string
	for _, network := range n.Pods {
		pods = append(pods, network.String())
	}
	return []string{
		// For all modes, not for the one in its name.
		"--iptables-min-sync-period=" + cmp.Or(p.MinSync, time.Second).String(),
		"--proxy-mode=" + cmp.Or(p.Mode, "nftables"),
		"--kubeconfig=" + kubeconfig,
		"--hostname-override=" + name,
		"--cluster-cidr=" + strings.Join(pods, ","),
		"--healthz-bind-address=" + proxyHealth, "--metrics-bind-address=" + proxyMetrics,
		// They are the host's, whatever namespace asks for them.
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		"--oom-score-adj=0",
	}
}

func (n *Node) awaitProxy(ctx context.Context, proxy *subprocess.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	transport := &http.Transport{DialContext: n.Dial}
	defer transport.CloseIdleConnections()
	return proxy.Await(ctx, func(ctx context.Context) error {
		return subprocess.Healthy(ctx, &http.Client{Transport: transport}, "http://"+proxyHealth+"/healthz")
	})
}

// Ruleset is what kube-proxy has made of the Services so far, in the language of nft(8).
func (n *Node) Ruleset(ctx context.Context) (string, error) {
	return n.ns.run(ctx, "", "nft", "list", "ruleset")
}
