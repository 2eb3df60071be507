package lease

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
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A candidate is one instance that takes part in an election and does nothing while it leads.
type candidate struct {
	*Election
	leading atomic.Bool
	client  *apiserver.Client // with the fence of the candidate
	stop    func()            // returns when the candidate has
}

func newElection(t *testing.T, server *controlplane.ControlPlane, namespace, instance string,
	log logging.Logger) *Election {
	t.Helper()
	e, err := New(Config{REST: server.Config(), Namespace: namespace, Instance: instance, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newCandidate(t *testing.T, server *controlplane.ControlPlane, name string) *candidate {
	t.Helper()
	e := newElection(t, server, metav1.NamespaceDefault, name, logging.Discard)
	e.duration, e.deadline, e.retry, e.fence.limit = 15*time.Second, 10*time.Second, time.Second/2, 10*time.Second
	c := &candidate{Election: e}
	var err error
	if c.client, err = apiserver.NewClient(e.fence.Guard(server.Config(), func(string, string) {})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error {
		return e.Run(ctx, func(ctx context.Context) error {
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

// One of several instances leads. A leader that cannot renew the Lease stops writing before another one may lead
// (docs/spec/controller.md 1).
func TestElection(t *testing.T) {
	server := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	a, b := newCandidate(t, server, "a"), newCandidate(t, server, "b")
	alone := func(what string, ok func() bool) {
		t.Helper()
		until.True(t, what, func() bool {
			if a.fence.Open() && b.fence.Open() {
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
	until.True(t, "the leader may write", func() bool { return leader.write(t.Context(), "one") == nil })
	if err := other.write(t.Context(), "two"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("a write of the other: %v, want ErrNotHeld", err)
	}

	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	alone("no instance leads while the API server is frozen",
		func() bool { return !a.leading.Load() && !b.leading.Load() })
	for _, c := range []*candidate{a, b} {
		if err := c.write(t.Context(), "three"); !errors.Is(err, ErrNotHeld) {
			t.Errorf("a write without the lease: %v, want ErrNotHeld", err)
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
	if leader.leading.Load() || leader.fence.Open() {
		t.Error("the leader has stopped, and leads or may write")
	}
	alone("the other leads", other.leading.Load)
	until.True(t, "the other may write", func() bool { return other.write(t.Context(), "four") == nil })
}

// The Lease is released only after the term has returned: no worker of the old leader is left when the next one begins.
func TestLeaseOutlastsTerm(t *testing.T) {
	server := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	e := newElection(t, server, metav1.NamespaceDefault, "a", logging.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := e.Run(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		if !e.fence.Open() {
			t.Error("the Lease was released before the term was over")
		}
		return ErrNotHeld
	})
	if !errors.Is(err, ErrNotHeld) {
		t.Errorf("lead: %v, want the error of the term", err)
	}
	if e.fence.Open() {
		t.Error("the fence is open after the term")
	}
	var record *resourcelock.LeaderElectionRecord
	record, _, err = e.lock.Get(t.Context())
	if err != nil || record.HolderIdentity != "" {
		t.Errorf("the lease is held by %v (%v), want it released", record, err)
	}
}

// A Lease that cannot be created is logged once, and so is the end of it.
func TestElectionLogsChanges(t *testing.T) {
	server := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	log := &logtest.Recorder{}
	e := newElection(t, server, "later", "a", log)
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
	failed, again := log.Count("error: election: cannot create the lease later/"+wellknown.ControllerLease),
		log.Count("info: election: ")
	if failed != 1 || again != 1 || log.Count("") != 2 {
		t.Errorf("%d lines of failure and %d of success, want one of each:\n%s", failed, again, log)
	}
}
