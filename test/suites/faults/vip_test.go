package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// awaitIPs waits until the imports of a service in both members have these endpoints and one clusterset IP, the same, and returns it.
func awaitIPs(t *testing.T, namespace, name, endpoints string) (ip string) {
	t.Helper()
	until.OK(t, fmt.Sprintf("a clusterset IP of %s/%s", namespace, name), func(ctx context.Context) error {
		ip = ""
		for _, m := range clusters.Members {
			imp, err := m.Import(ctx, namespace, name)
			if err != nil {
				return err
			}
			if got := strings.Join(imp.Spec.IPs, " "); len(imp.Spec.IPs) != 1 || ip != "" && got != ip {
				return fmt.Errorf("%s has %q, want one address, as the other member has %q", m.ID, got, ip)
			}
			ip = imp.Spec.IPs[0]
		}
		return nil
	})
	for _, m := range clusters.Members {
		awaitImport(t, m, namespace, name, endpoints)
	}
	return ip
}

// docs/spec/controller.md 5.7: the clusterset IP of a service stays when the claiming member ends its export and deletes the
// namespace. It stays when the broker is restored to before the claim, and that member's controller restarts.
func TestClaimsStay(t *testing.T) {
	tier.Nightly(t)
	const ns = "claims"
	cidr := func(c *controller.Config) { c.VIP = merge.CIDR }
	e := run(t, east, cidr)
	run(t, west, cidr)
	west.Put(t, testclusterset.Namespace(ns))
	export(t, east, ns, "shared", "10.21.0.1")
	first := awaitIPs(t, ns, "shared", "10.21.0.1")
	export(t, west, ns, "shared", "10.22.0.1")
	if got := awaitIPs(t, ns, "shared", "10.21.0.1 10.22.0.1"); got != first {
		t.Errorf("clusterset IP %s with a second export, want %s", got, first)
	}
	east.Drop(t, testclusterset.Export(ns, "shared"))
	if got := awaitIPs(t, ns, "shared", "10.22.0.1"); got != first {
		t.Errorf("clusterset IP %s after the end of the first export, want %s", got, first)
	}

	saved := saveBroker(t)
	export(t, east, ns, "later", "10.21.0.1")
	later := awaitIPs(t, ns, "later", "10.21.0.1")
	awaitListedIn(t, west, ns, "later")
	e.stop()
	restoreBroker(t, saved)
	run(t, east, cidr)
	awaitRecord(t, east, ns, "later", true)
	awaitListedIn(t, west, ns, "later")
	for name, want := range map[string]string{"shared": first, "later": later} {
		if got := awaitIPs(t, ns, name, map[string]string{"shared": "10.22.0.1", "later": "10.21.0.1"}[name]); got != want {
			t.Errorf("clusterset IP %s of %s after a restore, want %s", got, name, want)
		}
	}

	east.Drop(t, testclusterset.Namespace(ns))
	until.OK(t, "no import in east", func(ctx context.Context) error { return testclusterset.Gone(east.Import(ctx, ns, "shared")) })
	awaitImport(t, west, ns, "shared", "10.22.0.1")
	if imp, err := west.Import(t.Context(), ns, "shared"); err != nil || len(imp.Spec.IPs) != 1 || imp.Spec.IPs[0] != first {
		t.Errorf("import of shared in west is %v (%v) without the namespace in east, want %s", imp, err, first)
	}
}

// The broker is restored to before west added a network and a VIP CIDR. Imports lose no endpoint and no clusterset IP, also with a restarted
// controller, and west reports that it has to join again. Slices that the policies of the broker deny follow after that (docs/spec/controller.md 7.4).
func TestJoinIsRestored(t *testing.T) {
	tier.Nightly(t)
	const ns, pods = "rejoined", "10.77.0.0/16"
	joinWest := func(vip string, networks ...string) {
		t.Helper()
		if _, err := west.Join(t.Context(), func(o *admin.JoinOptions) { o.VIPCIDR, o.PodCIDRs = vip, append(o.PodCIDRs, networks...) }); err != nil {
			t.Fatal(err)
		}
	}
	joinWest(admin.VIPNone)
	east.Put(t, testclusterset.Namespace(ns))
	export(t, west, ns, "web", "10.22.0.1")
	cidr := func(c *controller.Config) { c.VIP = merge.CIDR }
	e, w := run(t, east, cidr), run(t, west, cidr)
	awaitImport(t, east, ns, "web", "10.22.0.1")
	saved := saveBroker(t)
	joinWest(admin.VIPAuto, pods)
	export(t, west, ns, "new", "10.77.0.1")
	ip := awaitIPs(t, ns, "new", "10.77.0.1")
	awaitListedIn(t, east, ns, "new")
	for _, m := range clusters.Members {
		awaitMembersNote(t, m, pods)
	}
	// check lets west change what every Member allows, and then looks at what only the newest one does.
	check := func(web, pod string) {
		t.Helper()
		serve(t, west, ns, "web", web)
		awaitImport(t, east, ns, "web", web)
		awaitImport(t, east, ns, "new", pod)
		if imp, err := east.Import(t.Context(), ns, "new"); err != nil || !slices.Equal(imp.Spec.IPs, []string{ip}) {
			t.Errorf("import %v (%v), want the clusterset IP %s", imp, err, ip)
		}
	}
	restoreBroker(t, saved)
	w.awaitMetric("frozen", "old_member", 1)
	serve(t, west, ns, "new", "10.77.0.2") // denied
	check("10.22.0.2", "10.77.0.1")
	e.stop()
	run(t, east, cidr)
	check("10.22.0.3", "10.77.0.1")
	joinWest("", pods)
	w.awaitMetric("frozen", "old_member", 0)
	check("10.22.0.4", "10.77.0.2")
	if err := dropParameters(t.Context(), west); err != nil {
		t.Fatal(err)
	}
}
