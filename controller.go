package clusterset

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// directives are those of the controller; they write to config.
func directives(config *controller.Config) []plugin.Directive {
	var all []plugin.Directive
	for _, o := range controller.Options() {
		d := plugin.Directive{Name: o.Name, Args: o.Args, Min: o.Min, Max: o.Max, Default: o.Default, Rare: o.Rare, Needs: "broker"}
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

// complete adds to config what no directive of the controller sets. local is the API server of the block.
func complete(c *caddy.Controller, config *controller.Config, local *rest.Config) {
	if root := dnsserver.GetConfig(c).Root; root != "" && !filepath.IsAbs(config.Broker) {
		config.Broker = filepath.Join(root, config.Broker)
	}
	config.Local, config.Metrics, config.Log, config.Version = local, metrics(), plugin.Log, caddy.AppVersion
}

// setController sets the controller settings of inst. It returns an error if another block has set different ones.
func (inst *instance) setController(config *controller.Config) error {
	if inst.controller != nil {
		if name := inst.controller.Difference(config); name != "" {
			return fmt.Errorf("%s differs from that of another block: want the same, one controller runs in a process", name)
		}
	}
	inst.controller = config
	return nil
}

// A runningController is the controller of this process. There is at most one, however many blocks have a broker: at a
// reload with other settings the next one starts when the one before has ended.
type runningController struct {
	config *controller.Config
	*task
}

// reconcileController brings the controller that runs in line with the settings of the newest started instance: it starts
// one, ends one, replaces one whose settings differ or that has ended by itself, or leaves it alone. It returns the one
// that it ended, whose done channel closes later; nil if it ended nothing. The caller holds p.mu.
func (p *instances) reconcileController() (old *task) {
	config, running := p.controllerConfig(), p.controller
	if running != nil && running.ended() {
		running, p.controller = nil, nil
	}
	if running != nil {
		if config != nil && running.config.Same(config) {
			return nil
		}
		running.cancel()
		old, p.controller = running.task, nil
	}
	if config != nil {
		next := startTask(p.ctx, "controller", func(ctx context.Context) error {
			if old != nil {
				<-old.done
			}
			return controller.Run(ctx, *config)
		})
		p.controller = &runningController{config, next}
	}
	return old
}

// controllerConfig returns the settings of the newest started instance; nil if it has no controller.
func (p *instances) controllerConfig() *controller.Config {
	for _, inst := range slices.Backward(p.live) {
		if !inst.started.IsZero() {
			return inst.controller
		}
	}
	return nil
}
