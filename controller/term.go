package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/importer"
	"github.com/clusterset-dns/clusterset/controller/lease"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/statuspage"
)

// kindsRetry is the time between two checks of an API server that lacks what the controller needs.
const kindsRetry = 30 * time.Second

// A term is the time during which this instance leads. The parts of a term are built for one identity of this cluster
// and for the kinds of its API server; when either changes, all parts end and new ones are built.
type term struct {
	cfg      Config
	instance string
	fence    *lease.Fence
	board    *statuspage.Board
	sent     *atomic.Int64 // by this process, in all terms
}

// run acts until ctx ends.
func (t term) run(ctx context.Context) error {
	t.cfg.Metrics.SetLeader(true)
	defer t.cfg.Metrics.SetLeader(false)
	defer t.board.Say(nil, "This instance no longer leads.")
	t.cfg.Log.Infof("leading as %s", t.instance)
	defer t.cfg.Log.Infof("no longer leading")
	for ctx.Err() == nil {
		kinds, ok := t.awaitKinds(ctx)
		if !ok {
			return nil
		}
		switch err := t.act(ctx, kinds); {
		case errors.Is(err, errIdentityChanged), errors.Is(err, errKindsChanged):
			t.cfg.Log.Infof("starting again: %v", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// awaitKinds returns when the API server of this cluster has all kinds that are needed. It reports false if ctx ends
// first.
func (t term) awaitKinds(ctx context.Context) (member.Kinds, bool) {
	var failure logging.OnChange[string]
	for {
		kinds, err := checkKinds(ctx, t.cfg.Local)
		if err == nil {
			for _, w := range kinds.Warnings {
				t.cfg.Log.Warningf("%s; it is left out", w)
			}
			return kinds, true
		}
		if ctx.Err() != nil {
			return member.Kinds{}, false
		}
		if failure.Changed(err.Error()) {
			t.cfg.Log.Errorf("waiting: %v", err)
			t.board.Say(nil, fmt.Sprintf("This instance leads, and waits: %v", err))
		}
		if apiserver.Sleep(ctx, kindsRetry) != nil {
			return member.Kinds{}, false
		}
	}
}

// checkKinds returns the kinds of an API server.
func checkKinds(ctx context.Context, cfg *rest.Config) (member.Kinds, error) {
	client, err := apiserver.NewClient(cfg)
	if err != nil {
		return member.Kinds{}, fmt.Errorf("local: %w", err)
	}
	defer client.Close()
	return member.CheckKinds(ctx, client)
}

// act follows the member's API server, and builds and runs all parts once its caches are complete. It returns nil when
// ctx ends, or why the parts have to be built again.
func (t term) act(ctx context.Context, kinds member.Kinds) error {
	config := t.guard(t.cfg.Local, sideLocal)
	rejections := importer.NewRejections(t.cfg.Log, t.cfg.Metrics)
	barrier := &logging.Barrier{Log: t.cfg.Log, Panicked: t.cfg.Metrics.Panicked}
	m, err := member.New(member.Config{
		Interval: checkInterval(t.cfg.TTL),
		REST:     config, Kinds: kinds, ServiceCIDRs: t.cfg.ServiceCIDRs, Log: t.cfg.Log,
		Rejected: rejections.Report, Barrier: barrier,
	})
	if err != nil {
		return err
	}
	defer m.Close()
	events, err := member.NewEvents(m, config, t.instance, t.cfg.Metrics)
	if err != nil {
		return err
	}
	defer t.cfg.Metrics.Reset()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.Run(ctx) })
	g.Go(func() error { return events.Run(ctx) })
	t.board.Say(nil, "This instance leads, and reads the state of this cluster.")
	g.Go(func() error {
		if !awaitSynced(ctx, m) {
			return nil
		}
		own := ownCluster{conditions: member.NewConditions(m, events, t.cfg.Log), kinds: kinds, rejections: rejections,
			barrier: barrier, sent: t.sent}
		p, err := newParts(ctx, t.cfg, t.guard, own)
		if err != nil {
			return err
		}
		defer p.broker.Close()
		t.board.Say(p.statusParts(), "This instance leads.")
		defer t.board.Say(nil, "This instance leads, and starts again.")
		return p.run(ctx)
	})
	return g.Wait()
}

// guard returns a copy of cfg whose writes need the lease, are counted, and have the rate of the options.
func (t term) guard(cfg *rest.Config, side string) *rest.Config {
	guarded := t.fence.Guard(cfg, func(kind, verb string) { t.cfg.Metrics.Wrote(side, kind, verb) })
	guarded.RateLimiter, guarded.QPS, guarded.Burst = nil, t.cfg.QPS, t.cfg.Burst
	return guarded
}

// awaitSynced returns when the caches of this cluster are complete. It reports false if ctx ends first.
func awaitSynced(ctx context.Context, m *member.Cluster) bool {
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true,
		func(context.Context) (bool, error) { return m.Synced(), nil })
	return err == nil && ctx.Err() == nil
}
