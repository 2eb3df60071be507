//go:build traffic && linux

package traffic

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// balancers are the addresses of the load balancers of two members.
var balancers = map[string][]netip.Addr{
	"east": {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	"west": {netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")},
}

// TestLoadBalancers has two members with the same networks of Pods and Services, and without a route between them. Each
// reaches the load balancers of the other alone (docs/spec/controller.md 3.4).
func TestLoadBalancers(t *testing.T) {
	c := startApart(t)
	web := service{Name: "web", Ports: map[string]int32{"http": 90}, Pods: 1}
	here := destination{name: importName("web"), port: 90}
	pods := make(map[*member][]netip.Addr)
	for _, m := range c.members() {
		pods[m] = m.offer(t, web)
		m.Put(t, balanced(web))
		m.export(t, "web")
		m.awaitReady(t, "web", "Ready=False/Pending") // there is no address yet
	}
	for _, m := range c.members() {
		m.reachesClusters(t, here, m.ID)
	}
	for _, m := range c.members() {
		m.Put(t, balanced(web, balancers[m.ID]...))
		m.awaitReady(t, "web", "Ready=True/Exported")
	}
	both := func() {
		t.Helper()
		for _, m := range c.members() {
			m.reachesClusters(t, here, "east", "west")
		}
	}
	both()
	for _, ended := range c.members() {
		pod := web.Pod(0, pods[ended])
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		ended.Put(t, pod)
		for _, m := range c.members() {
			m.reachesClusters(t, here, other(ended.ID))
		}
		ended.Put(t, web.Pod(0, pods[ended]))
		both()
	}
	c.verifiedApart(t)
}

// verifiedApart: clusterset verify reaches each member by its load balancers, which here forward TCP alone.
func (c *clusterset) verifiedApart(t *testing.T) {
	t.Helper()
	c.east.forwards(t, c.west, 8080)
	c.west.forwards(t, c.east, 8080)
	run, timeout := c.verifier(t), 5*time.Second
	until.OK(t, "only UDP fails", func(context.Context) error {
		report := run(timeout)
		timeout *= 2 // a slow machine needs more, and UDP takes all of it
		connected := 0
		for _, check := range report.Checks {
			if check.Kind == plan.Headless || (check.Mark == plan.OK) == (check.Step == plan.UDP) {
				return fmt.Errorf("%+v", check)
			}
			if check.Step == plan.TCP {
				connected++
			}
		}
		if connected != 4 {
			return fmt.Errorf("%d connections, want both ways in both families", connected)
		}
		return nil
	})
}

// startApart starts east and west in networks of their own, with a way to the load balancers of the other.
func startApart(t *testing.T) *clusterset {
	t.Helper()
	bin := build(t)
	f, err := testclusterset.Start(t.Context(), testclusterset.Options{IDs: []string{"east", "west"}, SameNetworks: true})
	must(t, err)
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	exports := []func(*controller.Config){func(c *controller.Config) { c.Endpoints = broker.LoadBalancer }}
	var all []*member
	for _, of := range f.Members {
		_, err := of.Join(t.Context(), func(o *join.Options) {
			o.Endpoints, o.LoadBalancerCIDRs = broker.LoadBalancer, []string{"192.0.2.0/24", "2001:db8::/64"}
		})
		must(t, err)
		all = append(all, startMember(t, netns.NewT(t), bin, of, exports))
	}
	c := &clusterset{east: all[0], west: all[1]}
	c.east.forwards(t, c.west, 90)
	c.west.forwards(t, c.east, 90)
	return c
}

func other(id string) string {
	if id == "east" {
		return "west"
	}
	return "east"
}

// balanced returns the Service as one of type LoadBalancer that has these addresses.
func balanced(s service, addrs ...netip.Addr) *corev1.Service {
	object := s.Object()
	object.Spec.Type = corev1.ServiceTypeLoadBalancer
	object.Status.LoadBalancer.Ingress = ingress(addrs...)
	return object
}

func ingress(addrs ...netip.Addr) (all []corev1.LoadBalancerIngress) {
	for _, a := range addrs {
		all = append(all, corev1.LoadBalancerIngress{IP: a.String()})
	}
	return all
}

// forwards stands for the load balancers of another member, for clients in m. The other node has them by kube-proxy.
func (m *member) forwards(t *testing.T, to *member, port uint16) {
	t.Helper()
	for _, a := range balancers[to.ID] {
		must(t, m.Node.Forward(t.Context(), netip.AddrPortFrom(a, port), to.Node))
	}
}

// awaitReady waits until the export has the condition.
func (m *member) awaitReady(t *testing.T, name, want string) {
	t.Helper()
	until.OK(t, fmt.Sprintf("export of %s in %s", name, m.ID), func(context.Context) error {
		exp, err := m.ServiceExport(t.Context(), namespace, name)
		if err != nil {
			return err
		}
		return testclusterset.Condition(exp.Status.Conditions, want)
	})
}

// reachesClusters waits until clients in m reach, in each family, the Pods of these clusters and of no others.
func (m *member) reachesClusters(t *testing.T, d destination, want ...string) {
	t.Helper()
	for _, family := range families {
		until.OK(t, fmt.Sprintf("from %s to %+v by %s", m.ID, d, family), func(context.Context) error {
			targets, err := m.resolve(t.Context(), d, family)
			if err != nil {
				return err
			}
			reached := make(map[string]bool)
			for range 30 {
				r, err := m.Node.Connect(t.Context(), targets[0])
				if err != nil {
					return err
				}
				reached[r.Cluster] = true
			}
			if got := slices.Sorted(maps.Keys(reached)); !slices.Equal(got, want) {
				return fmt.Errorf("reached %s, want %s", got, want)
			}
			return nil
		})
	}
}
