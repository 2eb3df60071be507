package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/exporter"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/importer"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/controller/queue"
	"github.com/clusterset-dns/clusterset/controller/rules"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/controller/statuspage"
)

// errIdentityChanged ends parts that were built for another identity than the cluster has now.
var errIdentityChanged = errors.New("the identity of this cluster, or its broker, is another one")

// errKindsChanged ends parts with caches of other kinds.
var errKindsChanged = errors.New("the API server of this cluster has other kinds than before")

// How often the state is reviewed for which there are no events.
const (
	kubeconfigPeriod = 5 * time.Second
	kindsPeriod      = 5 * time.Minute
)

// parts are everything that acts for one identity of this cluster during a term. Each is complete; none points back
// here.
type parts struct {
	cfg     Config
	kinds   member.Kinds
	barrier *logging.Barrier

	member      *member.Cluster
	broker      *broker.Broker // always there; without a usable kubeconfig every request fails
	membership  *identity.Membership
	renewal     *identity.Renewal
	heartbeat   *identity.Heartbeat
	publication *identity.Publication
	freezes     *safety.Freezes
	expiry      *safety.Expiry
	exporter    *exporter.Exporter
	importer    *importer.Importer
	rules       *rules.Rules
	requeue     requeuer

	rulesKnown bool // used by review alone
}

// A guard returns a copy of a client configuration for one side, with the fence and the rate of this controller.
type guard func(cfg *rest.Config, side string) *rest.Config

// An ownCluster is what the parts of a term use of this cluster. The caches of the member are complete.
type ownCluster struct {
	conditions member.Conditions
	kinds      member.Kinds
	rejections *importer.Rejections
	barrier    *logging.Barrier
	sent       *atomic.Int64
}

// ignored reports the rule of a Namespace that does not count.
func (own ownCluster) ignored(ns *corev1.Namespace, detail string) {
	own.rejections.Report(merge.Rejection{Cluster: merge.Local, Object: "Namespace " + ns.Name, Reason: merge.NotTaken,
		Detail: detail})
	own.conditions.Events.Namespace(ns, corev1.EventTypeWarning, wellknown.ReasonAnnotationIgnored, "Ignored: "+detail+".")
}

// newParts builds all parts.
func newParts(ctx context.Context, cfg Config, guarded guard, own ownCluster) (*parts, error) {
	m, conditions, rejections, barrier := own.conditions.Cluster, own.conditions, own.rejections, own.barrier
	setClusterID(ctx, cfg, m)
	link, err := identity.LoadLink(cfg.Broker, cfg.Context)
	if err != nil {
		cfg.Log.Errorf("broker: %v; trying again", err)
	}
	id, credential := identity.Of(m, link), identity.NewCredential(link, cfg.Metrics)
	b, memory, err := newBroker(ctx, cfg, m, broker.Config{
		REST: guarded(credential.Config(), sideBroker), Namespace: link.Namespace, ClusterID: id.ClusterID,
		UID: id.BrokerUID, Barrier: barrier,
	})
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	r := &rules.Rules{Member: m, Policy: cfg.policy(), Ignored: own.ignored}
	requeue := newRequeuer(cfg, m, b, r.Concerns)
	freezes := safety.NewFreezes(cfg.Log, cfg.Metrics, requeue.all)
	p := &parts{cfg: cfg, kinds: own.kinds, barrier: barrier, member: m, broker: b, rules: r, requeue: requeue,
		freezes: freezes}
	o := &identity.Original{Broker: b, TTL: cfg.TTL, Sent: own.sent,
		Note: member.LeaseNote{Cluster: m, Namespace: cfg.Namespace, Lease: wellknown.HeartbeatLease}}
	p.membership = &identity.Membership{
		Member: m, Broker: b, Identity: id, Original: o, Namespace: link.Namespace, Credential: credential,
		Freezes: freezes, Metrics: cfg.Metrics, Log: cfg.Log,
	}
	p.renewal = &identity.Renewal{Credential: credential, Members: b.Members, Member: m,
		Namespace: cfg.Namespace, Log: cfg.Log}
	p.expiry, err = safety.NewExpiry(ctx, safety.ExpiryConfig{
		Member: m, Broker: b, ClusterID: id.ClusterID, Namespace: cfg.Namespace, Freezes: freezes, TTL: p.ttl,
		OnExpiry: cfg.OnExpiry, Log: cfg.Log, Barrier: barrier, Requeue: requeue.imports.AddAll,
	})
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("controller: %w", err)
	}
	p.exporter = exporter.New(exporter.Config{
		Member: m, Broker: b, Membership: p.membership, Freezes: freezes, Conditions: conditions, Metrics: cfg.Metrics,
		Log: cfg.Log, TTL: p.ttl, Policy: cfg.policy(), Endpoints: cfg.Endpoints,
		Merge: cfg.mergeOptions(), Silent: func(cluster string) bool { return p.expiry.Result().Silent(cluster) },
		LegacyConditions: cfg.LegacyConditions, Aggregates: cfg.AggregateView, RequeueNow: requeue.exportNow,
		RequeueAll: requeue.exports.AddAll, Requeue: requeue.exportLater, Retry: requeue.exports.AddAfter,
	})
	p.heartbeat = &identity.Heartbeat{
		Membership: p.membership, Memory: memory, Broker: b, Renew: cfg.Renew, Pace: p.pace, Log: cfg.Log,
		Resumed: p.exporter.Resumed, PublishAll: p.exporter.PublishAll, Blind: p.blind,
	}
	p.publication = &identity.Publication{
		Membership: p.membership, Log: cfg.Log,
		Status: v1alpha1.MemberStatus{Version: cfg.Version, Merge: string(cfg.Merge),
			VIP: merge.VIPSetting{Mode: cfg.VIP, Networks: cfg.VIPNetworks}.String()},
	}
	p.importer = importer.New(importer.Config{
		Member: m, Broker: b, Membership: p.membership, Own: p.exporter.Own(), Freezes: freezes, Expiry: p.expiry,
		Rejections: rejections, Conditions: conditions, Metrics: cfg.Metrics, Log: cfg.Log,
		Policy: cfg.policy(), Merge: cfg.mergeOptions(), Retry: requeue.imports.AddAfter,
		ImportLacks: own.kinds.ImportLacks, ImportObserves: own.kinds.ImportObserves,
		Selectors: cfg.selectors(), ExportedAffinity: cfg.ExportedAffinity, FailbackDelay: cfg.FailbackDelay,
	})
	b.Handle(p.brokerHandlers(ctx, rejections))
	return p, nil
}

