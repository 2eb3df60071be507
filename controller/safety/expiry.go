package safety

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// An ExpiryConfig says what an [Expiry] watches.
type ExpiryConfig struct {
	Member    *member.Cluster
	Broker    *broker.Broker
	ClusterID string // of this cluster, which never expires
	Freezes   *Freezes
	TTL       time.Duration // age from which a heartbeat is expired; 0 if heartbeats do not expire
	OnExpiry  OnExpiry
	Log       logging.Logger
	Barrier   *logging.Barrier           // nil counts and logs no panic
	Requeue   func(types.NamespacedName) // reconciles the import of a service again
}

// An Expiry decides periodically which members are expired (docs/spec/controller.md 8). It passes the heartbeats
// of the others, and the echo of our own, to package liveness, which has the rule, and requeues the services of a member when the member
// expires or returns. [Expiry.Run] is the only writer; the other methods may be called by several goroutines.
type Expiry struct {
	ExpiryConfig
	renewed chan struct{} // a heartbeat was seen; capacity 1

	echo  liveness.Echo        // of our own heartbeats; used by Run alone
	known map[string]time.Time // since when a cluster is known to be a member; used by Run alone

	mu     sync.Mutex
	result liveness.Result
}

// NewExpiry returns an Expiry in which those members are expired that an earlier process left so. The caches of this cluster
// are complete.
func NewExpiry(cfg ExpiryConfig) *Expiry {
	cfg.Barrier = cmp.Or(cfg.Barrier, &logging.Barrier{})
	e := &Expiry{ExpiryConfig: cfg, renewed: make(chan struct{}, 1), known: make(map[string]time.Time)}
	if cfg.TTL > 0 {
		e.result = liveness.Restored(leftOut(imported(cfg.Member), cfg.ClusterID, cfg.OnExpiry))
	}
	return e
}

// Renewed reports that a heartbeat was seen: a member that was expired returns at once.
func (e *Expiry) Renewed() {
	select {
	case e.renewed <- struct{}{}:
	default: // an evaluation is due already
	}
}

// Run evaluates the heartbeats until ctx ends; it then returns nil.
func (e *Expiry) Run(ctx context.Context) error {
	if e.TTL <= 0 {
		return nil
	}
	// Often enough to notice a lost link, and to keep the promised time until a dead member is removed.
	ticker := time.NewTicker(min(time.Second, e.TTL/10))
	defer ticker.Stop()
	what := func() string { return "of members" }
	for {
		if e.Broker.Synced() { // until the members are known, all stays as it was left
			e.Barrier.Do("expiry", what, func() { e.evaluate(time.Now()) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-e.renewed:
		}
	}
}

// evaluate applies the rule and requeues the imports from members that expired or returned.
func (e *Expiry) evaluate(now time.Time) {
	inputs := e.inputs(now)
	e.mu.Lock()
	was := e.result
	e.result = was.Evaluate(inputs)
	is := e.result
	e.mu.Unlock()

	detail := ""
	if frozen := is.Frozen(); len(frozen) > 0 {
		detail = fmt.Sprintf("%d of %d members went silent at once (%s): the broker may be the cause; their endpoints stay",
			len(frozen), len(inputs.Members), strings.Join(frozen[:min(len(frozen), 10)], ", "))
	}
	e.Freezes.Set(MassExpiry, detail)
	e.Freezes.Set(OwnHeartbeat, e.withheld(now))
	changed := make(map[string]bool)
	for _, m := range inputs.Members {
		if expired := is.Expired(m.Cluster); expired != was.Expired(m.Cluster) {
			changed[m.Cluster] = true
			e.report(m.Cluster, expired)
		}
	}
	if len(changed) > 0 {
		e.requeue(changed)
	}
}

// withheld says why no member can expire, "" if members can.
func (e *Expiry) withheld(now time.Time) string {
	if !e.echo.Missing(now, e.TTL) {
		return ""
	}
	return fmt.Sprintf("for %s no heartbeat of this cluster was both written to the broker and seen there: no other member expires", e.TTL/2)
}

func (e *Expiry) report(cluster string, expired bool) {
	if expired {
		e.Log.Warningf("cluster %q: no heartbeat for %s; its endpoints: %s", cluster, e.TTL, e.OnExpiry)
		return
	}
	e.Log.Infof("cluster %q: the heartbeat is back", cluster)
}

// inputs returns the inputs of an evaluation at now.
func (e *Expiry) inputs(now time.Time) liveness.Inputs {
	sent := e.Broker.Echo()
	if e.Broker.State().Membership != broker.Admitted || !e.Broker.Synced() {
		sent = time.Time{} // who the members are is not known
	}
	e.echo = e.echo.Next(now, sent, e.TTL)
	in := liveness.Inputs{Now: now, TTL: e.TTL, Echoed: e.echo.Since(), Self: e.ClusterID}
	known := make(map[string]time.Time)
	for _, m := range e.Broker.Liveness() {
		since, old := e.known[m.Cluster]
		if !old {
			since = now
		}
		known[m.Cluster], m.Known = since, since
		in.Members = append(in.Members, m)
	}
	e.known = known
	return in
}

// requeue reconciles the services again that are imported from the clusters.
func (e *Expiry) requeue(clusters map[string]bool) {
	for _, svc := range e.Member.Imports() {
		imp := e.Member.Import(svc)
		if imp == nil {
			continue
		}
		for _, c := range imp.Status.Clusters {
			if clusters[c.Cluster] {
				e.Requeue(svc)
				break
			}
		}
	}
}

// Result returns which clusters are expired now, and which are frozen.
func (e *Expiry) Result() liveness.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result
}

// Expired reports whether a cluster is expired.
func (e *Expiry) Expired(cluster string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result.Expired(cluster)
}
