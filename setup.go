// Package clusterset is the CoreDNS external plugin clusterset: it serves clusterset.local for the Kubernetes
// Multi-Cluster Services API (KEP-1645). Importing it registers the plugin; see the README for how to build it in.
package clusterset

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	coreplugin "github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
	"github.com/clusterset-dns/clusterset/resolver"
)

// process has the instances of this process, with the stores and the controller that run.
var process = instances{ctx: context.Background()}

func init() {
	coreplugin.Register(plugin.Name, setup)
	prometheus.MustRegister(plugin.NewCollector(process.byName))
	// client-go logs to stderr in its own format, beside the errors that it returns. The logger is set here because
	// client-go reads it without a lock: later would be a race.
	klog.SetLogger(funcr.New(func(prefix, args string) {
		plugin.Log.Warningf("client-go: %s %s", prefix, args)
	}, funcr.Options{}))
}

// setup reads one clusterset block and adds its handler to the server block. Nothing runs before OnStartup, so a
// Corefile that is rejected leaves nothing behind. When stores start and stop is described at [instances].
func setup(c *caddy.Controller) error {
	control := controller.Defaults()
	config, lines, err := plugin.Parse(c, directives(&control)...)
	if err != nil {
		return coreplugin.Error(plugin.Name, err)
	}
	storeConfig, err := storeConfigOf(config)
	if err != nil {
		return coreplugin.Error(plugin.Name, lines.At(c, err, "kubeconfig"))
	}
	inst := instanceOf(c)
	ref, err := process.acquire(inst, storeConfig)
	if err != nil {
		return coreplugin.Error(plugin.Name, lines.At(c, err, "manifests", "snapshot", "kubeconfig"))
	}
	ref.strict = config.ReadyStrict
	if control.Broker != "" {
		completeConfig(c, &control, storeConfig.REST)
		if err := inst.setController(&control); err != nil {
			return coreplugin.Error(plugin.Name, lines.At(c, err, "broker"))
		}
	}
	server := dnsserver.GetConfig(c)
	handler := plugin.NewHandler(config, ref.store, ref.rotation)
	handler.Synced = func() bool { return process.synced(inst) }

	server.AddPlugin(func(next coreplugin.Handler) coreplugin.Handler {
		handler.Next = next
		return handler
	})
	c.OnStartup(func() error {
		handler.Addresses = config.Addresses(server.ListenHosts)
		handler.Signed = server.Handler("dnssec") != nil
		process.start(inst)
		process.startTask(inst, func() { handler.LogStaleness(inst.ctx) })
		if t, ok := server.Handler("transfer").(*transfer.Transfer); ok {
			process.startTask(inst, func() { handler.Notify(inst.ctx, t, ref.notified) })
		}
		inst.waitForSync(ref, config.StartupTimeout)
		return nil
	})
	return nil
}

// instanceOf returns the instance that c sets up. The first block of a Corefile creates it.
func instanceOf(c *caddy.Controller) *instance {
	if h, ok := c.Get(handleKey{}).(*handle); ok {
		return h.inst
	}
	inst := process.create()
	h := &handle{inst}
	c.Set(handleKey{}, h)
	runtime.AddCleanup(h, func(inst *instance) { go process.release(inst) }, inst)

	callback := func(f func(*instance)) func() error { return func() error { f(inst); return nil } }
	c.OnRestart(callback(process.restart))
	c.OnRestartFailed(callback(process.restartFailed))
	c.OnShutdown(callback(process.shutdown))
	c.OnFinalShutdown(callback(process.release))
	return inst
}

// storeConfigOf returns where the objects of a block come from, and which of them count.
func storeConfigOf(config plugin.Config) (cache.Config, error) {
	c := cache.Config{
		Manifests: config.Manifests, Name: "manifests " + strings.Join(config.Manifests, " "),
		Namespaces: config.Namespaces, NamespaceLabels: config.NamespaceLabels, Labels: config.Labels,
		NoEndpoints: config.NoEndpoints, Deny: config.Deny,
		Index: index.Options{
			ClusterNames: config.ClusterNames, Zone: config.Topology.Zone, Region: config.Topology.Region,
			MaxNames: resolver.MaxNames(config.Zones...),
		},
		Reverse:      len(config.Reverse) > 0,
		TopologyNode: config.Topology.Node,
		Snapshot:     config.Snapshot, SnapshotMaxAge: config.SnapshotMaxAge,
		CheckInterval: min(30*time.Second, config.StaleAfter/2),
		Log:           plugin.Log, Latency: plugin.ObserveLatency,
	}
	if config.Manifests != nil {
		return c, nil
	}
	var err error
	c.REST, c.Name, err = clientConfig(config)
	if config.Kubeconfig != "" {
		c.Kubeconfig = config.Kubeconfig
		c.ReadREST = func() (*rest.Config, error) {
			cfg, _, err := clientConfig(config)
			return cfg, err
		}
	}
	return c, err
}

// clientConfig returns how to reach the API server, and the name of that source in logs and metrics.
func clientConfig(config plugin.Config) (*rest.Config, string, error) {
	var cfg *rest.Config
	var err error
	name := "in-cluster"
	if config.Kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, "", fmt.Errorf("no API server: want kubeconfig FILE or manifests PATH outside of a cluster: %w", err)
		}
	} else {
		name = strings.TrimSpace("kubeconfig " + config.Kubeconfig + " " + config.Context)
		if _, err := os.Stat(config.Kubeconfig); err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: config.Kubeconfig}
		overrides := &clientcmd.ConfigOverrides{CurrentContext: config.Context}
		if cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig(); err != nil {
			return nil, "", fmt.Errorf("kubeconfig %q: %w", config.Kubeconfig, err)
		}
	}
	cfg.QPS, cfg.Burst = config.QPS, config.Burst
	cfg.UserAgent = plugin.Name
	return cfg, name, nil
}
