package memberenv

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/series"
)

// An Instance is the member's view of its own API server and of the broker, from which a test builds the part under
// test.
type Instance struct {
	*Env
	Member     *member.Cluster
	Broker     *broker.Broker
	Membership *identity.Membership
	Freezes    *safety.Freezes
	Conditions member.Conditions
	Metrics    *metrics.Metrics
	Log        *logtest.Recorder
	Writes     *Writes
	// End stops the instance and waits for it. The end of the test does the same.
	End func()

	mu       sync.Mutex
	rejected []string
	registry *prometheus.Registry
	group    *errgroup.Group
	ctx      context.Context
}

// Start returns an Instance whose caches of the member are complete. The member must have joined, see [Env.Join].
func (e *Env) Start(serviceCIDRs ...netip.Prefix) *Instance {
	e.Helper()
	i := &Instance{Env: e, Writes: &Writes{gets: make(map[string]int)}, Log: &logtest.Recorder{},
		registry: prometheus.NewRegistry()}
	i.Metrics = metrics.New(i.registry, metrics.Labels{})
	rest := e.Server.Config()
	rest.QPS, rest.Burst = 1000, 2000
	rest.Wrap(func(next http.RoundTripper) http.RoundTripper { return i.Writes.over(next) })
	var err error
	must := func() {
		e.Helper()
		if err != nil {
			e.Fatal(err)
		}
	}
	i.Member, err = member.New(member.Config{REST: rest, Kinds: e.Kinds, ServiceCIDRs: serviceCIDRs, Log: i.Log,
		Rejected: i.reject})
	must()
	events, err := member.NewEvents(i.Member, rest, "test", i.Metrics)
	must()
	i.Conditions = member.NewConditions(i.Member, events, i.Log)
	var cancel context.CancelFunc
	i.ctx, cancel = context.WithCancel(e.Context())
	i.group = &errgroup.Group{}
	i.group.Go(func() error { return i.Member.Run(i.ctx) })
	i.group.Go(func() error { return events.Run(i.ctx) })
	i.End = sync.OnceFunc(func() {
		cancel()
		if err := i.group.Wait(); err != nil {
			e.Error(err)
		}
		if i.Broker != nil {
			i.Broker.Close()
		}
		i.Member.Close()
	})
	e.Cleanup(i.End)
	e.Await("caches of the member", i.Member.Synced)
	e.Await("the exports of the member are known", func() bool {
		return i.Member.ExportsKnown() || i.Member.ExportsAbsent() != ""
	})
	if err := i.Member.Handle(i.ctx, func(member.Affected) {}); err != nil {
		e.Fatal(err)
	}

	id := identity.Of(i.Member, identity.Link{Digest: "1"})
	i.Broker, err = broker.New(broker.Config{REST: rest, Namespace: Namespace, ClusterID: ID, Log: i.Log})
	must()
	i.Freezes = safety.NewFreezes(i.Log, i.Metrics, func() {})
	i.Membership = &identity.Membership{
		Member: i.Member, Broker: i.Broker, Identity: id, Namespace: Namespace,
		Credential: identity.NewCredential(identity.Link{}, i.Metrics), Freezes: i.Freezes, Metrics: i.Metrics, Log: i.Log,
	}
	return i
}

// Rejected returns the objects of the member that were rejected.
func (i *Instance) Rejected() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.rejected)
}

func (i *Instance) reject(r merge.Rejection) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rejected = append(i.rejected, r.Object)
}

// Follow runs the broker, and returns when its caches are complete and the cluster is a member.
func (i *Instance) Follow(h broker.Handlers) {
	i.Helper()
	i.Broker.Handle(h)
	i.group.Go(func() error { return i.Broker.Run(i.ctx) })
	i.Await("a member with complete caches", func() bool {
		i.Membership.Review()
		state := i.Broker.State()
		return i.Member.Synced() && i.Broker.Synced() && state.Link && state.Membership == broker.Admitted &&
			i.Membership.Status().Known && !i.Freezes.AnyInForce(safety.Reasons()...)
	})
}

// Expect fails unless got are the wanted writes, in this order.
func (i *Instance) Expect(what string, got []string, want ...string) {
	i.Helper()
	if !slices.Equal(got, want) {
		i.Errorf("%s: writes = %q, want %q", what, got, want)
	}
}

