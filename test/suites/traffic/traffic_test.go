//go:build traffic && linux

package traffic

import (
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
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
	t.Run("affinity", c.affinity)
	t.Run("controller killed", c.controllerKilled)
}

// clusterIP: clients everywhere reach the pods of the only exporter.
func (c *clusterset) clusterIP(t *testing.T) {
	web := service{Name: "web", Ports: map[string]int32{"http": 80}, Pods: 2}
	pods := c.west.offer(t, web)
	c.west.export(t, "web")
	for _, m := range c.members() {
		m.reaches(t, door{name: importName("web"), port: 80}, podPort(80), pods...)
		m.reaches(t, door{name: importName("web"), srv: "http"}, podPort(80), pods...)
		// What one cluster offers are its pods.
		m.reaches(t, door{name: importName("web", "west"), port: podPort(80)}, podPort(80), pods...)
		m.reaches(t, door{name: importName("web", "west"), srv: "http"}, podPort(80), pods...)
		m.answersVIP(t, "web")
	}
}

// twoExporters: the cluster IP leads to the pods of both members, until one of them exports no longer. With the last export
// the name is gone.
func (c *clusterset) twoExporters(t *testing.T) {
	api := service{Name: "api", Ports: map[string]int32{"http": 80}, Pods: 2}
	east, west := c.east.offer(t, api), c.west.offer(t, api)
	here := door{name: importName("api"), port: 80}
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
		m.reaches(t, door{name: importName("shop"), port: 80}, podPort(80), slices.Concat(east, west)...)
		m.reaches(t, door{name: importName("shop"), port: 81}, podPort(81), west...)
	}
}

// portsInConflict: the older export has its way; the newer one serves a port under another name, but none of a name that
// means another number.
func (c *clusterset) portsInConflict(t *testing.T) {
	old := service{Name: "cart", Ports: map[string]int32{"http": 80, "admin": 81}, Pods: 1}
	young := old
	young.Ports = map[string]int32{"web": 80, "admin": 82}
	east, west := c.east.offer(t, old), c.west.offer(t, young)
	c.east.export(t, "cart")
	c.east.exported(t, "cart")
	c.west.export(t, "cart")
	for _, m := range c.members() {
		m.reaches(t, door{name: importName("cart"), srv: "http"}, podPort(80), slices.Concat(east, west)...)
		m.reaches(t, door{name: importName("cart"), port: 81}, podPort(81), east...)
		m.lacks(t, door{name: importName("cart"), srv: "web"})
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
		m.reaches(t, door{name: importName("db"), port: port}, port, slices.Concat(east, west)...)
		m.reaches(t, door{name: importName("db"), srv: "pg"}, port, slices.Concat(east, west)...)
		m.reaches(t, door{name: importName("db", "west"), port: port}, port, west...)
		m.reaches(t, door{name: importName("db", "db-0", "east"), port: port}, port, east[:2]...)
		m.reaches(t, door{name: importName("db", "db-1", "west"), port: port}, port, west[2:]...)
	}
	c.west.unexport(t, "db")
	for _, m := range c.members() {
		m.reaches(t, door{name: importName("db"), port: port}, port, east...)
		m.lacks(t, door{name: importName("db", "west"), port: port})
		m.lacks(t, door{name: importName("db", "db-1", "west"), port: port})
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
	vip, all := door{name: importName("queue"), port: 56}, door{name: importName("peers"), port: port}
	c.west.reaches(t, vip, port, slices.Concat(east, west)...)
	c.west.reaches(t, all, port, slices.Concat(eastPeers, westPeers)...)

	c.east.kill()
	killed := time.Now()
	c.west.reaches(t, vip, port, west...)
	c.west.reaches(t, all, port, westPeers...)
	c.west.lacks(t, door{name: importName("peers", "peers-0", "east"), port: port})
	// How long it takes depends on the machine, so no bound is checked here.
	t.Logf("%s after the end of the controller clients reach nothing of its cluster, with a TTL of %s", time.Since(killed), leaseTTL)

	c.east.startController(t)
	c.west.reaches(t, vip, port, slices.Concat(east, west)...)
	c.west.reaches(t, all, port, slices.Concat(eastPeers, westPeers)...)
}

// affinity: where a namespace prefers its own cluster, connections stay there while a pod is ready, go next door when none is, and come back
// (docs/spec/selection.md 3, docs/spec/selection.md 4).
func (c *clusterset) affinity(t *testing.T) {
	near := service{Name: "near", Ports: map[string]int32{"http": 80}, Pods: 1}
	east, west := c.east.offer(t, near), c.west.offer(t, near)
	for _, m := range c.members() {
		m.export(t, "near")
	}
	here, port := door{name: importName("near"), port: 80}, podPort(80)
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

// prefer annotates the namespace.
func (m *member) prefer(t *testing.T, affinity string) {
	t.Helper()
	ns := testclusterset.Namespace(namespace)
	ns.Annotations = map[string]string{apibroker.AnnotationAffinity: affinity}
	m.Put(t, ns)
}
