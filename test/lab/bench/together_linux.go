package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/nodeenv"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

const (
	togetherSample = 100 // of the services, to which a client connects
	togetherPort   = 80
	togetherQuiet  = 5 * time.Second
)

// A togetherRun is two clusters that export the same services. One of them imports them and has a node with a client.
type togetherRun struct {
	b          *bench
	clusterset *testclusterset.Clusterset
	network    *netns.Network
	controls   []*control
	east, west *testclusterset.Member
	node       *netns.Node
	before     map[string]int // slices of each member that are not of the services
	slices     *sliceWatch
	sample     []netip.AddrPort // addresses of imports
	part       *togetherPart
}

// togetherSection measures how all services of a member change their clusters at once. The changes before a failure are
// results, too.
func (b *bench) togetherSection(ctx context.Context) (_ part, err error) {
	if err := namespacesPossible(); err != nil {
		return nil, err
	}
	r, err := b.startTogether(ctx)
	defer func() { err = errors.Join(err, r.stop()) }()
	if err != nil {
		return nil, err
	}
	err = r.changes(ctx)
	if len(r.part.Changes) == 0 {
		return nil, err
	}
	return r.part, err
}

// changes measures what a client alone needs for a write, and makes one change after the other.
func (r *togetherRun) changes(ctx context.Context) error {
	if err := r.floor(ctx); err != nil {
		return fmt.Errorf("writes of a client alone: %w", err)
	}
	east, west := r.east.ID, r.west.ID
	for _, c := range []togetherChange{
		{what: "their namespaces prefer the own cluster", do: r.prefer("local"), shown: east, hidden: west},
		{what: "they prefer other clusters", do: r.prefer("remote"), shown: west, hidden: east, lands: west},
		{what: "they prefer the own cluster again", do: r.prefer("local"), shown: east, hidden: west, lands: east},
		{what: "no endpoint of the own cluster is ready", do: r.fail, shown: west, hidden: east, lands: west,
			writes: "broker EndpointSlice apply"},
	} {
		if err := r.change(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

// startTogether starts everything. The caller has to stop the result, also after an error.
func (b *bench) startTogether(ctx context.Context) (*togetherRun, error) {
	r := &togetherRun{b: b, part: &togetherPart{Services: b.services}, before: map[string]int{}}
	b.progress.say("together: starting a broker and two members")
	var err error
	if r.network, err = netns.New(ctx); err != nil {
		return r, err
	}
	if r.clusterset, err = testclusterset.Start(ctx, testclusterset.Options{IDs: []string{"east", "west"}}); err != nil {
		return r, err
	}
	r.east, r.west = r.clusterset.Members[0], r.clusterset.Members[1]
	for _, m := range r.clusterset.Members {
		if _, r.before[m.ID], err = held(ctx, m); err != nil {
			return r, err
		}
		b.progress.say("together: writing %d services to %s", b.services, m.ID)
		if err := r.load(ctx, m); err != nil {
			return r, err
		}
		if err := r.control(ctx, m); err != nil {
			return r, err
		}
	}
	if err := r.imported(ctx); err != nil {
		return r, err
	}
	if r.slices, err = watchSlices(ctx, r.east); err != nil {
		return r, err
	}
	if err := r.startNodes(ctx); err != nil {
		return r, err
	}
	return r, r.choose(ctx)
}

// imported waits until both members have imported all services and do nothing: what west still imports would be
// measured in east.
func (r *togetherRun) imported(ctx context.Context) error {
	for i, m := range r.clusterset.Members {
		// Of each service its own slice, and those that are imported of both clusters.
		if err := r.b.awaitHeld(ctx, m, r.b.services, r.before[m.ID]+3*r.b.services); err != nil {
			return err
		}
		if err := r.controls[i].await(ctx, idle...); err != nil {
			return fmt.Errorf("%s: %w", m.ID, err)
		}
	}
	return nil
}

// load joins the member, and writes the services with their slices and exports.
func (r *togetherRun) load(ctx context.Context, m *testclusterset.Member) error {
	if err := joinWith(ctx, m, namespaces, namespace); err != nil {
		return err
	}
	kube, mcs, err := clientsOf(m)
	if err != nil {
		return err
	}
	return each(r.b.services, func(i int) error {
		s := testclusterset.Service(namespace(i), name(i), testclusterset.Port("http", togetherPort))
		if _, err := kube.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
		slice := testclusterset.Slice(s, s.Name, endpointsOf(m, i, true)...)
		if _, err := kube.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
		exp := testclusterset.Export(s.Namespace, s.Name)
		_, err := mcs.MulticlusterV1beta1().ServiceExports(s.Namespace).Create(ctx, exp, metav1.CreateOptions{})
		return err
	})
}

// endpointsOf returns those of the i-th service in a member.
func endpointsOf(m *testclusterset.Member, i int, ready bool) []testclusterset.Endpoint {
	var all []testclusterset.Endpoint
	for k := range crossEndpoints {
		ip := netip.AddrFrom4([4]byte{10, byte(20 + m.Index), byte(20*k + i>>8), byte(i)})
		all = append(all, testclusterset.Endpoint{Address: ip.String(), NotReady: !ready})
	}
	return all
}

// control starts the controller of a member.
func (r *togetherRun) control(ctx context.Context, m *testclusterset.Member) error {
	c, err := r.b.newControl(ctx, m)
	if err != nil {
		return err
	}
	r.controls = append(r.controls, c)
	return c.start()
}

// startNodes starts a node in each member, and kube-proxy in that of east.
func (r *togetherRun) startNodes(ctx context.Context) error {
	proxy, err := nodeenv.Proxy(ctx, "")
	if err != nil {
		return err
	}
	pods := func(m *testclusterset.Member) netip.Prefix { return netip.MustParsePrefix(m.PodCIDRs()[0]) }
	other, err := r.network.Join(ctx, r.west.ID, pods(r.west))
	if err != nil {
		return err
	}
	r.node, err = nodeenv.StartNode(ctx, r.network, r.east, nodeenv.NodeConfig{
		Title: r.east.ID, Name: nodeenv.NodeName, Pods: []netip.Prefix{pods(r.east)}, Proxy: proxy,
	})
	if err != nil {
		return err
	}
	return errors.Join(other.Serve(togetherPort), r.node.Serve(togetherPort))
}

func (r *togetherRun) stop() error {
	var errs []error
	for _, c := range r.controls {
		errs = append(errs, c.close())
	}
	if r.slices != nil {
		r.slices.stop()
	}
	if r.network != nil {
		errs = append(errs, r.network.Close())
	}
	if r.clusterset != nil {
		errs = append(errs, r.clusterset.Stop())
	}
	return errors.Join(errs...)
}

// choose sets the sample, and waits until its services are reached.
func (r *togetherRun) choose(ctx context.Context) error {
	for i := 0; i < r.b.services; i += max(1, r.b.services/togetherSample) {
		imp, err := r.east.Import(ctx, namespace(i), name(i))
		if err != nil {
			return err
		}
		if len(imp.Spec.IPs) == 0 {
			return fmt.Errorf("import %s/%s: want an address", imp.Namespace, imp.Name)
		}
		ip, err := netip.ParseAddr(imp.Spec.IPs[0])
		if err != nil {
			return err
		}
		r.sample = append(r.sample, netip.AddrPortFrom(ip, togetherPort))
	}
	_, err := r.landed(ctx, "")
	return err
}

// landed waits until a connection to each service of the sample lands in the cluster, or in any if that is empty.
func (r *togetherRun) landed(ctx context.Context, cluster string) (time.Time, error) {
	for _, to := range r.sample {
		if err := r.landedAt(ctx, to, cluster); err != nil {
			return time.Time{}, err
		}
	}
	return time.Now(), nil
}

// landedAt is landed for one service.
func (r *togetherRun) landedAt(ctx context.Context, to netip.AddrPort, cluster string) error {
	ctx, cancel := context.WithTimeout(ctx, crossPatience)
	defer cancel()
	for {
		reply, err := r.node.Connect(ctx, to)
		if err == nil && (cluster == "" || reply.Cluster == cluster) {
			return nil
		}
		if wait := pause(ctx, clientPause); wait != nil {
			return fmt.Errorf("connection to %s: want it in %q, was in %q (%w): %w", to, cluster, reply.Cluster, err, wait)
		}
	}
}

// floor measures how long the API server of east takes for as many writes as a change of selection makes, of the same
// kinds and with everything that watches them: each local slice twice, and the export. None of it changes what the
// controllers and kube-proxy make of them.
func (r *togetherRun) floor(ctx context.Context) error {
	r.b.progress.say("together: a client alone writes %d objects of each service", floorWrites)
	kube, mcs, err := clientsOf(r.east)
	if err != nil {
		return err
	}
	note := func(text string) []byte { return fmt.Appendf(nil, `{"metadata":{"annotations":{"bench":%q}}}`, text) }
	began := time.Now()
	if err := each(r.b.services, func(i int) error {
		slices, exports := kube.DiscoveryV1().EndpointSlices(namespace(i)),
			mcs.MulticlusterV1beta1().ServiceExports(namespace(i))
		for _, text := range []string{"first", "second"} {
			if _, err := slices.Patch(ctx, name(i), types.MergePatchType, note(text), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		_, err := exports.Patch(ctx, name(i), types.MergePatchType, note("first"), metav1.PatchOptions{})
		return err
	}); err != nil {
		return err
	}
	r.part.Floor = time.Since(began).Seconds() / float64(floorWrites*r.b.services)
	r.b.progress.say("together: %.2f ms for a write", r.part.Floor*1000)
	return nil
}

// A togetherChange is one that moves all services.
type togetherChange struct {
	what          string
	do            func(context.Context) error
	shown, hidden string // clusters, when it is in effect
	lands         string // cluster in which connections land that did not before; empty if they could
	writes        string // what else the controller may write; empty if that is not limited
}

// change makes a change and adds the result.
func (r *togetherRun) change(ctx context.Context, c togetherChange) error {
	r.b.progress.say("together: %s", c.what)
	if err := r.slices.quiet(ctx, togetherQuiet); err != nil {
		return err
	}
	before, err := r.writes(ctx)
	if err != nil {
		return err
	}
	r.slices.forget()
	began := time.Now()
	if err := c.do(ctx); err != nil {
		return err
	}
	found := togetherResult{What: c.what, Allowed: c.writes, Written: time.Since(began).Seconds()}
	shown, err := r.slices.shows(ctx, c.shown, c.hidden, r.b.services)
	if err != nil {
		return err
	}
	found.Shown = shown.Sub(began).Seconds()
	if c.lands != "" {
		landed, err := r.landed(ctx, c.lands)
		if err != nil {
			return err
		}
		found.Landed = landed.Sub(began).Seconds()
	}
	// Writes that are one too many may still follow.
	if err := r.slices.quiet(ctx, togetherQuiet); err != nil {
		return err
	}
	found.Slices, found.Most = r.slices.written()
	after, err := r.writes(ctx)
	if err != nil {
		return err
	}
	found.Others = grown(before, after)
	maps.DeleteFunc(found.Others, func(what string, _ float64) bool {
		return strings.HasPrefix(what, "local EndpointSlice ")
	})
	r.part.Changes = append(r.part.Changes, found)
	r.b.progress.say("together: %s", found)
	return nil
}

// writes returns how often the controller of east has written, by kind.
func (r *togetherRun) writes(ctx context.Context) (map[string]float64, error) {
	m, err := r.controls[0].scrape(ctx)
	if err != nil {
		return nil, err
	}
	others, _ := writes(m)
	return others, nil
}

// prefer annotates the namespaces of the services in east.
func (r *togetherRun) prefer(affinity string) func(context.Context) error {
	return func(ctx context.Context) error {
		for n := range namespaces {
			ns := testclusterset.Namespace(namespace(n))
			ns.Annotations = map[string]string{apibroker.AnnotationAffinity: affinity}
			if err := r.east.Apply(ctx, ns); err != nil {
				return err
			}
		}
		return nil
	}
}

// fail makes all endpoints of east not ready.
func (r *togetherRun) fail(ctx context.Context) error {
	kube, _, err := clientsOf(r.east)
	if err != nil {
		return err
	}
	return each(r.b.services, func(i int) error {
		s := testclusterset.Service(namespace(i), name(i), testclusterset.Port("http", togetherPort))
		slice := testclusterset.Slice(s, s.Name, endpointsOf(r.east, i, false)...)
		_, err := kube.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
		return err
	})
}
