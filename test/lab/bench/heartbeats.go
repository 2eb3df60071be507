package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

const (
	beatImports = 20 // clusters from which the real member imports
	beatSettle  = 40 * time.Second
	// Together the windows are as long as the interval of 1,000 members.
	beatWindow  = 20 * time.Second
	beatWindows = 5
	// More members do not begin to watch at once: the broker would reject them.
	beatStarters = 4

	// With 1,000 members: in cores, and in kB/s.
	targetBeatBroker, targetBeatController = 0.5, 0.01
	targetBeatReceived                     = 50
)

var beatSizes = []int{10, 100, 1_000}

// A beatResult is what an idle clusterset takes.
type beatResult struct {
	Members    int
	Renew, TTL time.Duration
	// Cores, kB/s, and numbers in a second.
	APIServer  summary // of the broker
	Etcd       summary
	Controller summary
	Received   summary // by the controller from both API servers
	Simulated  summary // all simulated members
	Sent       summary // heartbeats of these
	Ended      summary // watches of these that the server ended
}

// A beatRun is an idle clusterset of one size: simulated members, and a real one.
type beatRun struct {
	b          *bench
	clusterset *testclusterset.Clusterset
	importer   *testclusterset.Member
	others     *simulation
	control    *control
	held       int // EndpointSlices that the member had before
	simulated  []*beatMember
	result     beatResult
}

// heartbeatSection measures what heartbeats cost while nothing else happens.
func (b *bench) heartbeatSection(ctx context.Context) (part, error) {
	var found beatPart
	for _, members := range beatSizes {
		r, err := b.heartbeats(ctx, members)
		if err != nil {
			return found, err
		}
		found = append(found, r)
	}
	return found, nil
}

func (b *bench) heartbeats(ctx context.Context, members int) (_ beatResult, err error) {
	s, err := b.startBeats(ctx, members)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return s.result, err
	}
	g, ctx := errgroup.WithContext(ctx)
	beating, quit := context.WithCancel(ctx)
	defer quit()
	if s.simulated, err = s.join(beating); err != nil {
		return s.result, err
	}
	for i, m := range s.simulated {
		g.Go(func() error { return m.run(beating, s.result.Renew, s.phase(i)) })
	}
	g.Go(func() error {
		defer quit()
		if err := s.settle(ctx); err != nil {
			return err
		}
		return s.windows(ctx)
	})
	err = g.Wait()
	return s.result, err
}

// startBeats starts a broker with the objects of its members, and the real member. The caller must stop the result,
// also after an error.
func (b *bench) startBeats(ctx context.Context, members int) (*beatRun, error) {
	b.progress.say("heartbeats: starting a broker with %d members", members)
	s := &beatRun{b: b, result: beatResult{Members: members}}
	usual := controller.Defaults()
	s.result.Renew, s.result.TTL = liveness.Pace(usual.Renew, usual.TTL, members)
	var err error
	if s.clusterset, err = testclusterset.Start(ctx, testclusterset.Options{
		IDs: []string{"importer"}, Broker: controlplane.Options{MemoryLimit: "6GiB"},
	}); err != nil {
		return s, err
	}
	size := scaleSize{Members: members - 1, Services: min(beatImports, members-1), Namespaces: 1, Exporters: 1,
		Endpoints: 10}
	s.importer, s.others = s.clusterset.Members[0], &simulation{broker: s.clusterset.Broker, size: size}
	if err := joinWith(ctx, s.importer, size.Namespaces, scaleNamespace); err != nil {
		return s, err
	}
	if _, s.held, err = held(ctx, s.importer); err != nil {
		return s, err
	}
	if err := s.others.admit(ctx); err != nil {
		return s, err
	}
	if err := s.others.export(ctx, &atomic.Int64{}); err != nil {
		return s, err
	}
	s.control, err = b.newControl(ctx, s.importer)
	return s, err
}

func (s *beatRun) stop() error {
	var errs []error
	if s.control != nil {
		errs = append(errs, s.control.close())
	}
	if s.clusterset != nil {
		errs = append(errs, s.clusterset.Stop())
	}
	return errors.Join(errs...)
}

