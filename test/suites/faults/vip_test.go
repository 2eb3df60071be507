package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// awaitIPs waits until the imports of a service in both members have these endpoints and one clusterset IP, the same,
// and returns it.
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

// docs/spec/controller.md 5.7: the clusterset IP of a service stays when the claiming member ends its export and
// deletes the namespace. It stays when the broker is restored to before the claim, and that member's controller
// restarts.
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
	until.OK(t, "no import in east", func(ctx context.Context) error {
		return testclusterset.Gone(east.Import(ctx, ns, "shared"))
	})
	awaitImport(t, west, ns, "shared", "10.22.0.1")
	if imp, err := west.Import(t.Context(), ns, "shared"); err != nil || len(imp.Spec.IPs) != 1 ||
		imp.Spec.IPs[0] != first {
		t.Errorf("import of shared in west is %v (%v) without the namespace in east, want %s", imp, err, first)
	}
}

// The broker is restored to before west added a network and a VIP CIDR, and before its quota was raised. Imports lose
// no endpoint and no clusterset IP, also with a restarted controller, and west reports that it has to join again. What
// policies and quota of the broker deny is listed as behind, and follows after that (docs/spec/controller.md 3.6,
// docs/spec/controller.md 7.4).
func TestJoinIsRestored(t *testing.T) {
	tier.Nightly(t)
	const ns, pods = "rejoined", "10.77.0.0/16"
	joinWest := func(vip string, networks ...string) {
		t.Helper()
		if _, err := west.Join(t.Context(), func(o *join.Options) {
			o.VIPCIDR, o.PodCIDRs = vip,
				append(o.PodCIDRs, networks...)
		}); err != nil {
			t.Fatal(err)
		}
	}
	joinWest(join.CIDRNone)
	east.Put(t, testclusterset.Namespace(ns))
	export(t, west, ns, "web", "10.22.0.1")
	cidr := func(c *controller.Config) { c.VIP = merge.CIDR }
	e, w := run(t, east, cidr), run(t, west, cidr)
	awaitImport(t, east, ns, "web", "10.22.0.1")
	limitSlices(t, west, 0)
	saved := saveBroker(t)
	limitSlices(t, west, 1000)
	joinWest(join.VIPAuto, pods)
	export(t, west, ns, "new", "10.77.0.1")
	export(t, west, ns, "more", "10.22.0.11")
	ip := awaitIPs(t, ns, "new", "10.77.0.1")
	awaitImport(t, east, ns, "more", "10.22.0.11")
	for _, name := range []string{"new", "more"} {
		awaitListedIn(t, east, ns, name)
	}
	for _, m := range clusters.Members {
		awaitMembersNote(t, m, pods)
	}
	// check lets west change what every Member and every quota allows, and then looks at what only the newest ones do.
	check := func(web, pod, more string) {
		t.Helper()
		serve(t, west, ns, "web", web)
		awaitImport(t, east, ns, "web", web)
		awaitImport(t, east, ns, "new", pod)
		awaitImport(t, east, ns, "more", more)
		if imp, err := east.Import(t.Context(), ns, "new"); err != nil || !slices.Equal(imp.Spec.IPs, []string{ip}) {
			t.Errorf("import %v (%v), want the clusterset IP %s", imp, err, ip)
		}
	}
	restoreBroker(t, saved)
	w.awaitMetric("frozen", "old_member", 1)
	serve(t, west, ns, "new", "10.77.0.2")
	serve(t, west, ns, "more", "10.22.0.12")
	awaitBehind(t, west, ns, "new", "addresses have to be in the networks")
	awaitBehind(t, west, ns, "more", "exceeded quota")
	check("10.22.0.2", "10.77.0.1", "10.22.0.11")
	e.stop()
	run(t, east, cidr)
	check("10.22.0.3", "10.77.0.1", "10.22.0.11")
	joinWest("", pods)
	limitSlices(t, west, 1000)
	w.awaitMetric("frozen", "old_member", 0)
	check("10.22.0.4", "10.77.0.2", "10.22.0.12")
	if err := dropParameters(t.Context(), west); err != nil {
		t.Fatal(err)
	}
}

// limitSlices lets a member have so many slices more on the broker than it has. It writes the status of the quota, as
// the controller of quotas does.
func limitSlices(t *testing.T, m *testclusterset.Member, more int) {
	t.Helper()
	list, err := clusters.Broker.Dynamic().Resource(endpoints).Namespace(m.BrokerNamespace()).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(n int) corev1.ResourceList {
		return corev1.ResourceList{"count/endpointslices.discovery.k8s.io": *resource.NewQuantity(int64(n),
			resource.DecimalSI)}
	}
	if err := clusters.Broker.Apply(t.Context(), &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: metav1.ObjectMeta{Namespace: m.BrokerNamespace(), Name: "member"},
		Status:     corev1.ResourceQuotaStatus{Hard: of(len(list.Items) + more), Used: of(len(list.Items))},
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitBehind waits until the inventory of a member marks an export as behind, and the message of its condition has the
// text why.
func awaitBehind(t *testing.T, m *testclusterset.Member, namespace, name, why string) {
	t.Helper()
	until.OK(t, name+" of "+m.ID+" is behind", func(ctx context.Context) error {
		part, err := clusters.Broker.Dynamic().Resource(v1alpha1.Inventories).Namespace(m.BrokerNamespace()).
			Get(ctx, broker.InventoryPart(namespace, name), metav1.GetOptions{})
		if err != nil {
			return err
		}
		entries, _, err := unstructured.NestedSlice(part.Object, "spec", "exports")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(entries, func(e any) bool {
			is := e.(map[string]any)
			return is["name"] == broker.RecordName(namespace, name) && is["behind"] != nil && is["uid"] != nil
		}) {
			return fmt.Errorf("the inventory has %v", entries)
		}
		exp, err := m.ServiceExport(ctx, namespace, name)
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(exp.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		if ready == nil || !strings.Contains(ready.Message, why) {
			return fmt.Errorf("condition %v, want the message %q", ready, why)
		}
		return nil
	})
}
