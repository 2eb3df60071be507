//go:build traffic && linux

package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestVirtualIPs: with "vip cidr" clients of all members connect to one address of each family, the same everywhere,
// and reach the pods behind it (docs/spec/controller.md 5.7).
func TestVirtualIPs(t *testing.T) {
	c := startWith(t, func(c *controller.Config) { c.VIP = merge.CIDR })
	t.Run("one address everywhere", c.oneAddressEverywhere)
	t.Run("kube-proxy restarts", c.proxyRestarts)
	t.Run("an export without an address", c.withoutAddress)
	t.Run("beside derived", c.besideDerived)
}

// addressesOf waits until the service has an address of each family in this member, and that its name has them, and
// returns them.
func (m *member) addressesOf(t *testing.T, service string) (addresses []string) {
	t.Helper()
	until.OK(t, fmt.Sprintf("addresses of %s in %s", service, m.ID), func(context.Context) error {
		imp, err := m.Import(t.Context(), namespace, service)
		if err != nil {
			return err
		}
		if addresses = imp.Spec.IPs; len(addresses) != len(families) {
			return fmt.Errorf("%v, want one of each family", addresses)
		}
		return nil
	})
	m.answersVIP(t, service)
	return addresses
}

// areVIPs fails the test unless the addresses are clusterset IPs.
func areVIPs(t *testing.T, addresses []string) {
	t.Helper()
	for _, a := range addresses {
		addr := netip.MustParseAddr(a)
		if !merge.DefaultVIPNetworks.ForFamilyOf(addr).Contains(addr) {
			t.Errorf("%s is no clusterset IP", a)
		}
	}
}

// oneAddressEverywhere: the pods of both members are behind it, until one of them exports no longer. The address stays,
// though that one had allocated it.
func (c *clusterset) oneAddressEverywhere(t *testing.T) {
	api := service{Name: "api", Ports: map[string]int32{"http": 80}, Pods: 2}
	east, west := c.east.offer(t, api), c.west.offer(t, api)
	here := destination{name: importName("api"), port: 80}
	c.east.export(t, "api")
	c.east.exported(t, "api")
	c.west.export(t, "api")
	first := c.east.addressesOf(t, "api")
	areVIPs(t, first)
	for _, m := range c.members() {
		if got := m.addressesOf(t, "api"); !slices.Equal(got, first) {
			t.Errorf("%s has %v, want %v as east has", m.ID, got, first)
		}
		m.reaches(t, here, podPort(80), slices.Concat(east, west)...)
	}
	c.east.unexport(t, "api")
	for _, m := range c.members() {
		m.reaches(t, here, podPort(80), west...)
		if got := m.addressesOf(t, "api"); !slices.Equal(got, first) {
			t.Errorf("%s has %v after the end of the first export, want %v still", m.ID, got, first)
		}
	}
}

// proxyRestarts: kube-proxy makes the same of the same objects, and of what changed while it was away.
func (c *clusterset) proxyRestarts(t *testing.T) {
	web := service{Name: "web", Ports: map[string]int32{"http": 81}, Pods: 1}
	east, west := c.east.offer(t, web), c.west.offer(t, web)
	here := destination{name: importName("web"), port: 81}
	c.west.export(t, "web")
	for _, m := range c.members() {
		m.reaches(t, here, podPort(81), west...)
		must(t, m.Node.RestartProxy(t.Context(), m.Proxy, m.Kubeconfig(), nodeName))
		m.reaches(t, here, podPort(81), west...)
	}
	c.east.export(t, "web")
	for _, m := range c.members() {
		m.reaches(t, here, podPort(81), slices.Concat(east, west)...)
	}
}

// withoutAddress: an export that wants no clusterset IP is reached by its pods, as DNS returns these.
func (c *clusterset) withoutAddress(t *testing.T) {
	pods := c.west.offer(t, service{Name: "plain", Ports: map[string]int32{"http": 82}, Pods: 1})
	exp := testclusterset.Export(namespace, "plain")
	exp.SetAnnotations(map[string]string{apibroker.AnnotationUseVIP: "false"})
	c.west.Put(t, exp)
	for _, m := range c.members() {
		m.reaches(t, destination{name: importName("plain"), port: podPort(82)}, podPort(82), pods...)
	}
}

// besideDerived: a member with "vip derived" has addresses of its own for the same service, and those of the others are
// reached as before.
func (c *clusterset) besideDerived(t *testing.T) {
	mixed := service{Name: "mixed", Ports: map[string]int32{"http": 83}, Pods: 1}
	east, west := c.east.offer(t, mixed), c.west.offer(t, mixed)
	here := destination{name: importName("mixed"), port: 83}
	c.west.kill()
	c.west.options = []func(*controller.Config){func(c *controller.Config) { c.VIP = merge.Derived }}
	c.west.startController(t)
	c.east.export(t, "mixed")
	c.west.export(t, "mixed")
	for _, m := range c.members() {
		m.reaches(t, here, podPort(83), slices.Concat(east, west)...)
	}
	areVIPs(t, c.east.addressesOf(t, "mixed"))
	for _, a := range c.west.addressesOf(t, "mixed") {
		if addr := netip.MustParseAddr(a); merge.DefaultVIPNetworks.ForFamilyOf(addr).Contains(addr) {
			t.Errorf("%s in west, want an address of its own", a)
		}
	}
}
