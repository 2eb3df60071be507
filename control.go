package clusterset

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// A control is the controller of this process while it runs. There is one at most, whatever number of blocks names the
// broker, and one after the other at a reload.
type control struct {
	config *controller.Config
	cancel context.CancelFunc
	done   chan struct{}
}

// over reports whether the controller has ended.
func (c *control) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// directives are those of the controller; they write to config.
func directives(config *controller.Config) []plugin.Directive {
	var all []plugin.Directive
	for _, o := range controller.Options() {
		d := plugin.Directive{Name: o.Name, Args: o.Args, Min: o.Min, Max: o.Max, Needs: "broker", Set: func(args []string) error {
			return o.Set(config, args)
		}}
		all = append(all, d)
	}
	return all
}

// finish completes what the directives of one block say about the controller, which talks to the API server of the block.
func finish(c *caddy.Controller, config *controller.Config, local *rest.Config) {
	if root := dnsserver.GetConfig(c).Root; root != "" && !filepath.IsAbs(config.Broker) {
		config.Broker = filepath.Join(root, config.Broker)
	}
	config.Local, config.Metrics, config.Log, config.Version = local, metrics(), plugin.Log, caddy.AppVersion
}

// agree notes what a block of held wants of the controller, or tells in what it differs from another block.
func (held *holding) agree(config *controller.Config) error {
	if held.controller != nil {
		if name := held.controller.Difference(config); name != "" {
			return fmt.Errorf("%s differs from that of another block: want the same, one controller runs in a process", name)
		}
	}
	held.controller = config
	return nil
}

// settle makes the controller that runs the one that is wanted by the newest instance of the server which has started. It
// returns a channel that is closed once no other one runs; the caller holds r.mu.
func (r *registry) settle() <-chan struct{} {
	over := make(chan struct{})
	was, config := r.active, r.controlled()
	if was != nil && was.over() { // by itself
		was.cancel()
		was, r.active = nil, nil
	}
	switch {
	case was != nil && config != nil && was.config.Same(config), was == nil && config == nil:
		close(over)
		return over
	case was != nil:
		was.cancel()
		r.active = nil
	}
	if config == nil {
		return was.done
	}
	ctx, cancel := context.WithCancel(klog.NewContext(r.ctx, logr.Discard()))
	next := &control{config, cancel, make(chan struct{})}
	r.active = next
	go func() {
		defer close(next.done)
		if was != nil {
			<-was.done
		}
		close(over)
		if err := controller.Run(ctx, *config); err != nil {
			plugin.Log.Errorf("controller: stopped: %s", err)
		}
	}()
	return over
}

// controlled returns what the newest started instance wants of the controller.
func (r *registry) controlled() *controller.Config {
	for _, held := range slices.Backward(r.holdings) {
		if !held.started.IsZero() {
			return held.controller
		}
	}
	return nil
}