// join makes all simulated members. Their watches last as long as ctx.
func (s *beatRun) join(ctx context.Context) ([]*beatMember, error) {
	kube, err := kubernetes.NewForConfig(s.clusterset.Broker.Config())
	if err != nil {
		return nil, err
	}
	all := make([]*beatMember, s.others.size.Members)
	var joined atomic.Int64
	defer s.b.progress.every(10*time.Second, func() string {
		return fmt.Sprintf("heartbeats: %d of %d members watch", joined.Load(), len(all))
	})()
	var g errgroup.Group
	g.SetLimit(beatStarters)
	for i := range all {
		g.Go(func() (err error) {
			all[i], err = newBeatMember(ctx, s.clusterset.Broker, kube, i)
			joined.Add(1)
			return err
		})
	}
	return all, g.Wait()
}

// phase spreads the members evenly over an interval.
func (s *beatRun) phase(i int) float64 { return float64(i) / float64(len(s.simulated)) }

// settle starts the controller, and waits until it has nothing left to do.
func (s *beatRun) settle(ctx context.Context) error {
	if err := s.control.start(); err != nil {
		return err
	}
	size := s.others.size
	return s.control.alive(ctx, func(ctx context.Context) error {
		if err := s.b.awaitHeld(ctx, s.importer, size.Services, size.exports()+s.held); err != nil {
			return err
		}
		if err := s.control.await(ctx, append(idle, wanted{"exported_services", size.exports()})...); err != nil {
			return err
		}
		return pause(ctx, beatSettle)
	})
}

// windows measures while nothing happens.
func (s *beatRun) windows(ctx context.Context) error {
	r, rates := &s.result, make([][]float64, len(beatLook{}))
	before, err := s.look()
	if err != nil {
		return err
	}
	for i := range beatWindows {
		s.b.progress.say("heartbeats: %d members idle, %d of %d", s.result.Members, i+1, beatWindows)
		began := time.Now()
		if err := s.control.alive(ctx, func(ctx context.Context) error { return pause(ctx, beatWindow) }); err != nil {
			return err
		}
		after, err := s.look()
		if err != nil {
			return err
		}
		for k := range rates {
			rates[k] = append(rates[k], (after[k]-before[k])/time.Since(began).Seconds())
		}
		before = after
	}
	for k, into := range []*summary{&r.APIServer, &r.Etcd, &r.Controller, &r.Simulated, &r.Received, &r.Sent, &r.Ended} {
		*into = summarize(rates[k])
	}
	return nil
}

// A beatLook holds totals since the start: CPU seconds of API server, etcd, controller and simulated members; kB that
// the controller received; heartbeats and ended watches of the simulated members.
type beatLook [7]float64

func (s *beatRun) look() (l beatLook, err error) {
	api, etcd := s.clusterset.Broker.Pids()
	for i, pid := range []int{api, etcd, s.control.process.Pid(), os.Getpid()} {
		used, err := cpuTime(pid)
		if err != nil {
			return l, err
		}
		l[i] = used.Seconds()
	}
	read, err := octetsRead(s.control.process.Pid())
	l[4] = float64(read) / 1e3
	for _, m := range s.simulated {
		l[5] += float64(m.sent.Load())
		l[6] += float64(m.ended.Load())
	}
	return l, err
}

// A beatPart has a result for each size.
type beatPart []beatResult

func (p beatPart) markdown() string {
	lines := [][]string{{
		"members", "renewed every, s", "silent after, s", "heartbeats/s", "API server, cores", "etcd, cores",
		"controller, cores", "it receives, kB/s",
		"simulated members, cores",
	}}
	for _, r := range p {
		lines = append(lines, []string{
			count(r.Members), fmt.Sprintf("%.0f", r.Renew.Seconds()), fmt.Sprintf("%.0f", r.TTL.Seconds()),
			fmt.Sprintf("%.1f", r.Sent.Median),
			figure("%.3f", r.APIServer), figure("%.3f", r.Etcd), figure("%.4f", r.Controller), figure("%.1f", r.Received),
			figure("%.3f", r.Simulated),
		})
	}
	return heading("Idle clustersets", fmt.Sprintf(
		"One member is real, and imports from %d of the others, which are simulated. Medians of %d windows of %g s.\n\n",
		beatImports, beatWindows, beatWindow.Seconds())+table(lines))
}

func (p beatPart) goals() []goal {
	var all []goal
	for _, r := range p {
		if r.Members < 1_000 {
			continue
		}
		what := fmt.Sprintf("%s members idle: ", count(r.Members))
		all = append(all, newGoal(what+"API server and etcd of the broker, cores", r.APIServer.Median+r.Etcd.Median,
			targetBeatBroker),
			newGoal(what+"one controller, cores", r.Controller.Median, targetBeatController),
			newGoal(what+"one controller receives, kB/s", r.Received.Median, targetBeatReceived))
	}
	return all
}
