package safety

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// relistPeriod is the least time between two lists of the objects of a silent member; it doubles up to maxRelistPeriod.
const relistPeriod, maxRelistPeriod = time.Second, time.Minute

// A relist holds the time of the last list of a silent member's objects, and the pause after it.
type relist struct {
	at    time.Time
	pause time.Duration
}

// next returns the next one, and whether it is due.
func (r relist) next(now time.Time) (relist, bool) {
	return relist{now, min(max(relistPeriod, 2*r.pause), maxRelistPeriod)}, now.Sub(r.at) >= r.pause
}

// An ExpiryConfig sets the parts that an [Expiry] uses.
type ExpiryConfig struct {
	Member    *member.Cluster
	Broker    *broker.Broker
	ClusterID string // of this cluster, which is never silent
	Namespace string // of this controller
	Freezes   *Freezes
	TTL       func() time.Duration // age from which a heartbeat is expired; 0 if heartbeats do not expire
	OnExpiry  liveness.OnExpiry
	Log       logging.Logger
	Barrier   *logging.Barrier // nil counts and logs no panic
	// Requeue reconciles imports again. The returned function reports whether each was reconciled; the next call of
	// Requeue ends that.
	Requeue func([]types.NamespacedName) (tried func() bool)
}

// An Expiry decides periodically which members are silent (docs/spec/controller.md 8). It passes the heartbeats of the
// others, and the echo of our own, to package liveness, and requeues the services of changed members. It notes the
// silent members before it acts, for the next process.
//
// [Expiry.Run] is the only writer; the other methods may be called by several goroutines.
type Expiry struct {
	ExpiryConfig
	note member.LeaseNote

	// Used by Run alone.
	echo     liveness.Echo        // of our own heartbeats
	known    map[string]time.Time // since when a cluster is known to be a member
	relisted map[string]relist    // of silent members
	saved    time.Time            // when the note was
	tried    func() bool          // whether the services of returning members were reconciled; may be nil
	failing  logging.Failure[bool]

	mu     sync.Mutex
	result liveness.Result
}

// NewExpiry returns an Expiry that starts from the note of an earlier process.
func NewExpiry(ctx context.Context, cfg ExpiryConfig) (*Expiry, error) {
	cfg.Barrier = cmp.Or(cfg.Barrier, &logging.Barrier{})
	e := &Expiry{
		ExpiryConfig: cfg, known: make(map[string]time.Time), relisted: make(map[string]relist),
		note: member.LeaseNote{Cluster: cfg.Member, Namespace: cfg.Namespace, Lease: wellknown.ControllerLease,
			Key: wellknown.AnnotationSilent},
	}
	if e.TTL() <= 0 {
		return e, nil
	}
	text, err := e.note.Await(ctx, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("silent members: %w", err)
	}
	var silent map[string]liveness.Silence
	if err := json.Unmarshal([]byte(text), &silent); err != nil && text != "" {
		cfg.Log.Errorf("silent members: annotation %s of the Lease: %v", wellknown.AnnotationSilent, err)
	}
	e.result = liveness.RestoredResult(silent, cfg.OnExpiry, time.Now())
	return e, nil
}

// costOfMember is the least time between two evaluations, for each member.
const costOfMember = 5 * time.Millisecond

