package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/nodeenv"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

const (
	// How often the endpoint is lost and the cluster drained, and that with -full.
	failoverRounds, failoverRoundsFull = 15, 60
	failoverDrains, failoverDrainsFull = 3, 10
	// failoverHold is how long a preferred cluster must have been back.
	failoverHold = time.Second
	// failoverSettle is longer than kube-proxy takes to make its rules twice.
	failoverSettle = 2200 * time.Millisecond
	// failoverGrace is how long a Pod that terminates still serves.
	failoverGrace = 3 * time.Second
	failoverPort  = 80
)

// namespacesPossible returns why network namespaces cannot be made here, or nil.
func namespacesPossible() error {
	if os.Geteuid() != 0 {
		return errors.New("want to be root, for network namespaces")
	}
	for _, bin := range []string{"nft", "ip", "nsenter"} {
		if _, err := exec.LookPath(bin); err != nil {
			return err
		}
	}
	return nil
}

// A failoverRun is two clusters with nodes. The clients are in east.
type failoverRun struct {
	b          *bench
	clusterset *testclusterset.Clusterset
	network    *netns.Network
	controls   []*control
	east, west *nodeenv.Cluster
	nodes      map[string]*netns.Node // those of east, by how their kube-proxy is set
	services   []*movingService
	clients    clientGroup
}

// A movingService has a Pod in each cluster. Clients in east prefer that of one cluster, which is lost again and again.
type movingService struct {
	nodeenv.Service
	lost     string           // where the Pod is that clients prefer, as it is reported
	from, to *nodeenv.Cluster // which has that, and the next one
	pod      []netip.Addr     // addresses of the Pod
	kube     kubernetes.Interface
	clients  []*client
}

// failoverSection measures what clients in a cluster see when the cluster that they prefer loses its last endpoint.
func (b *bench) failoverSection(ctx context.Context) (_ part, err error) {
	if err := namespacesPossible(); err != nil {
		return nil, err
	}
	f, err := b.startFailover(ctx)
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, f.east.Proxy.Bin, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("kube-proxy: %w", err)
	}
	found := &failoverPart{Proxy: "kube-proxy of " + strings.TrimSpace(string(version))}
	rounds, drains := failoverRounds, failoverDrains
	if b.full {
		rounds, drains = failoverRoundsFull, failoverDrainsFull
	}
	for _, s := range f.services {
		b.progress.say("failover: the last endpoint of the %s is lost, %d times", s.lost, rounds)
		moves, err := f.moves(ctx, s, rounds)
		if err != nil {
			return nil, err
		}
		found.Moves = append(found.Moves, moves...)
	}
	for _, s := range f.services {
		b.progress.say("failover: the %s is drained and comes back, %d times", s.lost, drains)
		drained, err := f.drains(ctx, s, drains)
		if err != nil {
			return nil, err
		}
		found.Drains = append(found.Drains, drained...)
	}
	return found, nil
}

// startFailover starts everything, also the clients. The caller has to stop the result, also after an error.
func (b *bench) startFailover(ctx context.Context) (*failoverRun, error) {
	f := &failoverRun{b: b, nodes: map[string]*netns.Node{}}
	b.progress.say("failover: starting a broker and two members with nodes")
	proxy, err := nodeenv.Proxy(ctx, "")
	if err != nil {
		return f, err
	}
	if f.network, err = netns.New(ctx); err != nil {
		return f, err
	}
	if f.clusterset, err = testclusterset.Start(ctx, testclusterset.Options{IDs: []string{"east", "west"}}); err != nil {
		return f, err
	}
	for _, m := range f.clusterset.Members {
		if err := f.join(ctx, m); err != nil {
			return f, err
		}
	}
	if f.east, err = nodeenv.Start(ctx, f.network, f.clusterset.Members[0], proxy); err != nil {
		return f, err
	}
	if f.west, err = nodeenv.Start(ctx, f.network, f.clusterset.Members[1], proxy); err != nil {
		return f, err
	}
	f.nodes["1 s, its default"] = f.east.Node
	proxy.MinSync = 100 * time.Millisecond
	f.nodes["100 ms"], err = nodeenv.StartNode(ctx, f.network, f.east.Member, nodeenv.NodeConfig{
		// It has no Pods, but kube-proxy wants networks for them.
		Title: "east-2", Name: "node-2", Proxy: proxy, Pods: []netip.Prefix{netip.MustParsePrefix("10.40.0.0/24"),
			netip.MustParsePrefix("fd00:40::/64")},
	})
	if err != nil {
		return f, err
	}
	if err := f.offer(ctx, "own cluster", "local", f.east, f.west); err != nil {
		return f, err
	}
	return f, f.offer(ctx, "other cluster", "remote", f.west, f.east)
}

// join makes a cluster a member and starts its controller.
func (f *failoverRun) join(ctx context.Context, m *testclusterset.Member) error {
	if _, err := m.Join(ctx); err != nil {
		return err
	}
	c, err := f.b.newControl(ctx, m)
	if err != nil {
		return err
	}
	f.controls = append(f.controls, c)
	c.command.Args = append(c.command.Args, "--affinity", "none "+failoverHold.String())
	return c.start()
}

