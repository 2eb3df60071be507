// Package clusterset is the CoreDNS external plugin clusterset: it serves clusterset.local for the Kubernetes
// Multi-Cluster Services API (KEP-1645). Importing it registers the plugin; see the README for how to build it in.
package clusterset

import (
	"context"
	"sync"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	coreplugin "github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// sources are the running sources of this process.
var sources = registry{ctx: context.Background()}

// metrics are those of its controller. A server without one does not tell of it.
var metrics = sync.OnceValue(func() *controller.Metrics { return controller.NewMetrics(prometheus.DefaultRegisterer) })

func init() {
	coreplugin.Register(plugin.Name, setup)
	prometheus.MustRegister(plugin.NewCollector(sources.stores))
	// What client-go has to say beside the errors that it returns would go to stderr in a format of its own. Later than
	// here would be a race: it reads the logger without a lock.
	klog.SetLogger(funcr.New(func(prefix, args string) {
		plugin.Log.Warningf("client-go: %s %s", prefix, args)
	}, funcr.Options{}))
}

// setup reads one clusterset block. Nothing runs before OnStartup: a Corefile that is refused leaves no trace.
func setup(c *caddy.Controller) error {
	control := controller.Defaults()
	config, lines, err := plugin.Parse(c, directives(&control)...)
	if err != nil {
		return coreplugin.Error(plugin.Name, err)
	}
	spec, err := storeConfig(config)
	if err != nil {
		return coreplugin.Error(plugin.Name, lines.At(c, err, "kubeconfig"))
	}
	held := holdingOf(c)
	src, err := sources.find(held, spec)
	if err != nil {
		return coreplugin.Error(plugin.Name, lines.At(c, err, "manifests", "snapshot", "kubeconfig"))
	}
	if control.Broker != "" {
		finish(c, &control, spec.REST)
		if err := held.agree(&control); err != nil {
			return coreplugin.Error(plugin.Name, lines.At(c, err, "broker"))
		}
	}
	server := dnsserver.GetConfig(c)
	handler := plugin.NewHandler(config, src.store, src.turns)
	handler.Synced = func() bool { return sources.synced(held) }

	server.AddPlugin(func(next coreplugin.Handler) coreplugin.Handler {
		handler.Next = next
		return handler
	})
	c.OnStartup(func() error {
		handler.Addresses = plugin.ListenAddresses(server.ListenHosts)
		sources.start(held)
		if t, ok := server.Handler("transfer").(*transfer.Transfer); ok {
			sources.run(held, func() { handler.Notify(held.ctx, t, src.told) })
		}
		held.await(src, config.StartupTimeout)
		return nil
	})
	return nil
}

// follow ties the life of held to that of the instance that c sets up. Every instance but the last ends by a restart, on
// which caddy calls OnRestart and OnShutdown of the old instance, or OnRestartFailed of the old one and nothing of the new
// one. The last ends by OnShutdown and OnFinalShutdown.
func follow(c *caddy.Controller, held *holding) {
	c.OnRestart(func() error {
		sources.restart(held)
		return nil
	})
	c.OnRestartFailed(func() error {
		sources.restartFailed(held)
		return nil
	})
	c.OnShutdown(func() error {
		// At the end of the process the lameduck time of health is still to come, with queries that want fresh answers.
		if sources.replaced(held) {
			sources.release(held)
		}
		return nil
	})
	c.OnFinalShutdown(func() error {
		sources.release(held)
		return nil
	})
}
