package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	mcsclient "sigs.k8s.io/mcs-api/pkg/client/clientset/versioned"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

const (
	crossServices  = 1_000
	crossEndpoints = 3 // of each
	crossExports   = 100
	crossRate      = 50 // changes a second
	crossDuration  = 20 * time.Second
	crossPoll      = 5 * time.Millisecond
	crossPatience  = 2 * time.Minute

	importServices = 5_000
	importSlices   = 4 // of each

	// In milliseconds, and in seconds for the first import.
	targetExportP50, targetExportP99 = 300, 1000
	targetEndpointP99                = 1000
	targetImport                     = 120
)

// A crossResult is how long a change in one cluster took, from the answer of its API server, to the first DNS answer in
// another that shows it.
type crossResult struct {
	What string
	Rate float64
	spans
}

// The rows of a cross table.
const (
	rowExport   = "export"
	rowEndpoint = "endpoint"
)

// A cross is two clusters, of which one exports and the other answers.
type cross struct {
	b           *bench
	clusterset  *testclusterset.Clusterset
	east, west  *testclusterset.Member
	dns         *testclusterset.DNS
	kube        kubernetes.Interface // of east
	mcs         mcsclient.Interface
	controllers errgroup.Group
	ending      []context.CancelFunc           // of each
	before      map[*testclusterset.Member]int // EndpointSlices that a member had before its controller started

	mu     sync.Mutex
	delays map[string][]time.Duration
}

// crossPart has a result for each kind of change.
type crossPart []crossResult

// crossSection measures what a user waits for: an export, and an endpoint that moved.
func (b *bench) crossSection(ctx context.Context) (_ part, err error) {
	c, err := b.startCross(ctx, "cross", "east", "west")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	for _, m := range c.clusterset.Members {
		if err := c.control(ctx, m); err != nil {
			return nil, err
		}
	}
	if c.dns, err = c.west.StartDNS(ctx); err != nil {
		return nil, err
	}
	if err := c.load(ctx, crossServices+crossExports, 1, true); err != nil {
		return nil, err
	}
	b.progress.say("cross: exporting %d services", crossServices)
	if err := each(crossServices, func(i int) error { return c.export(ctx, i) }); err != nil {
		return nil, err
	}
	if err := c.await(ctx, c.west, crossServices, crossServices); err != nil {
		return nil, err
	}
	b.progress.say("cross: %d exports, one after the other", crossExports)
	began := time.Now()
	for i := range crossExports {
		if err := c.newExport(ctx, crossServices+i); err != nil {
			return nil, err
		}
	}
	exports := c.result(rowExport, time.Since(began))
	b.progress.say("cross: %d changes of endpoints a second for %s", crossRate, crossDuration)
	began = time.Now()
	if err := c.move(ctx); err != nil {
		return nil, err
	}
	return crossPart{exports, c.result(rowEndpoint, time.Since(began))}, nil
}

// An importResult is how long a new member takes to import everything.
type importResult struct {
	Services int
	Slices   int
	Seconds  float64
}

// importSection starts the controller of a member that has nothing yet.
func (b *bench) importSection(ctx context.Context) (_ part, err error) {
	c, err := b.startCross(ctx, "import", "east", "west")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.load(ctx, importServices, importSlices, false); err != nil {
		return nil, err
	}
	b.progress.say("import: exporting %d services with %d slices", importServices, importServices*importSlices)
	if err := c.control(ctx, c.east); err != nil {
		return nil, err
	}
	if err := each(importServices, func(i int) error { return c.export(ctx, i) }); err != nil {
		return nil, err
	}
	if err := c.await(ctx, c.east, importServices, importServices*importSlices); err != nil {
		return nil, err
	}
	b.progress.say("import: starting the controller of the other member")
	began := time.Now()
	if err := c.control(ctx, c.west); err != nil {
		return nil, err
	}
	if err := c.await(ctx, c.west, importServices, importServices*importSlices); err != nil {
		return nil, err
	}
	return &importResult{importServices, importServices * importSlices, time.Since(began).Seconds()}, nil
}

