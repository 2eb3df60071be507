package lease

import (
	"context"
	"fmt"
	"net/http"
	"os"
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
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// A Config names the Lease of an election.
type Config struct {
	REST      *rest.Config // the member's own API server; its rate limit does not count
	Namespace string       // of the Lease [wellknown.ControllerLease]
	Instance  string       // unique among all instances; see [NewInstance]
	Log       logging.Logger
	// Standby is called with the holder whenever another instance is found to hold the Lease. It may be nil.
	Standby func(holder string)
}

// An Election is one instance's part in the leader election. [Election.Run] repeats this cycle until its context ends:
//
//	candidate ── Lease won ──▶ leading: term runs, fence open ── Lease lost, or ctx ends ──▶ term returns, fence shut
//	    ▲                                                                                              │
//	    └────────────────────────────────── Lease released if it is still held ◀──────────────────────┘
type Election struct {
	lock  resourcelock.Interface
	http  *http.Client // of the lock
	fence *Fence
	// The durations of [leaderelection.LeaderElectionConfig].
	duration, deadline, retry time.Duration
}

// The timing of the election. The fence has the limit renewDeadline, so it shuts well before another instance may lead.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// NewInstance returns a name that no other instance has: "<host>_<uuid>". A reload overlaps two instances of one
// process.
func NewInstance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

// New returns an Election with a client of its own: its requests pass no fence and wait for no rate limit.
func New(cfg Config) (*Election, error) {
	config := rest.CopyConfig(cfg.REST)
	config.QPS, config.RateLimiter, config.Timeout = -1, nil, renewDeadline/2
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("election: client of %s: %w", config.Host, err)
	}
	client, err := coordinationv1.NewForConfigAndClient(config, connections)
	if err != nil {
		return nil, fmt.Errorf("election: client of %s: %w", config.Host, err)
	}
	if cfg.Standby == nil {
		cfg.Standby = func(string) {}
	}
	fence := NewFence(renewDeadline)
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: wellknown.ControllerLease},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Instance},
	}
	return &Election{
		lock: &fencedLock{
			Interface: lock, fence: fence, log: cfg.Log, standby: cfg.Standby,
			failures: map[string]*logging.Failure[string]{"get": {}, "create": {}, "update": {}},
		},
		http: connections, fence: fence,
		duration: leaseDuration, deadline: renewDeadline, retry: retryPeriod,
	}, nil
}

// Fence returns the fence that this election opens and shuts.
func (e *Election) Fence() *Fence { return e.fence }

// A fencedLock opens the fence when the Lease is renewed and shuts it before the Lease is released. It logs changes
// only: the elector retries every 2 s and logs each failure.
type fencedLock struct {
	resourcelock.Interface
	fence   *Fence
	log     logging.Logger
	standby func(holder string)

	failures map[string]*logging.Failure[string] // the class of the error, by verb
	holder   logging.OnChange[string]
}

// Get implements [resourcelock.Interface].
func (l *fencedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.report(ctx, "get", err)
	if err == nil {
		l.failures["create"].Changed("", nil) // another instance has created it
		if holder := record.HolderIdentity; l.holder.Changed(holder) && holder != "" && holder != l.Identity() {
			l.standby(holder)
		}
	}
	return record, raw, err
}

// report logs the first error of a class, further reasons of it, and its end. A Lease that does not exist yet and a
// lost race are normal.
func (l *fencedLock) report(ctx context.Context, verb string, err error) {
	class := ""
	switch {
	case ctx.Err() != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return
	case err == nil, verb == "get" && apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
	default:
		class = "error " + string(apierrors.ReasonForError(err))
	}
	switch {
	case !l.failures[verb].Changed(class, err):
	case class == "":
		l.log.Infof("election: requests to %s the lease %s succeed again", verb, l.Describe())
	default:
		l.log.Errorf("election: cannot %s the lease %s: %v; want its namespace, and the rights to get, create and update it",
			verb, l.Describe(), err)
	}
}

// Create implements [resourcelock.Interface].
func (l *fencedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.write(ctx, r, l.Interface.Create)
	l.report(ctx, "create", err)
	return err
}

// Update implements [resourcelock.Interface].
func (l *fencedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.write(ctx, r, l.Interface.Update)
	l.report(ctx, "update", err)
	return err
}

func (l *fencedLock) write(ctx context.Context, r resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	sent := time.Now()
	if r.HolderIdentity != l.Identity() {
		l.fence.Shut()
	}
	err := write(ctx, r)
	if err == nil && r.HolderIdentity == l.Identity() {
		l.fence.Renew(sent)
	}
	return err
}

// Run campaigns until ctx ends and calls term each time the Lease is won. The context of term ends when the Lease is
// lost. The Lease is released only after term has returned. An error of term ends Run, which returns it.
func (e *Election) Run(ctx context.Context, term func(context.Context) error) error {
	defer e.http.CloseIdleConnections()
	for ctx.Err() == nil {
		if err := e.campaign(ctx, term); err != nil {
			return err
		}
	}
	return nil
}

// campaign is one candidacy and, if it wins the Lease, one term.
func (e *Election) campaign(ctx context.Context, term func(context.Context) error) error {
	defer e.fence.Shut()
	started := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: e.duration, RenewDeadline: e.deadline, RetryPeriod: e.retry, ReleaseOnCancel: true,
		Name: wellknown.ControllerLease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) { started <- held },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	// The elector releases the Lease when its context ends, so that context outlasts the term.
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
