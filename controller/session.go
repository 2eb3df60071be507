package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/lease"
	"github.com/clusterset-dns/clusterset/controller/queue"
)

// errOther ends a session that was built for another identity than the cluster has now.
var errOther = errors.New("the identity of this cluster, or its broker, is another one")

// errKinds ends a session whose caches are those of other kinds.
var errKinds = errors.New("the API server of this cluster has other kinds than before")

// How often a session looks at what nobody tells it.
const (
	reviewEvery     = time.Second
	kubeconfigEvery = 5 * time.Second
	kindsEvery      = 5 * time.Minute
)

// A session is one identity of this cluster under one term of leadership: all caches, queues and workers. What it points to
// is there before the first worker starts, and stays.
type session struct {
	cfg      Config
	log      logging.Logger
	metrics  *Metrics
	instance string
	rest     *rest.Config // of the member's own API server; writes only with the lease
	fence    *lease.Fence
	has      kinds // of the member's own API server when the session began

	local      *local
	broker     *broker.Broker // never nil; without a kubeconfig it never answers
	member     *membership
	credential *credential
	exports    *queue.Queue
	imports    *queue.Queue
	events     *recorder
	vips       *vips
	lives      *liveness
	holds      *holds
	losses     *losses
	memory     *memory
	views      *views

	started atomic.Bool // what the handlers use beyond the queues is there
}

// newSession makes the caches of the member's own cluster. The broker is known only when they are complete.
func newSession(cfg Config, instance string, f *lease.Fence, has kinds) (*session, error) {
	s := &session{cfg: cfg, log: cfg.Log, metrics: cfg.Metrics, instance: instance, fence: f, has: has}
	s.rest = guarded(cfg.Local, sideLocal, f, cfg.Metrics)
	s.rest.RateLimiter, s.rest.QPS, s.rest.Burst = nil, cfg.QPS, cfg.Burst
	client, err := apiserver.NewClient(s.rest)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	s.exports = newQueue(queueExports, s.log, s.metrics)
	s.imports = newQueue(queueImports, s.log, s.metrics)
	s.holds = newHolds(s.log, s.metrics, s.addAll)
	s.memory = newMemory()
	s.local = newLocal(client, &s.cfg, has, s.localChanged)
	if s.events, err = newRecorder(s.rest, instance, s.metrics); err != nil {
		client.Close()
		return nil, err
	}
	return s, nil
}

// run works until ctx ends, and then returns nil, or until the identity changes: errOther.
func (s *session) run(ctx context.Context) error {
	defer s.local.client.Close()
	defer s.metrics.reset()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.local.run(ctx) })
	g.Go(func() error { return s.events.Run(ctx) })
	g.Go(func() error {
		if !s.awaitLocal(ctx) {
			return nil
		}
		return s.act(ctx)
	})
	return g.Wait()
}

// awaitLocal reports false if ctx ends before the caches of this cluster are complete.
func (s *session) awaitLocal(ctx context.Context) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !s.local.synced() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return ctx.Err() == nil
}

// act is the session from when the caches of this cluster are complete. The broker need not answer for it.
func (s *session) act(ctx context.Context) error {
	if err := s.nameCluster(ctx); err != nil {
		s.log.Errorf("cluster id: %v", err)
	}
	if err := s.connect(); err != nil {
		return err
	}
	defer s.broker.Close()
	s.vips = newVIPs(s)
	s.lives = newLiveness(s)
	s.losses = newLosses(s)
	s.views = newViews(s)
	s.review()
	s.started.Store(true)
	s.metrics.session.Store(s)
	s.addAll()

	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		s.broker.Run, s.lives.run, s.watchStanding, s.watchKubeconfig, s.watchKinds, s.heartbeat, s.credential.run,
	} {
		g.Go(func() error { return run(ctx) })
	}
	g.Go(func() error { return s.exports.Run(ctx, s.reconcileExport) })
	g.Go(func() error { return s.imports.Run(ctx, s.reconcileImport) })
	return g.Wait()
}

// nameCluster creates the ClusterProperty of the cluster id, if the Config has one and there is none (section 7).
func (s *session) nameCluster(ctx context.Context) error {
	if s.cfg.ClusterID == "" {
		return nil
	}
	if p := s.local.Property(about.ClusterIDName); p != nil {
		if p.Spec.Value != s.cfg.ClusterID {
			return fmt.Errorf("%q: ClusterProperty %s has %q; to rename a cluster, leave the clusterset and join again",
				s.cfg.ClusterID, about.ClusterIDName, p.Spec.Value)
		}
		return nil
	}
	p := s.local.newProperty(about.ClusterIDName, s.cfg.ClusterID)
	if err := s.local.client.Create(ctx, p); err != nil {
		return err
	}
	s.local.written(p)
	s.log.Infof("cluster id: set to %q", s.cfg.ClusterID)
	return nil
}

