package clusterset

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// directives are those of the controller; they write to config.
func directives(config *controller.Config) []plugin.Directive {
	var all []plugin.Directive
	for _, o := range controller.Options() {
		d := plugin.Directive{Name: o.Name, Args: o.Args, Min: o.Min, Max: o.Max, Default: o.Default, Rare: o.Rare,
			Needs: "broker"}
		d.Text = strings.TrimSpace(o.Help + ". " + o.Text)
		d.Set = func(args []string) error {
			if err := o.Set(config, args); err != nil {
				return fmt.Errorf("%s %w", o.Name, err)
			}
			return nil
		}
		all = append(all, d)
	}
	return all
}

// metrics are those of the controller. A process without a controller does not register them.
var metrics = sync.OnceValue(func() *controller.Metrics { return controller.NewMetrics(prometheus.DefaultRegisterer) })

// completeConfig adds to config what no directive of the controller sets. local is the API server of the block.
func completeConfig(c *caddy.Controller, config *controller.Config, local *rest.Config) {
	if root := dnsserver.GetConfig(c).Root; root != "" && !filepath.IsAbs(config.Broker) {
		config.Broker = filepath.Join(root, config.Broker)
	}
	config.Local, config.Metrics, config.Log, config.Version = local, metrics(), plugin.Log, caddy.AppVersion
}