func (f *failoverRun) stop() error {
	f.clients.stop()
	var errs []error
	for _, c := range f.controls {
		errs = append(errs, c.close())
	}
	if f.network != nil {
		errs = append(errs, f.network.Close())
	}
	if f.clusterset != nil {
		errs = append(errs, f.clusterset.Stop())
	}
	return errors.Join(errs...)
}

// offer has both clusters export a service, and clients of it on each node of east.
func (f *failoverRun) offer(ctx context.Context, lost, affinity string, from, to *nodeenv.Cluster) error {
	s := &movingService{
		Service: nodeenv.Service{Name: affinity, Ports: map[string]int32{"http": failoverPort}, Pods: 1}, lost: lost,
		from: from, to: to,
	}
	var err error
	if s.kube, err = kubernetes.NewForConfig(from.Config()); err != nil {
		return err
	}
	if s.pod, err = from.Offer(ctx, s.Service); err != nil {
		return err
	}
	if _, err := to.Offer(ctx, s.Service); err != nil {
		return err
	}
	for _, c := range []*nodeenv.Cluster{from, to} {
		exp := testclusterset.Export(nodeenv.Namespace, s.Name)
		exp.Annotations = map[string]string{apibroker.AnnotationAffinity: affinity}
		if err := c.Apply(ctx, exp); err != nil {
			return err
		}
	}
	address, err := f.address(ctx, s.Name)
	if err != nil {
		return err
	}
	for _, set := range slices.Sorted(maps.Keys(f.nodes)) {
		s.clients = append(s.clients, f.clients.start(ctx, f.nodes[set], set, address))
	}
	f.services = append(f.services, s)
	return s.land(ctx, s.from)
}

// address waits for the address of the import in east.
func (f *failoverRun) address(ctx context.Context, service string) (netip.AddrPort, error) {
	limited, cancel := context.WithTimeout(ctx, crossPatience)
	defer cancel()
	for {
		imp, err := f.east.Import(limited, nodeenv.Namespace, service)
		if err == nil && len(imp.Spec.IPs) > 0 {
			ip, err := netip.ParseAddr(imp.Spec.IPs[0])
			return netip.AddrPortFrom(ip, failoverPort), err
		}
		if wait := pause(limited, clientPause); wait != nil {
			return netip.AddrPort{}, fmt.Errorf("address of %s: %w", service, errors.Join(wait, err))
		}
	}
}

// land waits until connections that begin from now on land in the cluster, for each client.
func (s *movingService) land(ctx context.Context, in *nodeenv.Cluster) error {
	now := time.Now()
	for _, c := range s.clients {
		if _, err := c.landed(ctx, in.ID, now); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until all changes of before have reached kube-proxy, and forgets the connections so far.
func (s *movingService) settled(ctx context.Context) error {
	err := pause(ctx, failoverSettle+rand.N(failoverSettle/4))
	for _, c := range s.clients {
		c.forget()
	}
	return err
}

// remove deletes the Pod at once.
func (s *movingService) remove(ctx context.Context) error { return s.terminate(ctx, 0) }

// terminate deletes the Pod, which is left to its kubelet for the time of grace, of which there is none.
func (s *movingService) terminate(ctx context.Context, grace int64) error {
	return s.kube.CoreV1().Pods(nodeenv.Namespace).Delete(ctx, s.Name+"-0",
		metav1.DeleteOptions{GracePeriodSeconds: &grace})
}

// restore creates the Pod again, and waits until connections land there.
func (s *movingService) restore(ctx context.Context) error {
	s.from.Node.Silence(false, s.pod...)
	if err := s.from.Apply(ctx, s.Pod(0, s.pod)); err != nil {
		return err
	}
	return s.land(ctx, s.from)
}

// moves has a result for each client.
func (f *failoverRun) moves(ctx context.Context, s *movingService, rounds int) ([]moveResult, error) {
	delays := make([][]time.Duration, len(s.clients))
	for range rounds {
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		if err := s.remove(ctx); err != nil {
			return nil, err
		}
		gone := time.Now()
		for i, c := range s.clients {
			at, err := c.landed(ctx, s.to.ID, gone)
			if err != nil {
				return nil, err
			}
			delays[i] = append(delays[i], at.Sub(gone))
		}
		if err := s.restore(ctx); err != nil {
			return nil, err
		}
	}
	var all []moveResult
	for i, c := range s.clients {
		all = append(all, moveResult{s.lost, c.proxy, newSpans(delays[i])})
	}
	return all, nil
}

// drains has a result for each client. A Pod that is drained serves for its time of grace, and then accepts nothing any
// more, before it is deleted in the API.
func (f *failoverRun) drains(ctx context.Context, s *movingService, rounds int) ([]drainedResult, error) {
	all := make([]drainedResult, len(s.clients))
	for i, c := range s.clients {
		all[i] = drainedResult{Drained: s.lost, Client: c.proxy, Rounds: rounds}
	}
	for range rounds {
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		if err := s.terminate(ctx, int64(failoverGrace.Seconds())); err != nil {
			return nil, err
		}
		if err := pause(ctx, failoverGrace); err != nil {
			return nil, err
		}
		s.from.Node.Silence(true, s.pod...)
		if err := errors.Join(s.remove(ctx), s.land(ctx, s.to), s.restore(ctx), pause(ctx, failoverSettle)); err != nil {
			return nil, err
		}
		for i, c := range s.clients {
			made, failed := c.count()
			all[i].Connections += made
			all[i].Failed += failed
		}
	}
	return all, nil
}