// connect makes the broker that the kubeconfig names, or one that never answers.
func (s *session) connect() error {
	l, err := loadLink(s.cfg.Broker, s.cfg.Context)
	if err != nil {
		s.log.Errorf("broker: %v; trying again", err)
	}
	s.member = &membership{identity: s.identity(l), namespace: l.namespace}
	s.credential = newCredential(s, l)
	s.broker, err = broker.New(broker.Config{
		REST:      s.credential.config(),
		Namespace: l.namespace, ClusterID: s.member.id, UID: s.member.uid,
		Log: s.log,
		// A link that is lost has to be known as such before its silence is taken for that of members.
		Interval: min(10*time.Second, s.cfg.TTL/6), Silence: min(25*time.Second, s.cfg.TTL*5/12),
		Changed:    s.brokerChanged,
		Everything: s.addAll,
		Heartbeat:  func(string) { s.lives.renewed() },
		Refused:    s.refused,
		Rewound:    func() { s.losses.rewound() },
		Listed:     func() { s.losses.listed() },
	})
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	return nil
}

// identity is what this cluster is now.
func (s *session) identity(l link) identity {
	e := s.evidence()
	i := identity{uid: e.joinUID, digest: l.digest}
	if apibroker.IsClusterID(e.id) {
		i.id = e.id
	}
	return i
}

// evidence is what the properties of this cluster say.
func (s *session) evidence() (e evidence) {
	if p := s.local.Property(about.ClusterIDName); p != nil {
		e.id = p.Spec.Value
	}
	if p := s.local.Property(about.ClusterSetName); p != nil {
		e.property = true
		_, e.leaving = p.Annotations[apibroker.AnnotationLeaving]
		e.joinUID = types.UID(p.Annotations[apibroker.AnnotationBrokerUID])
	}
	return e
}

// synced reports whether the caches of both API servers have been complete, and the list of the broker was compared with what
// is imported. Nothing is deleted before.
func (s *session) synced() bool { return s.local.synced() && s.broker.Synced() && s.losses.looked() }

// mayWriteBroker reports whether the broker is the one that was joined, as far as is known.
func (s *session) mayWriteBroker() bool {
	return s.member.digest != "" && !s.holds.any(holdBrokerIdentity, holdBrokerEmpty)
}

// watchStanding reviews all that nobody tells of until ctx ends.
func (s *session) watchStanding(ctx context.Context) error {
	return every(ctx, reviewEvery, func() error {
		if s.review(); s.identityChanged() {
			return errOther
		}
		return nil
	})
}

// every does the work once a period, first after one, until ctx ends or it fails.
func every(ctx context.Context, period time.Duration, do func() error) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// identityChanged reports that the properties name another cluster or broker.
func (s *session) identityChanged() bool {
	return s.local.synced() && s.identity(link{digest: s.member.digest}) != s.member.identity
}

// watchKubeconfig returns errOther when the kubeconfig changes.
func (s *session) watchKubeconfig(ctx context.Context) error {
	return every(ctx, kubeconfigEvery, func() error {
		// A file that is being replaced may be unreadable for a moment.
		if l, err := loadLink(s.cfg.Broker, s.cfg.Context); err == nil && l.digest != s.member.digest {
			return errOther
		}
		return nil
	})
}

// watchKinds returns errKinds when the API server of this cluster has other kinds than those that are followed.
func (s *session) watchKinds(ctx context.Context) error {
	return every(ctx, kindsEvery, func() error {
		if s.kindsChanged(ctx) {
			return errKinds
		}
		return nil
	})
}

// kindsChanged reports that the kinds are others. One that is not to be had at all is waited for as it is.
func (s *session) kindsChanged(ctx context.Context) bool {
	has, err := checkKinds(ctx, s.local.client)
	return err == nil && has != s.has
}

// review derives standing, holds and metrics from what is known now, and has everything looked at if that changes.
func (s *session) review() {
	e := s.evidence()
	e.broker = s.broker.State()
	e.taken = s.taken(e.id)
	now := judge(e)
	was := s.member.set(now)
	for _, h := range []hold{holdBrokerIdentity, holdBrokerEmpty} {
		detail := ""
		if now.held == h {
			detail = now.detail
		}
		s.holds.put(h, detail)
	}
	s.holds.put(holdCredential, s.credential.refused())
	s.holds.put(holdNotSynced, s.notSynced())
	s.losses.review()
	set(s.metrics.connected, e.broker.Link)
	set(s.metrics.member, now.id != "")
	if now == was {
		return
	}
	if now.id != was.id || now.detail != was.detail {
		s.tell(now)
	}
	s.addAll()
}