// Run evaluates the heartbeats until ctx ends; it then returns nil.
func (e *Expiry) Run(ctx context.Context) error {
	ttl := e.TTL()
	if ttl <= 0 {
		return nil
	}
	for {
		if e.Broker.Synced() { // until the members are known, all stays as it was left
			e.Barrier.Do("expiry", func() string { return "of members" }, func() {
				err := e.evaluate(ctx, time.Now())
				if e.failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
					e.Log.Warningf("heartbeats of others: %v; trying again", err)
				}
			})
		}
		// Often enough to notice a lost link or a dead member in time. With a thousand members, which have longer TTLs,
		// each second would take half a percent of a core.
		pause := max(min(time.Second, ttl/10), time.Duration(len(e.known))*costOfMember)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// evaluate applies the rule, notes the silent members, and requeues the imports that change. If the note fails, nothing
// changes.
func (e *Expiry) evaluate(ctx context.Context, now time.Time) (err error) {
	in := e.inputs(now)
	e.Freezes.Set(OwnHeartbeat, e.expiryBlocked(now, in.TTL))
	before := e.Result()
	next, silent, back := before.WithoutClusters(e.Broker.Members.Removed).Next(in)
	for _, m := range silent {
		stored, readErr := e.Broker.Heartbeats.Read(ctx, m.Cluster)
		switch {
		case readErr != nil:
			err = cmp.Or(err, readErr)
		case stored.Stamp <= m.Heartbeat.Stamp || stored.Blind: // else the watch lags behind
			next = next.Silence(m.Cluster, max(m.Heartbeat.Stamp, stored.Stamp), e.OnExpiry, now)
		}
	}
	ended := e.tried != nil && e.tried()
	if ended {
		next = next.WithoutClusters(next.Returning)
	}
	// An evaluation that took long would give all members a new TTL.
	limited, cancel := context.WithTimeout(ctx, in.TTL/4)
	defer cancel()
	maps.DeleteFunc(e.relisted, func(cluster string, _ relist) bool {
		return !slices.ContainsFunc(back, func(m liveness.Member) bool { return m.Cluster == cluster })
	})
	for _, m := range back {
		if limited.Err() != nil {
			break // the others are asked next time
		}
		ok, readErr := e.isBack(limited, m, before.Silences()[m.Cluster].Seen, now)
		if err = cmp.Or(err, readErr); ok {
			next = next.Return(m.Cluster, in.TTL, now)
		}
	}
	if noteErr := e.save(ctx, before, next, now); noteErr != nil {
		return noteErr
	}
	if ended {
		e.tried = nil
	}
	e.mu.Lock()
	e.result = next
	e.mu.Unlock()
	e.apply(before, next, in)
	return err
}

// isBack reports whether the caches are as new as a list of a silent member's objects, and its heartbeat on the broker
// ends its silence before and after that list. Then the caches hold nothing from before the silence. It asks once a
// second at first, ever more seldom then, and not while imports are suspended.
func (e *Expiry) isBack(ctx context.Context, m liveness.Member, seen protocol.Stamp, now time.Time) (bool, error) {
	next, due := e.relisted[m.Cluster].next(now)
	if !due || e.Freezes.Suspended(Import) != "" {
		return false, nil
	}
	e.relisted[m.Cluster] = next
	counts := func() (bool, error) {
		stored, err := e.Broker.Heartbeats.Read(ctx, m.Cluster)
		return err == nil && stored.EndsSilence(seen), err
	}
	if ok, err := counts(); !ok { // the Lease may have changed since the watch brought its heartbeat
		return false, err
	}
	if caughtUp, err := e.Broker.Heartbeats.Relist(ctx, m.Cluster); !caughtUp || err != nil {
		return false, err
	}
	ok, err := counts()
	if ok {
		delete(e.relisted, m.Cluster)
	}
	return ok, err
}

// save writes the note if it changes, and once a minute, since the Lease may be a new one.
func (e *Expiry) save(ctx context.Context, previous, next liveness.Result, now time.Time) error {
	before, after := previous.Silences(), next.Silences()
	same := maps.EqualFunc(before, after, func(a, b liveness.Silence) bool {
		return a.Since.Equal(b.Since) && a.Seen == b.Seen
	})
	if same && (len(after) == 0 || now.Sub(e.saved) < time.Minute) {
		return nil
	}
	text := ""
	if len(after) > 0 {
		b, err := json.Marshal(after)
		if err != nil {
			return err
		}
		text = string(b)
	}
	err := e.note.Save(ctx, text)
	if err == nil {
		e.saved = now
	}
	return err
}

// apply logs changes, and requeues their imports.
func (e *Expiry) apply(before, next liveness.Result, in liveness.Inputs) {
	var changed, returning []string
	for _, silences := range []map[string]liveness.Silence{before.Silences(), next.Silences()} {
		for c := range silences {
			if next.Returning(c) {
				returning = append(returning, c)
			}
			if before.Part(c) != next.Part(c) || next.Returning(c) && !before.Returning(c) {
				changed = append(changed, c)
			}
		}
	}
	for _, m := range in.Members {
		if silent := next.Silent(m.Cluster); silent != before.Silent(m.Cluster) {
			e.report(m, silent, m.SilentAge(in.TTL))
		}
	}
	if len(changed) == 0 {
		return
	}
	tried := e.Requeue(e.importedFrom(slices.Concat(changed, returning)))
	if len(returning) > 0 {
		e.tried = tried
	}
}

// expiryBlocked returns why no member can fall silent, or "".
func (e *Expiry) expiryBlocked(now time.Time, ttl time.Duration) string {
	if !e.echo.Missing(now, ttl) {
		return ""
	}
	return fmt.Sprintf(
		"for %s no heartbeat of this cluster was both written to the broker and seen there: no other member expires", ttl/2)
}

func (e *Expiry) report(m liveness.Member, silent bool, ttl time.Duration) {
	switch {
	case silent && m.Heartbeat.Blind:
		e.Log.Warningf("cluster %q: it says that it does not see its own state; its endpoints: %s", m.Cluster, e.OnExpiry)
	case silent:
		e.Log.Warningf("cluster %q: no heartbeat for %s; its endpoints: %s", m.Cluster, ttl, e.OnExpiry)
	default:
		e.Log.Infof("cluster %q: the heartbeat is back", m.Cluster)
	}
}

// inputs returns the inputs of an evaluation at now.
func (e *Expiry) inputs(now time.Time) liveness.Inputs {
	sent, ttl := e.Broker.Heartbeats.Echo(), e.TTL()
	if e.Broker.State().Membership != broker.Admitted || !e.Broker.Synced() {
		sent = time.Time{} // the members are not known
	}
	e.echo = e.echo.Next(now, sent, ttl)
	in := liveness.Inputs{Now: now, TTL: ttl, OnExpiry: e.OnExpiry, Echoed: e.echo.Since, Self: e.ClusterID}
	known := make(map[string]time.Time)
	for _, m := range e.Broker.Heartbeats.Liveness() {
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

// importedFrom returns the services that are imported from one of the clusters.
func (e *Expiry) importedFrom(clusters []string) []types.NamespacedName {
	return slices.DeleteFunc(e.Member.Imports(), func(svc types.NamespacedName) bool {
		imp := e.Member.Import(svc)
		return imp == nil || !slices.ContainsFunc(imp.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool {
			return slices.Contains(clusters, c.Cluster)
		})
	})
}

// Result returns which members are silent now.
func (e *Expiry) Result() liveness.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result
}
