//go:build traffic && linux

package traffic

import (
	"os"
	"testing"
)

func TestTraffic(t *testing.T) {
	c := start(t)
	t.Run("cluster IP", c.clusterIP)
	if os.Getenv(endEnv) != "" {
		end(t)
	}
	t.Run("two exporters", c.twoExporters)
	t.Run("union of ports", c.unionOfPorts)
	t.Run("headless", c.headless)
}

// clusterIP: clients everywhere reach the pods of the only exporter.
func (c *clusterset) clusterIP(t *testing.T) {
	web := service{name: "web", ports: map[string]int32{"http": 80}, pods: 2}
	pods := c.west.offer(t, web)
	c.share(t, web, c.west)
	for _, m := range c.members() {
		m.reaches(t, door{name: importName("web"), port: 80}, podPort(80), pods...)
		m.reaches(t, door{name: importName("web"), srv: "http"}, podPort(80), pods...)
		// What one cluster offers are its pods.
		m.reaches(t, door{name: importName("web", "west"), port: podPort(80)}, podPort(80), pods...)
		m.reaches(t, door{name: importName("web", "west"), srv: "http"}, podPort(80), pods...)
	}
}

// twoExporters: the cluster IP leads to the pods of both members, until one of them exports no longer.
func (c *clusterset) twoExporters(t *testing.T) {
	api := service{name: "api", ports: map[string]int32{"http": 80}, pods: 2}
	east, west := c.east.offer(t, api), c.west.offer(t, api)
	here := door{name: importName("api"), port: 80}
	c.share(t, api, c.east, c.west)
	for _, m := range c.members() {
		m.reaches(t, here, podPort(80), append(east, west...)...)
	}
	c.share(t, api, c.west)
	for _, m := range c.members() {
		m.reaches(t, here, podPort(80), west...)
	}
}

// unionOfPorts: a port that only one member serves leads to its pods alone.
func (c *clusterset) unionOfPorts(t *testing.T) {
	both := service{name: "shop", ports: map[string]int32{"http": 80}, pods: 1}
	east := c.east.offer(t, both)
	more := both
	more.ports = map[string]int32{"http": 80, "admin": 81}
	west := c.west.offer(t, more)
	c.share(t, both, c.east, c.west)
	for _, m := range c.members() {
		m.reaches(t, door{name: importName("shop"), port: 80}, podPort(80), append(east, west...)...)
		m.reaches(t, door{name: importName("shop"), port: 81}, podPort(81), west...)
	}
}

// headless: the names of the service, of a cluster and of a pod are the addresses of pods.
func (c *clusterset) headless(t *testing.T) {
	db := service{name: "db", headless: true, ports: map[string]int32{"pg": 32}, pods: 2}
	east, west := c.east.offer(t, db), c.west.offer(t, db)
	port := podPort(32)
	c.share(t, db, c.east, c.west)
	for _, m := range c.members() {
		m.reaches(t, door{name: importName("db"), port: port}, port, append(east, west...)...)
		m.reaches(t, door{name: importName("db"), srv: "pg"}, port, append(east, west...)...)
		m.reaches(t, door{name: importName("db", "west"), port: port}, port, west...)
		m.reaches(t, door{name: importName("db", "db-0", "east"), port: port}, port, east[:2]...)
	}
	c.share(t, db, c.east)
	for _, m := range c.members() {
		m.reaches(t, door{name: importName("db"), port: port}, port, east...)
	}
}
