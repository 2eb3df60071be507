package controller

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// LeaseName is the name of the Lease in the controller's namespace that says which instance acts.
const LeaseName = "clusterset-controller"

// An election is one instance's part in choosing who acts. Its durations are those of [leaderelection.LeaderElectionConfig].
type election struct {
	lock               resourcelock.Interface
	http               *http.Client // of the lock
	fence              *fence
	lease, renew, wait time.Duration
	standby            func(holder string) // called when another instance is found to have the lease
}

// The timing of the election. The fence shuts when an instance that cannot renew gives up, well before another may lead.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// newInstance names this instance among all of the process and the cluster: a reload overlaps two of one process.
func newInstance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

// newElection has a client of its own, whose requests need no fence and wait for nobody else's.
func newElection(cfg *rest.Config, namespace, instance string, log logging.Logger) (*election, error) {
	config := rest.CopyConfig(cfg)
	config.QPS, config.RateLimiter, config.Timeout = -1, nil, renewDeadline/2
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("election: client of %s: %w", cfg.Host, err)
	}
	client, err := coordinationv1.NewForConfigAndClient(config, connections)
	if err != nil {
		return nil, fmt.Errorf("election: client of %s: %w", cfg.Host, err)
	}
	f := &fence{limit: renewDeadline}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: LeaseName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: instance},
	}
	e := &election{
		http: connections, fence: f, lease: leaseDuration, renew: renewDeadline, wait: retryPeriod, standby: func(string) {},
	}
	e.lock = &fencedLock{
		Interface: lock, fence: f, log: log, failed: make(map[string]string), found: func(holder string) { e.standby(holder) },
	}
	return e, nil
}

// A fencedLock opens the fence when the lease is renewed and shuts it before the lease is given up.
type fencedLock struct {
	resourcelock.Interface
	fence *fence
	log   logging.Logger

	found func(holder string) // called with another holder than the last, which is not this instance

	mu     sync.Mutex
	failed map[string]string // the kind of error that was told, by verb
	holder string            // that was found last
}

// Get implements [resourcelock.Interface].
func (l *fencedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.tell(ctx, "get", err)
	if err == nil {
		l.look(record.HolderIdentity)
	}
	return record, raw, err
}

func (l *fencedLock) look(holder string) {
	l.mu.Lock()
	news := holder != l.holder
	l.holder = holder
	l.mu.Unlock()
	if news && holder != "" && holder != l.Identity() {
		l.found(holder)
	}
}

// tell tells of the first error of a kind, and of its end. What the elections live with is none: that there is no lease yet,
// and that another one was faster.
func (l *fencedLock) tell(ctx context.Context, verb string, err error) {
	kind := ""
	switch {
	case ctx.Err() != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return
	case err == nil, verb == "get" && apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
	default:
		kind = "error " + string(apierrors.ReasonForError(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if verb == "get" && err == nil {
		delete(l.failed, "create") // somebody else has
	}
	was := l.failed[verb]
	switch kind {
	case was:
	case "":
		delete(l.failed, verb)
		l.log.Infof("election: the lease %s can be had again (%s)", l.Describe(), verb)
	default:
		l.failed[verb] = kind
		l.log.Errorf("election: cannot %s the lease %s: %v; want its namespace, and the rights to get, create and update it",
			verb, l.Describe(), err)
	}
}

// Create implements [resourcelock.Interface].
func (l *fencedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.write(ctx, r, l.Interface.Create)
	l.tell(ctx, "create", err)
	return err
}

// Update implements [resourcelock.Interface].
func (l *fencedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.write(ctx, r, l.Interface.Update)
	l.tell(ctx, "update", err)
	return err
}

func (l *fencedLock) write(ctx context.Context, r resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	at := time.Now()
	if r.HolderIdentity != l.Identity() {
		l.fence.shut()
	}
	err := write(ctx, r)
	if err == nil && r.HolderIdentity == l.Identity() {
		l.fence.renew(at)
	}
	return err
}

// lead campaigns until ctx ends and calls term each time that the lease is won; the context of term ends with the lease. The
// lease is given up only after term has returned. An error of term ends it all and is returned.
func (e *election) lead(ctx context.Context, term func(context.Context) error) error {
	defer e.http.CloseIdleConnections()
	for ctx.Err() == nil {
		if err := e.campaign(ctx, term); err != nil {
			return err
		}
	}
	return nil
}

// campaign is one candidacy, and the term that it may lead to.
func (e *election) campaign(ctx context.Context, term func(context.Context) error) error {
	defer e.fence.shut()
	started := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: e.lease, RenewDeadline: e.renew, RetryPeriod: e.wait, ReleaseOnCancel: true, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) { started <- held },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	// The elector gives the lease up when its context ends: that has to outlast the term.
	candidacy, withdraw := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(candidacy)
	}()
	defer func() {
		withdraw()
		<-over
	}()
	select {
	case <-ctx.Done():
	case <-over:
	case held := <-started:
		return serve(ctx, held, term)
	}
	return nil
}

// serve runs a term that ends with either context.
func serve(ctx, held context.Context, term func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(held, cancel)
	defer stop()
	return term(ctx)
}