func (b *bench) startCross(ctx context.Context, name string, ids ...string) (_ *cross, err error) {
	b.progress.say("%s: starting a broker and %d members", name, len(ids))
	c := &cross{b: b, delays: map[string][]time.Duration{}, before: map[*testclusterset.Member]int{}}
	if c.clusterset, err = testclusterset.Start(ctx, testclusterset.Options{IDs: ids}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	for _, m := range c.clusterset.Members {
		if err := joinWith(ctx, m, namespaces, namespace); err != nil {
			return nil, err
		}
	}
	c.east, c.west = c.clusterset.Members[0], c.clusterset.Members[1]
	c.kube, c.mcs, err = clientsOf(c.east)
	return c, err
}

// joinWith joins a member, and writes so many namespaces.
func joinWith(ctx context.Context, m *testclusterset.Member, n int, name func(int) string) error {
	if _, err := m.Join(ctx); err != nil {
		return err
	}
	for i := range n {
		if err := m.Apply(ctx, testclusterset.Namespace(name(i))); err != nil {
			return err
		}
	}
	return nil
}

// clientsOf returns clients of a member that write as fast as its API server lets them.
func clientsOf(m *testclusterset.Member) (*kubernetes.Clientset, *mcsclient.Clientset, error) {
	config := m.Config()
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	mcs, err := mcsclient.NewForConfig(config)
	return kube, mcs, err
}

// control runs the controller of a member until stop.
func (c *cross) control(ctx context.Context, m *testclusterset.Member) error {
	config, err := m.Controller(ctx)
	if err != nil {
		return err
	}
	if _, c.before[m], err = held(ctx, m); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	c.ending = append(c.ending, cancel)
	c.controllers.Go(func() error { return controller.Run(ctx, config) })
	return nil
}

func (c *cross) stop() error {
	for _, cancel := range c.ending {
		cancel()
	}
	errs := []error{c.controllers.Wait()}
	if c.dns != nil {
		errs = append(errs, c.dns.StopDNS())
	}
	return errors.Join(append(errs, c.clusterset.Stop())...)
}

// Services are spread over some namespaces.
const namespaces = 10

func namespace(i int) string { return fmt.Sprintf("team-%d", i%namespaces) }
func name(i int) string      { return fmt.Sprintf("app-%d", i) }

// host is the name of the first endpoint of a headless service, and address its n-th address.
func host(i int) string {
	return fmt.Sprintf("pod-0.east.%s.%s.svc.clusterset.local.", name(i), namespace(i))
}

func address(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 21, byte(n >> 8), byte(n)})
}