// blind names a kind of this cluster that was not seen since a time, or a part of the inventory that the broker
// rejects, or returns "".
func (p *parts) blind(since time.Time) string {
	return cmp.Or(p.member.Blind(since), p.exporter.Blind(since))
}

// pace returns how often the heartbeat is renewed, and how long others wait for the next one, with as many members as
// there are.
func (p *parts) pace() (renew, ttl time.Duration) {
	return liveness.Pace(p.cfg.Renew, p.cfg.TTL, p.broker.Members.Count())
}

func (p *parts) ttl() time.Duration {
	_, ttl := p.pace()
	return ttl
}

// statusParts returns what the status page reads.
func (p *parts) statusParts() *statuspage.Parts {
	return &statuspage.Parts{
		Member: p.member, Broker: p.broker, Membership: p.membership, Freezes: p.freezes, Expiry: p.expiry,
		Importer: p.importer,
		Policy:   p.cfg.policy(), Namespace: p.cfg.Namespace, TTL: p.ttl,
	}
}

// setClusterID creates the ClusterProperty of the cluster id, if the options have an id and it is missing.
func setClusterID(ctx context.Context, cfg Config, m *member.Cluster) {
	if cfg.ClusterID == "" {
		return
	}
	switch created, err := identity.SetClusterID(ctx, m, cfg.ClusterID); {
	case err != nil:
		cfg.Log.Errorf("cluster id: %v", err)
	case created:
		cfg.Log.Infof("cluster id: set to %q", cfg.ClusterID)
	}
}

// newBroker completes c, and makes a Broker that knows what an earlier process noted.
func newBroker(ctx context.Context, cfg Config, m *member.Cluster, c broker.Config) (*broker.Broker, *identity.Memory,
	error) {
	memory, noted, err := identity.LoadMemory(ctx, m, cfg.Log, cfg.Namespace, c.UID)
	if err != nil {
		return nil, nil, err
	}
	c.Log, c.Noted = cfg.Log, noted
	// A lost link must be noticed before other members seem silent.
	c.Interval, c.Silence = checkInterval(cfg.TTL), min(25*time.Second, cfg.TTL*5/12)
	b, err := broker.New(c)
	return b, memory, err
}

// checkInterval returns the time between two checks of an API server: short enough to notice a lost watch within half a
// TTL.
func checkInterval(ttl time.Duration) time.Duration { return min(10*time.Second, ttl/6) }

