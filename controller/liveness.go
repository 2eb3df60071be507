package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/broker"
	judgement "github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/queue"
)

// liveness knows which members are expired (section 8). [liveness.expired] may be called from several goroutines.
type liveness struct {
	s    *session
	beat chan struct{} // a heartbeat was seen; holds one
	// since is when the session began: what changed before is backlog.
	since time.Time

	link  time.Time            // since when the link is healthy, zero while it is not; of run alone
	known map[string]time.Time // since when a cluster is known to be a member; of run alone

	mu      sync.Mutex
	verdict judgement.Verdict
}

func newLiveness(s *session) *liveness {
	return &liveness{s: s, since: time.Now(), beat: make(chan struct{}, 1), known: make(map[string]time.Time)}
}

// renewed says that a heartbeat was seen: a cluster that was expired is back at once.
func (l *liveness) renewed() {
	select {
	case l.beat <- struct{}{}:
	default: // it is looked at soon anyway
	}
}

// run judges until ctx ends; it then returns nil.
func (l *liveness) run(ctx context.Context) error {
	if l.s.cfg.TTL <= 0 {
		return nil
	}
	// Often enough to see the link go and to stay far within what is said of the time in which a dead member is out.
	ticker := time.NewTicker(min(time.Second, l.s.cfg.TTL/10))
	defer ticker.Stop()
	for {
		l.look(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-l.beat:
		}
	}
}

// look judges, and has the services looked at that import from members whose standing changed.
func (l *liveness) look(now time.Time) {
	view := l.view(now)
	l.mu.Lock()
	was := l.verdict
	l.verdict = was.Judge(view)
	is := l.verdict
	l.mu.Unlock()

	detail := ""
	if held := is.Held(); len(held) > 0 {
		detail = fmt.Sprintf("%d of %d members fell silent at once (%s): that may be the broker; their endpoints stay",
			len(held), len(view.Members), strings.Join(held[:min(len(held), 10)], ", "))
	}
	l.s.holds.put(holdMassExpiry, detail)
	changed := make(map[string]bool)
	for _, m := range view.Members {
		if expired := is.Expired(m.Cluster); expired != was.Expired(m.Cluster) {
			changed[m.Cluster] = true
			l.tell(m.Cluster, expired)
		}
	}
	if len(changed) > 0 {
		l.requeue(changed)
	}
}

func (l *liveness) tell(cluster string, expired bool) {
	if expired {
		l.s.log.Warningf("cluster %q: no heartbeat for %s; its endpoints: %s", cluster, l.s.cfg.TTL, l.s.cfg.OnExpiry)
		return
	}
	l.s.log.Infof("cluster %q: the heartbeat is back", cluster)
}

// view is what can be seen now.
func (l *liveness) view(now time.Time) judgement.View {
	state := l.s.broker.State()
	healthy := state.Link && state.Standing == broker.Admitted && l.s.broker.Synced()
	switch {
	case !healthy:
		l.link = time.Time{}
	case l.link.IsZero():
		l.link = now
	}
	v := judgement.View{Now: now, TTL: l.s.cfg.TTL, Link: l.link, Self: l.s.member.ClusterID()}
	seen, known := l.s.broker.Heartbeats(), make(map[string]time.Time)
	for _, m := range l.s.broker.Members() {
		since, old := l.known[m.Name]
		if !old {
			since = now
		}
		known[m.Name] = since
		v.Members = append(v.Members, judgement.Member{Cluster: m.Name, Known: since, Seen: seen[m.Name]})
	}
	l.known = known
	return v
}

// requeue has the services looked at that import from the clusters.
func (l *liveness) requeue(clusters map[string]bool) {
	for _, svc := range l.s.local.Imports() {
		imp := l.s.local.Import(svc)
		if imp == nil {
			continue
		}
		for _, c := range imp.Status.Clusters {
			if clusters[c.Cluster] {
				l.s.imports.Add(svc, queue.Backlog)
				break
			}
		}
	}
}

func (l *liveness) expired(cluster string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verdict.Expired(cluster)
}

// endpoints returns the slices of a service in another cluster, as they count while that one is expired or is not. They are
// shared: nobody may change them.
func (s *session) endpoints(svc types.NamespacedName, cluster string) []*discoveryv1.EndpointSlice {
	slices := s.broker.Slices(svc, cluster)
	if !s.lives.expired(cluster) {
		return slices
	}
	return s.cfg.OnExpiry.of(slices)
}

// of returns what is left of the slices of an expired member. With "not_ready" they say that they are not ready, and go on
// to say whether they serve and terminate: what is known of the pods did not change, only what can be relied on.
func (o OnExpiry) of(given []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	switch o {
	case Retain:
		return given
	case NotReady:
		left := make([]*discoveryv1.EndpointSlice, 0, len(given))
		for _, s := range given {
			s = s.DeepCopy()
			for i := range s.Endpoints {
				s.Endpoints[i].Conditions.Ready = new(bool)
			}
			left = append(left, s)
		}
		return left
	}
	return nil
}
