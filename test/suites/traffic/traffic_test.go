//go:build traffic && linux

package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func TestTraffic(t *testing.T) {
	c := start(t)
	if os.Getenv(endEnv) == "" {
		t.Run("verify", c.verified) // first, since its Pods listen at a port that those of others have, too
	}
	t.Run("cluster IP", c.clusterIP)
	if os.Getenv(endEnv) != "" {
		end(t)
	}
	t.Run("two exporters", c.twoExporters)
	t.Run("union of ports", c.unionOfPorts)
	t.Run("ports in conflict", c.portsInConflict)
	t.Run("headless", c.headless)
	t.Run("not ready", c.notReady)
	t.Run("affinity", c.affinity)
	t.Run("drain", c.drain)
	t.Run("controller killed", c.controllerKilled)
}

// clusterIP: clients everywhere reach the pods of the only exporter.
func (c *clusterset) clusterIP(t *testing.T) {
	web := service{Name: "web", Ports: map[string]int32{"http": 80}, Pods: 2}
	pods := c.west.offer(t, web)
	c.west.export(t, "web")
	for _, m := range c.members() {
		m.reaches(t, destination{name: importName("web"), port: 80}, podPort(80), pods...)
		m.reaches(t, destination{name: importName("web"), srv: "http"}, podPort(80), pods...)
		// What one cluster offers are its pods.
		m.reaches(t, destination{name: importName("web", "west"), port: podPort(80)}, podPort(80), pods...)
		m.reaches(t, destination{name: importName("web", "west"), srv: "http"}, podPort(80), pods...)
		m.answersVIP(t, "web")
	}
}

// twoExporters: the cluster IP leads to the pods of both members, until one of them exports no longer. With the last
// export the name is gone.
func (c *clusterset) twoExporters(t *testing.T) {
	api := service{Name: "api", Ports: map[string]int32{"http": 80}, Pods: 2}
	east, west := c.east.offer(t, api), c.west.offer(t, api)
	here := destination{name: importName("api"), port: 80}
	c.east.export(t, "api")
	c.west.export(t, "api")
	for _, m := range c.members() {
		m.reaches(t, here, podPort(80), slices.Concat(east, west)...)
	}
	c.east.unexport(t, "api")
	for _, m := range c.members() {
		m.reaches(t, here, podPort(80), west...)
		m.answersVIP(t, "api")
	}
	c.west.unexport(t, "api")
	for _, m := range c.members() {
		m.lacks(t, here)
	}
}

// unionOfPorts: a port that only one member serves leads to its pods alone.
func (c *clusterset) unionOfPorts(t *testing.T) {
	both := service{Name: "shop", Ports: map[string]int32{"http": 80}, Pods: 1}
	east := c.east.offer(t, both)
	more := both
	more.Ports = map[string]int32{"http": 80, "admin": 81}
	west := c.west.offer(t, more)
	c.east.export(t, "shop")
	c.west.export(t, "shop")
	for _, m := range c.members() {
		m.reaches(t, destination{name: importName("shop"), port: 80}, podPort(80), slices.Concat(east, west)...)
		m.reaches(t, destination{name: importName("shop"), port: 81}, podPort(81), west...)
	}
}

// portsInConflict: the older export has its way; the newer one serves a port under another name, but none of a name
// that means another number.
func (c *clusterset) portsInConflict(t *testing.T) {
	old := service{Name: "cart", Ports: map[string]int32{"http": 80, "admin": 81}, Pods: 1}
	young := old
	young.Ports = map[string]int32{"web": 80, "admin": 82}
	east, west := c.east.offer(t, old), c.west.offer(t, young)
	c.east.export(t, "cart")
	c.east.exported(t, "cart")
	c.west.export(t, "cart")
	for _, m := range c.members() {
		m.reaches(t, destination{name: importName("cart"), srv: "http"}, podPort(80), slices.Concat(east, west)...)
		m.reaches(t, destination{name: importName("cart"), port: 81}, podPort(81), east...)
		m.lacks(t, destination{name: importName("cart"), srv: "web"})
	}
}