func (s *session) tell(now standing) {
	switch {
	case now.id != "" && now.settled && now.held == "":
		s.log.Infof("member %q of the clusterset, broker namespace %s", now.id, s.member.namespace)
	case now.held == "":
		s.log.Infof("%s", now.detail)
	}
}

// taken reports that the Member of this id is another cluster: two would write the same records.
func (s *session) taken(id string) bool {
	system := s.local.Namespace(metav1.NamespaceSystem)
	if system == nil || !s.broker.Synced() {
		return false
	}
	m := s.broker.Member(id)
	return m != nil && m.Spec.KubeSystemUID != string(system.UID)
}

// notSynced says which cache of a member is not complete, "" if all are.
func (s *session) notSynced() string {
	switch {
	case !s.local.synced():
		return "this cluster: " + s.local.set.Waiting()
	case s.member.ClusterID() == "":
	case s.member.digest == "":
		return "broker: its kubeconfig cannot be used"
	case !s.broker.Synced():
		return "broker: " + s.broker.Waiting()
	}
	return ""
}

// addAll has every service looked at, after all that changed.
func (s *session) addAll() {
	if !s.started.Load() {
		return
	}
	for _, svc := range s.local.Exports() {
		s.exports.Add(svc, queue.Backlog)
		s.imports.Add(svc, queue.Backlog)
	}
	for _, svc := range s.local.Imports() {
		s.imports.Add(svc, queue.Backlog)
	}
	for _, svc := range s.broker.OwnServices() {
		s.exports.Add(svc, queue.Backlog)
	}
	for _, svc := range s.broker.Services() {
		s.imports.Add(svc, queue.Backlog)
	}
}

// brokerChanged is told of records and slices of any member. Our own ones are put right, and follow an allocation of others.
func (s *session) brokerChanged(svc types.NamespacedName, initial bool) {
	p := queue.Live
	if initial {
		p = queue.Backlog
	}
	s.vips.heard(svc)
	s.imports.Add(svc, p)
	record, copies := s.broker.Own(svc)
	if record != nil || len(copies) > 0 || s.local.Export(svc) != nil {
		s.exports.Add(svc, p)
	}
}

// localChanged maps an object of this cluster to the services that depend on it.
func (s *session) localChanged(c change) {
	for _, o := range []metav1.Object{c.old, c.now} {
		switch o := o.(type) {
		case *corev1.Namespace:
			s.namespaceChanged(o.Name, c)
			return
		case *networkingv1.ServiceCIDR:
			s.addAll()
			return
		case *corev1.Service:
			s.serviceChanged(o, c.priority)
		case *mcsv1beta1.ServiceExport:
			s.exports.Add(keyOf(o), c.priority)
			s.imports.Add(keyOf(o), c.priority)
		case *mcsv1beta1.ServiceImport:
			s.imports.Add(keyOf(o), c.priority)
		case *discoveryv1.EndpointSlice:
			s.sliceChanged(o, c.priority)
		}
	}
}

func (s *session) serviceChanged(o *corev1.Service, p queue.Priority) {
	if svc, derived := s.local.importOf(o); derived {
		s.imports.Add(svc, p)
	}
	if s.local.Export(keyOf(o)) != nil {
		s.exports.Add(keyOf(o), p)
		s.imports.Add(keyOf(o), p)
	}
}

func (s *session) sliceChanged(o *discoveryv1.EndpointSlice, p queue.Priority) {
	for _, key := range sourceKeys(o) {
		if svc := parseKey(key); s.local.Export(svc) != nil {
			s.exports.Add(svc, p)
			s.imports.Add(svc, p)
		}
	}
	for _, key := range importedKeys(o) {
		s.imports.Add(parseKey(key), p)
	}
}

// namespaceChanged has the services of a namespace looked at. At the start they are anyway.
func (s *session) namespaceChanged(name string, c change) {
	if !s.started.Load() || c.priority == queue.Backlog {
		return
	}
	for _, svc := range s.local.Exports() {
		if svc.Namespace == name {
			s.exports.Add(svc, c.priority)
		}
	}
	for _, of := range [][]types.NamespacedName{s.local.Exports(), s.local.Imports(), s.broker.Services()} {
		for _, svc := range of {
			if svc.Namespace == name {
				s.imports.Add(svc, c.priority)
			}
		}
	}
}
