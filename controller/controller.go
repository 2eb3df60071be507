package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/lease"
)

// checkEvery is the time between two looks at an API server that lacks what the controller needs.
const checkEvery = 30 * time.Second

// Run is one instance of the controller. It blocks until ctx ends and all that it started is over; it then returns nil. An
// error is what waiting does not mend: a Config that makes no sense.
//
// It campaigns for the Lease of package lease and acts while it holds that. Whatever is missing meanwhile, from the broker to its
// kubeconfig or a CRD of this cluster, it tells, and waits for.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	instance := lease.NewInstance()
	standby := func(holder string) {
		cfg.Log.Infof("standing by: %s leads", holder)
		// Only the leader uses the kubeconfig, but a bad one should be known before this instance has to lead.
		if _, err := loadLink(cfg.Broker, cfg.Context); err != nil {
			cfg.Log.Errorf("broker: %v", err)
		}
	}
	e, err := lease.New(lease.Config{
		REST: cfg.Local, Namespace: cfg.Namespace, Instance: instance, Log: cfg.Log, Standby: standby,
	})
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	t := term{cfg: cfg, instance: instance, fence: e.Fence()}
	if err := e.Run(ctx, t.run); err != nil {
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
	if c.Log == nil {
		c.Log = logging.Discard
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c, nil
}

// A term is the time for which this instance leads.
type term struct {
	cfg      Config
	instance string
	fence    *lease.Fence
}

// run has one session after the other until ctx ends.
func (t term) run(ctx context.Context) error {
	set(t.cfg.Metrics.leader, true)
	defer set(t.cfg.Metrics.leader, false)
	t.cfg.Log.Infof("leading as %s", t.instance)
	defer t.cfg.Log.Infof("no longer leading")
	for ctx.Err() == nil {
		has, ok := t.awaitKinds(ctx)
		if !ok {
			return nil
		}
		s, err := newSession(t.cfg, t.instance, t.fence, has)
		if err != nil {
			return err
		}
		switch err := s.run(ctx); {
		case errors.Is(err, errOther), errors.Is(err, errKinds):
			t.cfg.Log.Infof("starting again: %v", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// awaitKinds returns when the API server of this cluster has all kinds that are needed. It reports false if ctx ends first.
func (t term) awaitKinds(ctx context.Context) (kinds, bool) {
	told := ""
	for {
		has, err := localKinds(ctx, t.cfg.Local)
		if err == nil {
			return has, true
		}
		if ctx.Err() != nil {
			return kinds{}, false
		}
		if err.Error() != told {
			t.cfg.Log.Errorf("waiting: %v", err)
			told = err.Error()
		}
		select {
		case <-ctx.Done():
			return kinds{}, false
		case <-time.After(checkEvery):
		}
	}
}

// localKinds returns what an API server has.
func localKinds(ctx context.Context, cfg *rest.Config) (kinds, error) {
	client, err := apiserver.NewClient(cfg)
	if err != nil {
		return kinds{}, fmt.Errorf("local: %w", err)
	}
	defer client.Close()
	return checkKinds(ctx, client)
}