// headless: the names of the service, of a cluster and of a pod are the addresses of pods.
func (c *clusterset) headless(t *testing.T) {
	db := service{Name: "db", Headless: true, Ports: map[string]int32{"pg": 32}, Pods: 2}
	east, west := c.east.offer(t, db), c.west.offer(t, db)
	port := podPort(32)
	c.east.export(t, "db")
	c.west.export(t, "db")
	for _, m := range c.members() {
		m.reaches(t, destination{name: importName("db"), port: port}, port, slices.Concat(east, west)...)
		m.reaches(t, destination{name: importName("db"), srv: "pg"}, port, slices.Concat(east, west)...)
		m.reaches(t, destination{name: importName("db", "west"), port: port}, port, west...)
		m.reaches(t, destination{name: importName("db", "db-0", "east"), port: port}, port, east[:2]...)
		m.reaches(t, destination{name: importName("db", "db-1", "west"), port: port}, port, west[2:]...)
	}
	c.west.unexport(t, "db")
	for _, m := range c.members() {
		m.reaches(t, destination{name: importName("db"), port: port}, port, east...)
		m.lacks(t, destination{name: importName("db", "west"), port: port})
		m.lacks(t, destination{name: importName("db", "db-1", "west"), port: port})
	}
}

// notReady: the pods of a headless Service with publishNotReadyAddresses have their names everywhere while they are not
// ready, for the controller that makes slices (docs/spec/controller.md 3.4).
func (c *clusterset) notReady(t *testing.T) {
	quorum := service{Name: "quorum", Headless: true, Ports: map[string]int32{"raft": 33}, Pods: 1}
	object := quorum.Object()
	object.Spec.PublishNotReadyAddresses = true
	pods := c.west.offer(t, quorum)
	must(t, c.west.Apply(t.Context(), object))
	pod := quorum.Pod(0, pods)
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	must(t, c.west.Apply(t.Context(), pod))
	until.OK(t, "slices of a pod that is not ready", func(context.Context) error {
		for _, s := range c.west.slicesOf(t, discoveryv1.LabelServiceName, "quorum") {
			for _, e := range s.Endpoints {
				if e.Conditions.Serving == nil || *e.Conditions.Serving || e.Conditions.Ready == nil || !*e.Conditions.Ready {
					return fmt.Errorf("conditions %+v, want one that is published though it does not serve", e.Conditions)
				}
			}
		}
		return nil
	})
	c.west.export(t, "quorum")
	port := podPort(33)
	for _, m := range c.members() {
		m.reaches(t, destination{name: importName("quorum"), port: port}, port, pods...)
		m.reaches(t, destination{name: importName("quorum", "quorum-0", "west"), port: port}, port, pods...)
	}
}

// controllerKilled: the others stop using the pods of a member that is not heard of, and use them again when it is.
func (c *clusterset) controllerKilled(t *testing.T) {
	queue := service{Name: "queue", Ports: map[string]int32{"amqp": 56}, Pods: 1}
	east, west := c.east.offer(t, queue), c.west.offer(t, queue)
	peers := service{Name: "peers", Headless: true, Ports: map[string]int32{"amqp": 56}, Pods: 1}
	eastPeers, westPeers := c.east.offer(t, peers), c.west.offer(t, peers)
	for _, m := range c.members() {
		m.export(t, "queue")
		m.export(t, "peers")
	}
	port := podPort(56)
	vip, all := destination{name: importName("queue"), port: 56}, destination{name: importName("peers"), port: port}
	c.west.reaches(t, vip, port, slices.Concat(east, west)...)
	c.west.reaches(t, all, port, slices.Concat(eastPeers, westPeers)...)

	c.east.kill()
	killed := time.Now()
	c.west.reaches(t, vip, port, west...)
	c.west.reaches(t, all, port, westPeers...)
	c.west.lacks(t, destination{name: importName("peers", "peers-0", "east"), port: port})
	// How long it takes depends on the machine, so no bound is checked here.
	t.Logf("%s after the end of the controller clients reach nothing of its cluster, with a TTL of %s",
		time.Since(killed), leaseTTL)

	c.east.startController(t)
	c.west.reaches(t, vip, port, slices.Concat(east, west)...)
	c.west.reaches(t, all, port, slices.Concat(eastPeers, westPeers)...)
}

