package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/lease"
	"github.com/clusterset-dns/clusterset/controller/statuspage"
)

// Run is one instance of the controller. It blocks until ctx ends and every goroutine that it started has ended; it
// then returns nil. An error means that waiting cannot help: the Config is not complete.
//
// It campaigns for the Lease of package lease and acts while it holds it. It logs missing parts, such as the broker,
// its kubeconfig or a CRD of this cluster, and waits for them.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	instance := lease.NewInstance()
	board := statuspage.NewBoard(instance, cfg.Version)
	standby := func(holder string) {
		cfg.Log.Infof("standing by: %s leads", holder)
		board.Say(nil, fmt.Sprintf("This instance stands by: %s leads.", holder))
		// Only the leader uses the kubeconfig, but a bad one should be known before this instance has to lead.
		if _, err := identity.LoadLink(cfg.Broker, cfg.Context); err != nil {
			cfg.Log.Errorf("broker: %v", err)
		}
	}
	e, err := lease.New(lease.Config{
		REST: cfg.Local, Namespace: cfg.Namespace, Instance: instance, Log: cfg.Log, Standby: standby,
	})
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	t := term{cfg: cfg, instance: instance, fence: e.Fence(), board: board, sent: new(atomic.Int64)}
	g, ctx := errgroup.WithContext(ctx)
	if cfg.StatusPage.IsValid() {
		server := statuspage.New(cfg.StatusPage, board.Status, cfg.Log,
			&logging.Barrier{Log: cfg.Log, Panicked: cfg.Metrics.Panicked})
		g.Go(func() error { return server.Run(ctx) })
	}
	g.Go(func() error { return e.Run(ctx, t.run) })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}

// complete returns the Config with a Logger and Metrics.
func (c Config) complete() (Config, error) {
	switch {
	case c.Local == nil:
		return c, errors.New("no API server of this cluster is given")
	case c.Broker == "":
		return c, errors.New("no kubeconfig of a broker is given")
	case c.Namespace == "":
		return c, errors.New("no namespace of the controller is given")
	}
	c.Log = cmp.Or(c.Log, logging.Discard)
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c, nil
}