// ConditionsOf returns the conditions of an export as the API server has them, "Type=Status/Reason" sorted.
func (i *Instance) ConditionsOf(svc types.NamespacedName) string {
	i.Helper()
	exp := &mcsv1beta1.ServiceExport{}
	if err := i.Admin.Get(i.Context(), exp, svc.Namespace, svc.Name); err != nil {
		i.Fatal(err)
	}
	var text []string
	for _, c := range exp.Status.Conditions {
		if c.ObservedGeneration != exp.Generation || c.LastTransitionTime.IsZero() {
			i.Errorf("condition %+v of generation %d, want that and a time", c, exp.Generation)
		}
		text = append(text, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// Listed reports whether a Broker has seen the newest inventories of the other members, of the part that a service
// belongs to.
func (i *Instance) Listed(svc types.NamespacedName) bool {
	for namespace, w := range i.owners {
		part, exists := w.parts[apibroker.InventoryPart(svc.Namespace, svc.Name)]
		m := &v1alpha1.Member{Spec: v1alpha1.MemberSpec{Namespace: namespace}}
		if exists && int64(i.Broker.Entry(m, svc).Stamp) < part.Spec.Stamp {
			return false
		}
	}
	return true
}

// Metric returns the sum of the time series of a metric of the controller, without its prefix, of which a label has the
// value, "" for all.
func (i *Instance) Metric(name, label string) float64 {
	i.Helper()
	all, err := series.Gather(i.registry)
	if err != nil {
		i.Fatal(err)
	}
	return all.Named(series.Controller + name).Of(label).Sum()
}

// Writes are the requests of an Instance that changed something, without Events: "<method> <path below /namespaces/ or
// whole path>", with "broker" for the broker namespace of the member.
type Writes struct {
	mu    sync.Mutex
	all   []string
	reads bool
	gets  map[string]int // by path
	lose  string         // end of the paths of the writes whose answers are lost; "" loses none
	hold  string         // end of the paths of the watches that are held
	held  chan struct{}  // closed when watches go on; nil unless they are held
}

// WithReads adds reads of single objects: objects that a watch brings must not be asked for.
func (w *Writes) WithReads() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = true
}

func (w *Writes) over(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		w.mu.Lock()
		if r.Method == http.MethodGet {
			w.gets[r.URL.Path]++
		}
		// Checks of the server and discovery come at any time.
		check := strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") || strings.Count(r.URL.Path, "/") < 4
		read := r.Method == http.MethodGet && (!w.reads || r.URL.RawQuery != "" || check)
		if !read && !strings.HasSuffix(r.URL.Path, "/events") {
			path := r.URL.Path
			if at := strings.LastIndex(path, "/namespaces/"); at >= 0 {
				path = path[at+len("/namespaces/"):]
			}
			w.all = append(w.all, r.Method+" "+strings.ReplaceAll(path, Namespace, "broker"))
		}
		loses := r.Method != http.MethodGet && w.lose != "" && strings.HasSuffix(r.URL.Path, w.lose)
		w.mu.Unlock()
		resp, err := next.RoundTrip(r)
		if err == nil && loses && resp.StatusCode < http.StatusBadRequest {
			_ = resp.Body.Close()
			return nil, io.ErrUnexpectedEOF
		}
		if err == nil && r.URL.Query().Get("watch") != "" {
			resp.Body = watchBody{resp.Body, w, r.URL.Path}
		}
		return resp, err
	})
}

// Gets returns the number of reads, lists and watches with a path that ends so.
func (w *Writes) Gets(end string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, times := range w.gets {
		if strings.HasSuffix(path, end) {
			n += times
		}
	}
	return n
}

// LoseAnswers drops the answers to later successful writes to a path that ends so.
func (w *Writes) LoseAnswers(end string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = end
}

// HoldWatches holds back the events of watches with a path that ends so, until release is called.
func (w *Writes) HoldWatches(end string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold, w.held = end, make(chan struct{})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		close(w.held)
		w.held = nil
	}
}

// A watchBody is the body of a watch that can be held.
type watchBody struct {
	io.ReadCloser
	of   *Writes
	path string
}

func (b watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.of.mu.Lock()
	held := b.of.held
	holds := held != nil && strings.HasSuffix(b.path, b.of.hold)
	b.of.mu.Unlock()
	if holds {
		<-held
	}
	return n, err
}

// Take returns the writes since the last call.
func (w *Writes) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