// affinity: where a namespace prefers its own cluster, connections stay there while a pod is ready, go to the next
// cluster when none is, and come back (docs/spec/selection.md 3, docs/spec/selection.md 4).
func (c *clusterset) affinity(t *testing.T) {
	near := service{Name: "near", Ports: map[string]int32{"http": 80}, Pods: 1}
	east, west := c.east.offer(t, near), c.west.offer(t, near)
	for _, m := range c.members() {
		m.export(t, "near")
	}
	here, port := destination{name: importName("near"), port: 80}, podPort(80)
	c.east.reaches(t, here, port, slices.Concat(east, west)...)
	c.east.prefer(t, "local")
	c.east.reaches(t, here, port, east...)
	c.west.reaches(t, here, port, slices.Concat(east, west)...)

	pod := near.Pod(0, east)
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	must(t, c.east.Apply(t.Context(), pod))
	c.east.reaches(t, here, port, west...)
	must(t, c.east.Apply(t.Context(), near.Pod(0, east)))
	c.east.reaches(t, here, port, east...)

	c.east.prefer(t, "remote")
	c.east.reaches(t, here, port, west...)
	c.east.prefer(t, "none")
	c.east.reaches(t, here, port, slices.Concat(east, west)...)
}

// drain: while the pods of the preferred cluster end gracefully and come back, each connection is accepted, and one
// that is open stays where it is (docs/spec/selection.md 3).
func (c *clusterset) drain(t *testing.T) {
	moving := service{Name: "moving", Ports: map[string]int32{"http": 84}, Pods: 1}
	east, west := c.east.offer(t, moving), c.west.offer(t, moving)
	for _, m := range c.members() {
		m.export(t, "moving")
	}
	here, port := destination{name: importName("moving"), port: 84}, podPort(84)
	c.east.prefer(t, "local")
	defer c.east.prefer(t, "none")
	c.east.reaches(t, here, port, east...)

	var open []*netns.Connection
	var clients errgroup.Group
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, family := range families {
		targets, err := c.east.resolve(t.Context(), here, family)
		must(t, err)
		held, err := c.east.Node.Open(t.Context(), targets[0])
		must(t, err)
		defer held.Close()
		open = append(open, held)
		clients.Go(func() error { return c.east.connects(ctx, targets[0]) })
	}
	const grace = 600 // seconds: there is no kubelet, which would end the pod
	c.east.deletePod(t, "moving-0", grace)
	c.east.reaches(t, here, port, west...)
	for _, held := range open {
		if !slices.Contains(east, held.Reply.Pod.Addr()) {
			t.Errorf("an open connection is one to %s, want one to %s", held.Reply.Pod, east)
		}
		if err := held.Echo("after the switch"); err != nil {
			t.Errorf("an open connection to %s: %v", held.Reply.Pod, err)
		}
	}
	c.east.deletePod(t, "moving-0", 0)
	must(t, c.east.Apply(t.Context(), moving.Pod(0, east)))
	c.east.reaches(t, here, port, east...)
	stop()
	if err := clients.Wait(); err != nil {
		t.Error(err)
	}
}

// connects connects every 10 ms until ctx ends. An error is that of the first connection that fails.
func (m *member) connects(ctx context.Context, to netip.AddrPort) error {
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		if _, err := m.Node.Connect(context.WithoutCancel(ctx), to); err != nil {
			tick.Stop()
			return err
		}
	}
}

// deletePod has a pod end within so many seconds.
func (m *member) deletePod(t *testing.T, name string, grace int64) {
	t.Helper()
	must(t, m.Dynamic().Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace).
		Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
}

// prefer annotates the namespace.
func (m *member) prefer(t *testing.T, affinity string) {
	t.Helper()
	prefer(t, m.Member, affinity)
}

func prefer(t *testing.T, m *testclusterset.Member, affinity string) {
	t.Helper()
	ns := testclusterset.Namespace(namespace)
	ns.Annotations = map[string]string{apibroker.AnnotationAffinity: affinity}
	m.Put(t, ns)
}