func (p *parts) brokerHandlers(ctx context.Context, rejections *importer.Rejections) broker.Handlers {
	properties := newThrottle(ctx, func(string) int { return propertyBurst }, propertyPeriod)
	changes := newThrottle(ctx, func(namespace string) int { return changeBurst + 4*p.broker.RecordsIn(namespace) },
		changePeriod)
	return broker.Handlers{
		Changed: func(c broker.Change) {
			switch {
			case !c.Altered:
				p.requeue.brokerChanged(c)
			case p.requeue.concernsUs(c): // others must not use up the allowance
				changes.call(c.Member, c.Service, func() { p.requeue.brokerChanged(c) })
			}
		},
		MembersChanged:    p.requeue.all,
		PropertiesChanged: func(cluster string) { properties.call(cluster, types.NamespacedName{}, p.requeue.all) },
		InventoryChanged: func(member, cluster, part string) {
			// A member may change its inventory at any rate.
			changes.call(member, types.NamespacedName{Name: part}, func() {
				for _, svc := range p.importer.KeptIn(cluster, part) {
					p.requeue.imports.Add(svc, queue.Live)
				}
			})
		},
		Rejected: rejections.Report,
	}
}

// heartbeats returns the heartbeat of each member, for the metrics. Where no member expires, by lease 0, a member
// should renew within the TTL that it asks for.
func (p *parts) heartbeats() map[string]metrics.Heartbeat {
	all, ttl := make(map[string]metrics.Heartbeat), p.ttl()
	for _, m := range p.broker.Heartbeats.Liveness() {
		all[m.Cluster] = metrics.Heartbeat{Seen: m.Seen, TTL: m.SilentAge(ttl)}
	}
	return all
}

// run acts until ctx ends, and then returns nil, or until the identity or the kinds change. The broker need not answer.
func (p *parts) run(ctx context.Context) error {
	p.membership.Review()
	p.rules.GoesOn = p.exporter.Own().GoesOn
	p.cfg.Metrics.SetSources(metrics.Sources{
		Queues: map[string]func() (int, time.Duration){
			queueExports: p.requeue.exports.Waiting, queueImports: p.requeue.imports.Waiting,
			queueRules: p.requeue.ruled.Waiting,
		},
		Heartbeats: p.heartbeats, WithheldExports: p.member.WithheldExports, Kept: p.importer.Kept,
	})
	if err := p.member.Handle(ctx, p.requeue.memberChanged); err != nil {
		if ctx.Err() != nil {
			return nil // the caches have ended, too
		}
		return fmt.Errorf("controller: %w", err)
	}
	p.requeue.all()

	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		p.broker.Run, p.expiry.Run, p.heartbeat.Run, p.publication.Run, p.renewal.Run, p.exporter.Run,
		newFrozenNote(p.member, p.cfg, p.freezes).run, p.review, p.watchKubeconfig, p.watchKinds,
	} {
		g.Go(func() error { return run(ctx) })
	}
	g.Go(func() error { return p.requeue.ruled.Run(ctx, p.rules.Reconcile) })
	g.Go(func() error { return p.requeue.exports.Run(ctx, p.exporter.Reconcile) })
	g.Go(func() error { return p.requeue.imports.Run(ctx, p.importer.Reconcile) })
	return g.Wait()
}

// review derives membership and freeze reasons from the known state, every second until ctx ends.
func (p *parts) review(ctx context.Context) error {
	what := func() string { return "of the membership" }
	p.cfg.Metrics.Reviewed() // the first is due
	return every(ctx, reviewPeriod, func() error {
		defer p.cfg.Metrics.Reviewed()
		p.barrier.Do("review", what, func() {
			changed := p.membership.Review()
			p.importer.Review()
			p.exporter.Review()
			p.freezes.Set(safety.ExportKind, p.member.ExportsAbsent())
			known := p.rules.Known()
			if known && !p.rulesKnown {
				p.requeue.rulesChanged("", queue.Backlog) // they were ignored meanwhile
			}
			p.rulesKnown = known
			if changed {
				p.requeue.all()
			}
		})
		switch {
		case p.membership.Changed():
			return errIdentityChanged
		case p.kinds.NoImports && p.member.ImportsUnknown() == "":
			return errKindsChanged
		}
		return nil
	})
}

// watchKubeconfig returns errIdentityChanged when the kubeconfig changes.
func (p *parts) watchKubeconfig(ctx context.Context) error {
	return every(ctx, kubeconfigPeriod, func() error {
		// A file that is being replaced may be unreadable for a moment.
		if l, err := identity.LoadLink(p.cfg.Broker, p.cfg.Context); err == nil && l.Digest != p.membership.Identity.Digest {
			return errIdentityChanged
		}
		return nil
	})
}

// watchKinds returns errKindsChanged when the API server of this cluster has other kinds than those that are followed.
func (p *parts) watchKinds(ctx context.Context) error {
	return every(ctx, kindsPeriod, func() error {
		if kindsChanged(ctx, p.member.Client(), p.kinds) {
			return errKindsChanged
		}
		return nil
	})
}

// kindsChanged reports whether the kinds are others than before. While a required kind is missing they are not.
func kindsChanged(ctx context.Context, client *apiserver.Client, before member.Kinds) bool {
	kinds, err := member.CheckKinds(ctx, client)
	return err == nil && !kinds.NoImports && !kinds.Equal(before)
}