// each does something for the first n services, as fast as the API server lets it.
func each(n int, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(writers)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// load writes n services to east, with slices that have endpoints, and no export.
func (c *cross) load(ctx context.Context, n, slices int, headless bool) error {
	c.b.progress.say("writing %d services with %d slices", n, n*slices)
	return each(n, func(i int) error {
		s := testclusterset.Service(namespace(i), name(i), testclusterset.Port("http", 80))
		if headless {
			s.Spec.ClusterIP = corev1.ClusterIPNone
		}
		if _, err := c.kube.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
		for k := range slices {
			slice := sliceOf(s, i, k, address(i))
			if _, err := c.kube.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, slice,
				metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// sliceOf returns the k-th slice of the i-th service. Its first endpoint has the address given.
func sliceOf(s *corev1.Service, i, k int, first netip.Addr) *discoveryv1.EndpointSlice {
	endpoints := []testclusterset.Endpoint{{Address: first.String(), Hostname: "pod-0"}}
	for e := 1; e < crossEndpoints; e++ {
		addr := netip.AddrFrom4([4]byte{10, 21, byte(128 + k*crossEndpoints + e), byte(i)})
		endpoints = append(endpoints, testclusterset.Endpoint{Address: addr.String()})
	}
	return testclusterset.Slice(s, fmt.Sprintf("%s-%d", s.Name, k), endpoints...)
}

func (c *cross) export(ctx context.Context, i int) error {
	exp := testclusterset.Export(namespace(i), name(i))
	_, err := c.mcs.MulticlusterV1beta1().ServiceExports(exp.Namespace).Create(ctx, exp, metav1.CreateOptions{})
	return err
}

// await waits until m has imported so much.
func (c *cross) await(ctx context.Context, m *testclusterset.Member, imports, slices int) error {
	return c.b.awaitHeld(ctx, m, imports, slices+c.before[m])
}

// A stall is a state that is waited for without progress.
type stall[T comparable] struct {
	state T
	since time.Time
}

// lasts notes the state, and reports whether it has not changed for so long that it is not worth waiting any more. A
// busy machine takes long, but does not stand still.
func (s *stall[T]) lasts(state T) bool {
	if s.since.IsZero() || s.state != state {
		s.state, s.since = state, time.Now()
	}
	return time.Since(s.since) > crossPatience
}

// awaitHeld waits until m holds so much.
func (b *bench) awaitHeld(ctx context.Context, m *testclusterset.Member, imports, slices int) error {
	var stalled stall[[2]int]
	for reported := time.Now(); ; {
		gotImports, gotSlices, err := held(ctx, m)
		if err != nil || gotImports == imports && gotSlices == slices {
			return err
		}
		if stalled.lasts([2]int{gotImports, gotSlices}) {
			return fmt.Errorf("%s has had %d imports and %d slices for %s, want %d and %d", m.ID, gotImports, gotSlices,
				crossPatience, imports, slices)
		}
		if time.Since(reported) > 10*time.Second {
			reported = time.Now()
			b.progress.say("%s has %d imports and %d slices", m.ID, gotImports, gotSlices)
		}
		if err := pause(ctx, time.Second/2); err != nil {
			return err
		}
	}
}

// held counts the imports and slices of m. It asks for nothing but numbers: a list of the slices would cost the API
// server more than the subject of the measurement.
func held(ctx context.Context, m *testclusterset.Member) (imports, slices int, err error) {
	kube, mcs, err := clientsOf(m)
	if err != nil {
		return 0, 0, err
	}
	one := metav1.ListOptions{Limit: 1}
	list, err := mcs.MulticlusterV1beta1().ServiceImports("").List(ctx, one)
	if err != nil {
		return 0, 0, err
	}
	all, err := kube.DiscoveryV1().EndpointSlices("").List(ctx, one)
	if err != nil {
		return 0, 0, err
	}
	return len(list.Items) + int(ptr.Deref(list.RemainingItemCount, 0)),
		len(all.Items) + int(ptr.Deref(all.RemainingItemCount, 0)), nil
}

// newExport exports a service and waits until the other cluster resolves it.
func (c *cross) newExport(ctx context.Context, i int) error {
	if err := c.export(ctx, i); err != nil {
		return err
	}
	return c.shown(ctx, rowExport, i, address(i))
}

// move changes the address of an endpoint again and again.
func (c *cross) move(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / crossRate)
	defer tick.Stop()
	order := rand.Perm(crossServices)
	for i := range int(crossDuration.Seconds()) * crossRate {
		g.Go(func() error { return c.moved(ctx, order[i%len(order)], address(1<<14+i)) })
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(g.Wait(), context.Cause(ctx))
		}
	}
	return g.Wait()
}

// moved gives the first endpoint of a service another address, and waits until the other cluster has it in place of the
// old one.
func (c *cross) moved(ctx context.Context, i int, to netip.Addr) error {
	s := testclusterset.Headless(namespace(i), name(i), testclusterset.Port("http", 80))
	slice := sliceOf(s, i, 0, to)
	if _, err := c.kube.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return c.shown(ctx, rowEndpoint, i, to)
}

// shown waits for an address in the answers of the other cluster.
func (c *cross) shown(ctx context.Context, row string, i int, addr netip.Addr) error {
	written := time.Now()
	at, err := awaitAddr(ctx, c.dns.Address, host(i), addr, crossPoll)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delays[row] = append(c.delays[row], at.Sub(written))
	return nil
}

func (c *cross) result(row string, took time.Duration) crossResult {
	return newCrossResult(row, c.delays[row], took)
}

func newCrossResult(row string, delays []time.Duration, took time.Duration) crossResult {
	return crossResult{What: row, Rate: float64(len(delays)) / took.Seconds(), spans: newSpans(delays)}
}

func (all crossPart) markdown() string {
	return heading("From a change in one cluster to its answer in another", crossTable(all))
}

func (all crossPart) goals() []goal {
	var goals []goal
	for _, c := range all {
		goals = append(goals, c.goals()...)
	}
	return goals
}

func (c crossResult) goals() []goal {
	if c.What == rowExport {
		return []goal{
			newGoal("p50 from export to answer in another cluster, ms", c.P50, targetExportP50),
			newGoal("p99 from export to answer in another cluster, ms", c.P99, targetExportP99),
		}
	}
	return []goal{newGoal("p99 from endpoint to answer in another cluster, ms", c.P99, targetEndpointP99)}
}

func crossTable(all []crossResult) string {
	lines := [][]string{{"change", "changes", "changes/s", "p50, ms", "p90, ms", "p99, ms", "max, ms", "target"}}
	for _, c := range all {
		var targets []string
		for _, g := range c.goals() {
			targets = append(targets, g.cell("%.0f"))
		}
		lines = append(lines, []string{
			c.What, fmt.Sprint(c.Number), fmt.Sprintf("%.0f", c.Rate), fmt.Sprintf("%.0f", c.P50), fmt.Sprintf("%.0f", c.P90),
			fmt.Sprintf("%.0f", c.P99), fmt.Sprintf("%.0f", c.Max), strings.Join(targets, ", "),
		})
	}
	return table(lines)
}

func (r *importResult) markdown() string {
	return heading("First import", fmt.Sprintf("%d services with %d slices: %.1f s, target %s\n", r.Services, r.Slices,
		r.Seconds,
		r.goal().cell("%.0f")))
}

func (r *importResult) goals() []goal { return []goal{r.goal()} }

func (r *importResult) goal() goal {
	return newGoal("first import, s", r.Seconds, targetImport)
}
