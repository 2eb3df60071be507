package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// A candidate is one instance that takes part in an election and does nothing while it leads.
type candidate struct {
	*election
	leading atomic.Bool
	terms   atomic.Int64
	client  *apiserver.Client // with the fence of the candidate
	stop    func()            // returns when the candidate has
}

func newCandidate(t *testing.T, server *controlplane.ControlPlane, name string) *candidate {
	t.Helper()
	e, err := newElection(server.Config(), metav1.NamespaceDefault, name, logging.Discard)
	if err != nil {
		t.Fatal(err)
	}
	e.lease, e.renew, e.wait, e.fence.limit = 15*time.Second, 10*time.Second, time.Second/2, 10*time.Second
	c := &candidate{election: e}
	if c.client, err = apiserver.NewClient(guarded(server.Config(), sideLocal, e.fence, NewMetrics(nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error {
		return e.lead(ctx, func(ctx context.Context) error {
			c.terms.Add(1)
			c.leading.Store(true)
			<-ctx.Done()
			c.leading.Store(false)
			return nil
		})
	})
	c.stop = func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.client.Close()
	}
	t.Cleanup(c.stop)
	return c
}

// write creates a namespace.
func (c *candidate) write(ctx context.Context, name string) error {
	return c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// Section 1: one of several leads; one that cannot renew its lease stops before another may begin, and writes nothing more.
func TestElection(t *testing.T) {
	server := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	a, b := newCandidate(t, server, "a"), newCandidate(t, server, "b")
	alone := func(what string, ok func() bool) {
		t.Helper()
		await(t, what, func() bool {
			if a.fence.open() && b.fence.open() {
				t.Errorf("%s: two may write", what)
			}
			return ok()
		})
	}
	alone("one leads", func() bool { return a.leading.Load() != b.leading.Load() })
	leader, other := a, b
	if b.leading.Load() {
		leader, other = b, a
	}
	await(t, "the leader may write", func() bool { return leader.write(t.Context(), "one") == nil })
	if err := other.write(t.Context(), "two"); !errors.Is(err, errNotLeader) {
		t.Errorf("a write of the other: %v, want that it is refused", err)
	}

	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	alone("nobody leads while nobody answers", func() bool { return !a.leading.Load() && !b.leading.Load() })
	for _, c := range []*candidate{a, b} {
		if err := c.write(t.Context(), "three"); !errors.Is(err, errNotLeader) {
			t.Errorf("a write without the lease: %v, want that it is refused", err)
		}
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	alone("one leads again", func() bool { return a.leading.Load() != b.leading.Load() })

	leader, other = a, b
	if b.leading.Load() {
		leader, other = b, a
	}
	leader.stop()
	if leader.leading.Load() || leader.fence.open() {
		t.Error("the leader has stopped, and leads or may write")
	}
	alone("the other leads", other.leading.Load)
	await(t, "the other may write", func() bool { return other.write(t.Context(), "four") == nil })
}

// The lease is given up only when the term is over: who takes it meets nobody at work.
func TestLeaseOutlastsTerm(t *testing.T) {
	server := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	e, err := newElection(server.Config(), metav1.NamespaceDefault, "a", logging.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = e.lead(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		if !e.fence.open() {
			t.Error("the lease was given up before the term was over")
		}
		return errNotLeader
	})
	if !errors.Is(err, errNotLeader) {
		t.Errorf("lead: %v, want the error of the term", err)
	}
	if e.fence.open() {
		t.Error("the fence is open after the term")
	}
	checkTold(t, server)
	record, _, err := e.lock.Get(t.Context())
	if err != nil || record.HolderIdentity != "" {
		t.Errorf("the lease is held by %v (%v), want nobody", record, err)
	}
}

// checkTold has a lease that cannot be made: that is told once, and that it can be made again.
func checkTold(t *testing.T, server *controlplane.ControlPlane) {
	t.Helper()
	log := &journal{}
	e, err := newElection(server.Config(), "later", "a", log)
	if err != nil {
		t.Fatal(err)
	}
	defer e.http.CloseIdleConnections()
	try := func() error {
		if _, _, err := e.lock.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("get: %v, want not found", err)
		}
		return e.lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15})
	}
	for range 3 {
		if err := try(); !apierrors.IsNotFound(err) {
			t.Errorf("create without the namespace: %v, want not found", err)
		}
	}
	client, err := apiserver.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}); err != nil {
		t.Fatal(err)
	}
	if err := try(); err != nil {
		t.Error(err)
	}
	failed, again := log.count("error: election: cannot create the lease later/"+LeaseName), log.count("info: election: ")
	if failed != 1 || again != 1 || log.count("") != 2 {
		t.Errorf("told %d times that it fails and %d that it does not, want one line each:\n%s", failed, again, log)
	}
}
