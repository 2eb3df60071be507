package controller

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/statuspage"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// An instance is one instance of the controller.
type instance struct {
	*testing.T
	cfg      Config
	log      *logtest.Recorder
	registry *prometheus.Registry
}

func newInstance(env *memberenv.Env) *instance {
	i := &instance{T: env.T, cfg: Defaults(), log: &logtest.Recorder{}, registry: prometheus.NewRegistry()}
	i.cfg.Local, i.cfg.Broker, i.cfg.Version = env.Server.Config(), env.Kubeconfig(), "v1"
	i.cfg.Log, i.cfg.Metrics = i.log, NewMetrics(i.registry)
	i.cfg.Renew, i.cfg.TTL = time.Second, time.Minute
	return i
}

// start runs the instance until the returned function is called.
func (i *instance) start() (stop func()) {
	ctx, cancel := context.WithCancel(i.Context())
	var g errgroup.Group
	g.Go(func() error { return Run(ctx, i.cfg) })
	stop = func() {
		i.Helper()
		cancel()
		if err := g.Wait(); err != nil {
			i.Error(err)
		}
	}
	i.Cleanup(stop)
	return stop
}

// gauge returns the sum of a gauge over its labels.
func (i *instance) gauge(name string) float64 {
	i.Helper()
	all, err := series.Gather(i.registry)
	if err != nil {
		i.Fatal(err)
	}
	return all.Named(series.Controller + name).Sum()
}

// An instance acts as soon as it can: kubeconfig and join may come later, in any order. When it ends the next one takes
// over, and nothing of it is left.
func TestRun(t *testing.T) {
	env := memberenv.New(t)
	env.Account()
	before := goleak.IgnoreCurrent()
	first, second := newInstance(env), newInstance(env)
	first.cfg.ClusterID = memberenv.ID
	first.cfg.Renew = time.Hour // the first heartbeat does not wait for it
	stop := first.start()
	until.True(t, "it leads and logs that there is no kubeconfig", func() bool {
		return first.gauge("leader") == 1 && first.log.Count("error: broker: ") == 1
	})
	id := &aboutv1beta1.ClusterProperty{}
	until.True(t, "it has set the cluster id", func() bool {
		return env.Admin.Get(t.Context(), id, "", about.ClusterIDName) == nil
	})
	if id.Spec.Value != memberenv.ID {
		t.Errorf("cluster id = %q, want %q", id.Spec.Value, memberenv.ID)
	}
	if first.gauge("member") != 0 {
		t.Error("member = 1 before the join")
	}

	env.WriteKubeconfig(env.Token())
	env.JoinSet()
	lease := &coordinationv1.Lease{}
	until.True(t, "it renews its heartbeat", func() bool {
		return env.Admin.Get(t.Context(), lease, memberenv.Namespace, apibroker.HeartbeatName) == nil
	})
	until.True(t, "it is a connected member and nothing is frozen", func() bool {
		return first.gauge("member") == 1 && first.gauge("broker_connected") == 1 && first.gauge("frozen") == 0 &&
			first.gauge("credential_expiry_timestamp_seconds") > 0
	})
	until.True(t, "it reviews its state", func() bool { return first.gauge("review_age_seconds") > 0 })
	m := &v1alpha1.Member{}
	until.True(t, "its status is on the broker", func() bool {
		return env.Admin.Get(t.Context(), m, "", memberenv.ID) == nil && m.Status.Version == "v1" && m.Status.Merge == "kep"
	})

	frozenByDeletion(t, env)

	third := newInstance(env)
	third.cfg.Broker = filepath.Join(t.TempDir(), "none")
	stopThird := third.start()
	until.True(t, "a standby logs that it is one, and that it could not act", func() bool {
		return third.log.Count("standing by: ") == 1 && third.log.Count("error: broker: open "+third.cfg.Broker) == 1
	})
	stopThird()

	stopSecond := second.start()
	stop()
	if first.gauge("leader") != 0 || first.gauge("member") != 0 || first.gauge("review_age_seconds") != 0 {
		t.Error("leader, member and age of the review of an instance that ended: want 0")
	}
	until.True(t, "the second one acts", func() bool { return second.gauge("leader") == 1 && second.gauge("member") == 1 })

	env.Leave()
	until.True(t, "it has left", func() bool { return second.gauge("member") == 0 })
	stopSecond()
	env.Admin.Close()
	// Connections end in the background.
	until.OK(t, "no goroutine is left", func(context.Context) error { return goleak.Find(before) })
}

// Other kinds than those that are followed take new parts.
func TestKindsChanged(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	if !kindsChanged(t.Context(), env.Admin, member.Kinds{}) {
		t.Error("the API server has ServiceCIDRs, which are not followed: want that as a change")
	}
	kinds, err := member.CheckKinds(t.Context(), env.Admin)
	if err != nil || kindsChanged(t.Context(), env.Admin, kinds) {
		t.Errorf("the kinds that are followed changed (%v)", err)
	}
}

// A member's API server that cannot be reached is waited for: the lease is not given up meanwhile.
func TestAwaitKinds(t *testing.T) {
	log := &logtest.Recorder{}
	cfg, err := Config{Local: &rest.Config{Host: "::"}, Broker: "none", Namespace: wellknown.ControllerNamespace,
		Log: log}.complete()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g errgroup.Group
	g.Go(func() error {
		if _, ok := (term{cfg: cfg, board: statuspage.NewBoard("", "")}).awaitKinds(ctx); ok || ctx.Err() == nil {
			t.Errorf("kinds found: %t, the term goes on: %t; want neither", ok, ctx.Err() == nil)
		}
		return nil
	})
	until.True(t, "it logs that", func() bool { return log.Count("local: ") == 1 })
	cancel()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
