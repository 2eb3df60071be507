package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errGuard says that the API server is not the one, or not in the state, that is followed.
var errGuard = errors.New("the API server went back in time or is another one")

// A guard finds what client-go does not: an API server whose etcd was restored to an older state
// (kubernetes/kubernetes#107457), or another cluster behind the same address.
type guard struct {
	uid atomic.Pointer[types.UID] // of the namespace kube-system, nil if not known

	mu      sync.Mutex // held while a look goes on; guards what follows
	checked uint64     // how many connections had been made at the last check that was answered
	err     error      // of the last check, if it got no answer
	at      time.Time
}

// checkTimeout bounds one look, which asks for two small answers.
const checkTimeout = 15 * time.Second

// checkNewConnection looks again if a connection was made since the last look: only then can it be another server that
// the next watch of f reaches.
func (s *Store) checkNewConnection(ctx context.Context, f *feed) error {
	g := &s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if dials := s.client.dials.Load(); dials > 0 && dials == g.checked {
		return nil
	}
	// Those that waited for a look that got no answer need no other one.
	if g.err != nil && time.Since(g.at) < answerAge {
		return g.err
	}
	err := s.check(ctx, f)
	g.err = nil
	if troubleOf(err) == lost && ctx.Err() == nil {
		g.err, g.at = err, time.Now()
	}
	return err
}

// watchVersion looks every CheckInterval until ctx ends.
func (s *Store) watchVersion(ctx context.Context) error {
	ticker := time.NewTicker(s.cfg.CheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, f := range s.feeds {
			if f.seen.Load() > 0 {
				s.guard.mu.Lock()
				_ = s.check(ctx, f) // What it finds, it acts upon; that there is no answer, the watches find out.
				s.guard.mu.Unlock()
				break
			}
		}
	}
}

// check looks whether the API server is the one that is followed, and whether it still knows what it told of f. The
// caller holds the guard.
func (s *Store) check(ctx context.Context, f *feed) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	g := &s.guard
	var system struct {
		metav1.PartialObjectMetadata
	}
	err := s.client.get(ctx, &system, "/api/v1/namespaces", metav1.NamespaceSystem)
	switch {
	case err != nil && troubleOf(err) == lost:
		return err
	case err != nil: // Not permitted, so only the version tells.
	case g.uid.CompareAndSwap(nil, &system.UID): // the first look
	case *g.uid.Load() != system.UID:
		if s.replaced() {
			g.uid.Store(&system.UID)
		}
		return errGuard
	}
	s.contact.Store(time.Now().UnixNano())
	if seen := f.seen.Load(); seen > 0 {
		now, err := f.newest(ctx)
		switch {
		case err != nil && troubleOf(err) == lost:
			return err
		case err == nil && now > 0 && now < seen:
			s.rewound(f, seen, now)
			return errGuard
		case err == nil:
			f.touch()
		}
	}
	g.checked = s.client.dials.Load()
	return nil
}

// findNode asks for the labels of the Node until they say where it stands.
func (s *Store) findNode(ctx context.Context) error {
	told, pause := false, firstPause
	for {
		var node struct {
			metav1.PartialObjectMetadata
		}
		err := s.client.get(ctx, &node, "/api/v1/nodes", s.cfg.TopologyNode)
		zone, region := node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion]
		if err == nil && (zone != "" || region != "") {
			s.cfg.Log.Infof("%s: node %s stands in zone %q, region %q", s.cfg.Name, s.cfg.TopologyNode, zone, region)
			s.objects.stand(zone, region)
			return nil
		}
		if ctx.Err() == nil && !told && (err == nil || troubleOf(err) != lost) {
			told = true
			s.cfg.Log.Warningf("%s: node %s: zone and region are not known yet: %s", s.cfg.Name, s.cfg.TopologyNode, whyNot(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

func whyNot(err error) string {
	switch {
	case err == nil:
		return fmt.Sprintf("it has neither label %s nor %s", corev1.LabelTopologyZone, corev1.LabelTopologyRegion)
	case apierrors.IsForbidden(err):
		return "the right to get it is missing"
	}
	return short(err)
}
