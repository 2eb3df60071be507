package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// awaitRecord waits until the broker has, or does not have, an export record of a member.
func awaitRecord(t *testing.T, m *testclusterset.Member, namespace, name string, want bool) {
	t.Helper()
	until.OK(t, fmt.Sprintf("record %s/%s of %s", namespace, name, m.ID), func(ctx context.Context) error {
		record, err := clusters.Broker.Dynamic().Resource(records).Namespace(m.BrokerNamespace()).
			Get(ctx, broker.RecordName(namespace, name), metav1.GetOptions{})
		if want {
			return err
		}
		return testclusterset.Gone(record, err)
	})
}

func saveBroker(t *testing.T) string {
	t.Helper()
	saved, err := clusters.Broker.SaveEtcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func restoreBroker(t *testing.T, saved string) {
	t.Helper()
	if err := clusters.Broker.RestoreEtcd(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
}

// The broker is restored from an old backup, without half of the exports and with one that was withdrawn. Each member
// corrects its own records. What is imported from others stays meanwhile (docs/spec/controller.md 8.6).
func TestBrokerIsRestored(t *testing.T) {
	const ns = "restored"
	both := func(name string) {
		export(t, east, ns, name, "10.21.0.1")
		export(t, west, ns, name, "10.22.0.1")
	}
	both("old")
	both("withdrawn")
	// Each gets a TTL to correct its own records.
	long := func(c *controller.Config) { c.TTL = time.Minute }
	e, w := run(t, east, long), run(t, west, long)
	for _, name := range []string{"old", "withdrawn"} {
		awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.1")
		awaitImport(t, west, ns, name, "10.21.0.1 10.22.0.1")
	}
	saved := saveBroker(t)
	for _, name := range []string{"new-1", "new-2", "new-3"} {
		both(name)
	}
	// One member joined after the backup. It has no account at the restored broker, so its exports stay until it joins
	// again.
	south := newFakeMember(t, "south", "51", ns, "late", "10.30.0.1")
	stopHeartbeats := heartbeats(t, south.namespace, south.id, rightClock)
	awaitImport(t, east, ns, "late", "10.30.0.1")
	east.Drop(t, testclusterset.Export(ns, "withdrawn"))
	west.Drop(t, testclusterset.Export(ns, "withdrawn"))
	for _, m := range clusters.Members {
		for _, name := range []string{"old", "new-1", "new-2", "new-3"} {
			awaitImport(t, m, ns, name, "10.21.0.1 10.22.0.1")
		}
		awaitImport(t, m, ns, "withdrawn", "none")
	}
	serve(t, east, ns, "old", "10.21.0.2")
	awaitImport(t, west, ns, "old", "10.21.0.2 10.22.0.1")
	for _, name := range []string{"old", "new-1", "new-2", "new-3"} {
		awaitListed(t, ns, name)
	}
	inEast, inWest := steady(t, east, ns, "old", "new-1", "new-2", "new-3", "late"),
		steady(t, west, ns, "old", "new-1", "new-2", "new-3")

	stopHeartbeats()
	restoreBroker(t, saved)
	restored := time.Now()
	for _, m := range clusters.Members {
		for _, name := range []string{"new-1", "new-2", "new-3"} {
			awaitRecord(t, m, ns, name, true)
		}
		awaitRecord(t, m, ns, "withdrawn", false)
	}
	outages.Since(t, "F6", restored, 90*time.Second, "exports back")
	e.awaitMetric("frozen", "lost_members", 1)
	w.awaitMetric("kept_imports", "east", 0)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "withdrawn", "none")
		awaitImport(t, m, ns, "old", "10.21.0.2 10.22.0.1")
	}
	serve(t, east, ns, "new-1", "10.21.0.2")
	awaitImport(t, west, ns, "new-1", "10.21.0.2 10.22.0.1")
	awaitImport(t, east, ns, "late", "10.30.0.1")
	south.join()
	heartbeats(t, south.namespace, south.id, rightClock)
	south.export()
	e.awaitMetric("frozen", "lost_members", 0)
	awaitImport(t, east, ns, "late", "10.30.0.1")
	inEast()
	inWest()
}

// awaitListed waits until the imports of a service, which both members export, note that it is listed. The inventory
// may follow the record by a second, and an unlisted export stays only while its record is there.
func awaitListed(t *testing.T, ns, name string) {
	t.Helper()
	for _, m := range clusters.Members {
		awaitListedIn(t, m, ns, name)
	}
}

// awaitListedIn is awaitListed for the import of one member, and an export of the other.
func awaitListedIn(t *testing.T, m *testclusterset.Member, ns, name string) {
	t.Helper()
	until.OK(t, m.ID+" notes that "+name+" is listed", func(ctx context.Context) error {
		imp, err := m.Import(ctx, ns, name)
		if err == nil && !strings.Contains(imp.Annotations[broker.AnnotationSources], `"listed":`) {
			err = fmt.Errorf("notes %q", imp.Annotations[broker.AnnotationSources])
		}
		return err
	})
}

// The broker loses all records before a controller starts, and later all slices while the controllers run. No import
// changes until the members have written them again.
func TestBrokerIsEmptied(t *testing.T) {
	const ns = "emptied"
	names := []string{"a", "b", "c"}
	for n := range 20 {
		names = append(names, fmt.Sprint("more-", n))
	}
	for _, name := range names {
		export(t, east, ns, name, "10.21.0.1")
		export(t, west, ns, name, "10.22.0.1")
	}
	long := func(c *controller.Config) { c.TTL = time.Minute }
	e, w := run(t, east, long), run(t, west, long)
	for _, name := range names {
		awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.1")
		awaitImport(t, west, ns, name, "10.21.0.1 10.22.0.1")
	}
	for _, name := range names {
		awaitListed(t, ns, name)
	}
	e.stop()
	w.stop()
	inEast, inWest := undisturbed(t, east, ns), undisturbed(t, west, ns)
	askEast, askWest := resolveBoth(t, ns, "a")
	deleteFromBroker(t, records)
	w = run(t, west, long)
	w.awaitKept("east", len(names))
	askWest.change("west", "10.22.0.2")
	serve(t, west, ns, "a", "10.22.0.2")
	awaitImport(t, west, ns, "a", "10.21.0.1 10.22.0.2")
	awaitRecord(t, west, ns, "c", true)
	w.awaitKept("east", len(names))
	askEast.change("west", "10.22.0.2")
	run(t, east, long)
	w.awaitMetric("kept_imports", "east", 0)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "a", "10.21.0.1 10.22.0.2")
		awaitImport(t, m, ns, "b", "10.21.0.1 10.22.0.1")
	}

	deleteFromBroker(t, endpoints)
	for _, m := range clusters.Members {
		until.OK(t, "slices of "+m.ID+" are back", func(ctx context.Context) error {
			list, err := clusters.Broker.Dynamic().Resource(endpoints).Namespace(m.BrokerNamespace()).
				List(ctx, metav1.ListOptions{LabelSelector: broker.LabelSourceNamespace + "=" + ns})
			if err == nil && len(list.Items) != len(names) {
				err = fmt.Errorf("slices = %d, want %d", len(list.Items), len(names))
			}
			return err
		})
	}
	for _, r := range []*resolver{askEast, askWest} {
		r.change("east", "10.21.0.3")
	}
	serve(t, east, ns, "a", "10.21.0.3")
	awaitImport(t, west, ns, "a", "10.21.0.3 10.22.0.2")
	askEast.end("F23")
	askWest.end("F23")
	inEast()
	inWest()
}

// deleteFromBroker deletes all objects of a kind in the broker namespaces of the members.
func deleteFromBroker(t *testing.T, kind schema.GroupVersionResource) {
	t.Helper()
	for _, m := range clusters.Members {
		r := clusters.Broker.Dynamic().Resource(kind).Namespace(m.BrokerNamespace())
		if err := r.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// The namespaces of all members are gone, but the broker is the one that was joined: it lost its data, and everything
// is frozen until that is back.
func TestBrokerHasLostItsMembers(t *testing.T) {
	tier.Nightly(t)
	const ns = "memberless"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	long := func(c *controller.Config) { c.TTL = time.Minute } // west does not run again at once when the broker is back
	e, w := run(t, east, long), run(t, west, long)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	saved := saveBroker(t)
	inEast := steady(t, east, ns, "web")
	e.stop()
	w.stop()
	deleteMembership(t, east)
	deleteMembership(t, west)
	e = run(t, east, long)
	e.awaitMetric("frozen", "broker_empty", 1)
	serve(t, east, ns, "web", "10.21.0.2")
	awaitImport(t, east, ns, "web", "10.21.0.2 10.22.0.1")
	restoreBroker(t, saved)
	e.awaitMetric("frozen", "broker_empty", 0)
	run(t, west, long)
	awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
	inEast()
}

// deleteMembership deletes the broker namespace of a member, except its service account: without that a token stays
// valid only for a short time.
func deleteMembership(t *testing.T, m *testclusterset.Member) {
	t.Helper()
	all := clusters.Broker.Dynamic().Resource(namespaces)
	for _, kind := range []schema.GroupVersionResource{records, endpoints, leases} {
		r := clusters.Broker.Dynamic().Resource(kind).Namespace(m.BrokerNamespace())
		if err := r.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.Delete(t.Context(), m.BrokerNamespace(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": m.BrokerNamespace()},
		"spec": map[string]any{},
	}}
	if _, err := all.Update(t.Context(), gone, metav1.UpdateOptions{}, "finalize"); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// credentialFrom writes a copy of a kubeconfig for the other broker with a token that is valid there, and returns its
// path. The other broker has the namespace and the rights of the member, but the member has not joined it.
func credentialFrom(t *testing.T, other *controlplane.ControlPlane, kubeconfig string,
	m *testclusterset.Member) string {
	t.Helper()
	system, err := m.Dynamic().Resource(namespaces).Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admission := join.Admission{ClusterID: m.ID, Quota: join.DefaultQuota(), Spec: v1alpha1.MemberSpec{
		KubeSystemUID: string(system.GetUID()), Namespace: m.BrokerNamespace(), PodCIDRs: m.PodCIDRs(),
	}}
	if err := other.Apply(t.Context(), admission.Objects()...); err != nil {
		t.Fatal(err)
	}
	issued, err := other.ServiceAccountKubeconfig(t.Context(), m.BrokerNamespace(), broker.ServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	from, err := clientcmd.LoadFromFile(issued)
	if err != nil {
		t.Fatal(err)
	}
	path := via(t, kubeconfig, other.Config().Host, other.Config().CAData)
	token := filepath.Join(filepath.Dir(path), broker.KeyToken)
	if err := os.WriteFile(token, []byte(from.AuthInfos[from.Contexts[from.CurrentContext].AuthInfo].Token),
		0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A cluster stops being a member if its broker namespace is deleted while others have theirs: its imports are deleted,
// its Services stay, and a join makes it a member again (docs/spec/controller.md 7). Imports from it stay until an
// administrator removes it (docs/spec/controller.md 8.6).
func TestMemberIsExpelled(t *testing.T) {
	const ns = "expelled"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	e := run(t, east)
	w := run(t, west)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	awaitListed(t, ns, "web")
	before, err := west.Dynamic().Resource(services).Namespace(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deleteMembership(t, west)
	w.awaitMetric("member", "", 0)
	awaitImport(t, west, ns, "web", "none")
	e.awaitMetric("frozen", "lost_members", 1)
	checkImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	until.OK(t, "condition", func(ctx context.Context) error {
		exp, err := west.ServiceExport(ctx, ns, "web")
		if err != nil {
			return err
		}
		return testclusterset.Condition(exp.Status.Conditions, "Valid=False/NotMember")
	})
	after, err := west.Dynamic().Resource(services).Namespace(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the exported Service was written: version %s, want %s (%v)", after.GetResourceVersion(),
			before.GetResourceVersion(), err)
	}
	if err := joinMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("member", "", 1)
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	removed(t, w, ns)
}

// Two controllers with the identity, the credential and the objects of west, as after its etcd was cloned: the one that
// has not noted the heartbeat on the broker finds that it is a copy, is frozen with that reason, and its administrator
// can neither join nor leave. The other one goes on, also after a restart (docs/spec/controller.md 7.8).
func TestClusterIsCloned(t *testing.T) {
	tier.Nightly(t)
	const ns = "cloned"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	run(t, east)
	w := run(t, west)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	w.awaitHeartbeat("west")
	check := undisturbed(t, east, ns)
	// Both read one API server, and have a Lease of their own to lead by, and a note of their own. What the clone would
	// export is something else.
	const other = "clusterset-clone"
	west.Put(t, testclusterset.Namespace(other))
	begin := time.Now()
	start := func() *instance {
		return run(t, west, func(c *controller.Config) {
			c.Namespace, c.Local, c.Endpoints = other, west.Config(), broker.ServiceIP
		})
	}
	clone := start()
	clone.awaitMetric("frozen", "broker_identity", 1)
	awaitNote(t, west, types.NamespacedName{Namespace: other, Name: wellknown.HeartbeatLease}, wellknown.AnnotationCopy, "")
	outages.Measured(t, "F15", "known as a copy %.1f s after its start, with a renewal each %s",
		time.Since(begin).Seconds(), renew)
	goesOn := func(address string) {
		t.Helper()
		if frozen, err := w.metric("frozen", "broker_identity"); err != nil || frozen != 0 {
			t.Errorf("frozen{broker_identity} = %v (%v), want the original to go on", frozen, err)
		}
		serve(t, west, ns, "web", address)
		awaitImport(t, east, ns, "web", "10.21.0.1 "+address)
	}
	goesOn("10.22.0.2")
	if _, err := join.Leave(t.Context(), clusters.Broker.Config(), west.Config(),
		join.LeaveOptions{Namespace: other}); err == nil || !strings.Contains(err.Error(), "--take-over") {
		t.Errorf("leave of the copy: %v, want that it fails", err)
	}
	o := join.Defaults()
	o.Namespace, o.Components = other, nil
	if _, err := join.Join(t.Context(), clusters.Broker.Config(), west.Config(), o); err == nil ||
		!strings.Contains(err.Error(), "--take-over") {
		t.Errorf("join of the copy: %v, want that it fails", err)
	}
	clone.stop()
	w.stop()
	clone = start()
	clone.awaitMetric("frozen", "broker_identity", 1)
	w = run(t, west)
	w.awaitMetric("member", "", 1)
	goesOn("10.22.0.3")
	clone.awaitMetric("frozen", "broker_identity", 1)
	check()
}

// West is removed, and the broker is then restored to before that. West stays removed, for east and for itself, also
// after a restart, until it joins anew (docs/spec/controller.md 7.4).
func TestRemovalIsRestored(t *testing.T) {
	tier.Nightly(t)
	const ns = "removed"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	e, w := run(t, east), run(t, west)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	saved := saveBroker(t)
	o := join.LeaveOptions{Force: true}
	if _, err := join.Remove(t.Context(), clusters.Broker.Config(), west.ID, o); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("member", "", 0)
	awaitImport(t, west, ns, "web", "none")
	awaitImport(t, east, ns, "web", "10.21.0.1")
	for _, m := range clusters.Members {
		awaitMembersNote(t, m, `"removed"`)
	}
	e.stop()
	w.stop()
	restoreBroker(t, saved)
	awaitRecord(t, west, ns, "web", true)
	run(t, east)
	w = run(t, west)
	export(t, east, ns, "new", "10.21.0.1")
	awaitImport(t, east, ns, "new", "10.21.0.1")
	checkImport(t, east, ns, "web", "10.21.0.1")
	w.awaitMetric("member", "", 0)
	checkImport(t, west, ns, "web", "none")

	if _, err := join.Remove(t.Context(), clusters.Broker.Config(), west.ID, o); err != nil {
		t.Fatal(err)
	}
	rejoin(t, w)
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
}

// rejoin deletes the namespace of a removed west, as kube-controller-manager does, and lets all clusters join.
func rejoin(t *testing.T, w *instance) {
	t.Helper()
	if err := clusters.Broker.Delete(t.Context(), testclusterset.Namespace(west.BrokerNamespace())); err != nil {
		t.Fatal(err)
	}
	if err := joinMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("member", "", 1)
}

// awaitNote waits until an annotation of a Lease of the controller has a text in its value.
func awaitNote(t *testing.T, m *testclusterset.Member, lease types.NamespacedName, annotation, text string) {
	t.Helper()
	until.OK(t, "the note "+annotation, func(ctx context.Context) error {
		note, err := m.Dynamic().Resource(leases).Namespace(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if has := note.GetAnnotations()[annotation]; has == "" || !strings.Contains(has, text) {
			return fmt.Errorf("annotations %q", note.GetAnnotations())
		}
		return nil
	})
}

// awaitMembersNote waits until a controller has noted a text of the members.
func awaitMembersNote(t *testing.T, m *testclusterset.Member, text string) {
	t.Helper()
	lease := types.NamespacedName{Namespace: wellknown.ControllerNamespace, Name: wellknown.MembersLease}
	awaitNote(t, m, lease, wellknown.AnnotationMembers, text)
}

// removed lets an administrator of the broker remove west, which runs and has a credential that the broker still
// accepts: it learns it from the mark in its broker namespace, also with a controller that starts later, and its
// imports end (docs/spec/controller.md 7.4).
func removed(t *testing.T, w *instance, ns string) {
	t.Helper()
	o := join.LeaveOptions{Force: true}
	if _, err := join.Remove(t.Context(), clusters.Broker.Config(), west.ID, o); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	w.awaitMetric("member", "", 0)
	outages.Since(t, "F33", gone, time.Minute, "removal reported")
	awaitImport(t, west, ns, "web", "none")
	awaitImport(t, east, ns, "web", "10.21.0.1")
	notMember := func(name string) {
		t.Helper()
		until.OK(t, "condition of "+name, func(ctx context.Context) error {
			exp, err := west.ServiceExport(ctx, ns, name)
			if err != nil {
				return err
			}
			return testclusterset.Condition(exp.Status.Conditions, "Valid=False/NotMember")
		})
	}
	notMember("web")
	until.OK(t, "status", func(ctx context.Context) error {
		state, err := status.Read(ctx, nil, west.Config(), status.Defaults())
		if err == nil && (state.Cluster.Removed == "" || !strings.Contains(strings.Join(state.Problems, "\n"),
			"removed this cluster")) {
			err = fmt.Errorf("removed %q, problems %q", state.Cluster.Removed, state.Problems)
		}
		return err
	})
	w.stop()
	w = run(t, west)
	export(t, west, ns, "late", "10.22.0.2")
	notMember("late")

	// The mark outlives no join: the account of the cluster that was removed ends with it.
	rejoin(t, w)
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, east, ns, "late", "10.22.0.2")
}

// The ClusterProperty of the membership is deleted by hand: a policy denies it, and where the policy does not apply the
// controller asks the broker before it believes it (docs/spec/controller.md 7.1). Imports stay, the own endpoints are
// still followed, and a join restores it.
func TestMembershipIsDeletedByHand(t *testing.T) {
	tier.Nightly(t)
	const ns = "byhand"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	long := func(c *controller.Config) { c.TTL = time.Minute }
	run(t, east, long)
	w := run(t, west, long)
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	inWest := steady(t, west, ns, "web")
	properties := west.Dynamic().Resource(schema.GroupVersionResource{Group: about.GroupName, Version: "v1beta1",
		Resource: "clusterproperties"})
	remove := func(ctx context.Context) error {
		return properties.Delete(ctx, about.ClusterSetName, metav1.DeleteOptions{})
	}
	if err := west.AwaitPolicies(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := remove(t.Context()); err == nil || !strings.Contains(err.Error(), `run "clusterset leave"`) {
		t.Fatalf("delete of the property: %v, want it denied", err)
	}
	unlabel := []byte(`{"metadata":{"labels":null}}`)
	if _, err := properties.Patch(t.Context(), about.ClusterSetName, types.MergePatchType, unlabel,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := joinMembers(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	w.awaitMetric("frozen", "broker_identity", 1)
	serve(t, west, ns, "web", "10.22.0.2")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.2")
	// The exporter has handled the first change when the importer has handled a second one.
	serve(t, west, ns, "web", "10.22.0.3")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.3")
	checkImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	if err := joinMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("frozen", "broker_identity", 0)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.3")

	// With the CRD go all properties, the cluster id, too, and policies do not apply.
	deleteCRD(t, west, crd.ClusterProperties)
	w.awaitMetric("frozen", "broker_identity", 1)
	for _, ip := range []string{"10.22.0.4", "10.22.0.5"} {
		serve(t, west, ns, "web", ip)
		awaitImport(t, west, ns, "web", "10.21.0.1 "+ip)
	}
	checkImport(t, east, ns, "web", "10.21.0.1 10.22.0.3")
	// Another controller, which never knew the id, asks the broker as well.
	w.stop()
	if err := west.InstallCRDs(t.Context(), crd.ClusterProperties); err != nil {
		t.Fatal(err)
	}
	w = run(t, west, long)
	w.awaitMetric("frozen", "broker_identity", 1)
	if err := joinMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("frozen", "broker_identity", 0)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.5")
	inWest()
}

// deleteCRD deletes a CRD of a member with its objects. It is installed again at the end of the test at the latest.
func deleteCRD(t *testing.T, m *testclusterset.Member, manifest []byte) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.InstallCRDs(context.WithoutCancel(t.Context()), manifest); err != nil {
			t.Error(err)
		}
	})
	if err := m.DeleteCRDs(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
}

// Somebody deletes the CRD of ServiceImport in a member, and with it all imports. What they stand for, the slices and
// derived Services, stays and has new imports when the CRD is back; other members do not notice
// (docs/spec/controller.md 5.3).
func TestImportKindIsDeleted(t *testing.T) {
	tier.Nightly(t)
	const ns = "kinds"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	long := func(c *controller.Config) { c.TTL = time.Minute }
	run(t, east, long)
	run(t, west, long)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	inEast, before := undisturbed(t, east, ns), uidsIn(t, west, ns)
	deleteCRD(t, west, mcscrd.ServiceImportCRD)
	serve(t, west, ns, "web", "10.22.0.2")
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.2") // exports go on
	if err := west.InstallCRDs(t.Context(), mcscrd.ServiceImportCRD); err != nil {
		t.Fatal(err)
	}
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.2")
	if after := uidsIn(t, west, ns); !slices.Equal(before, after) {
		t.Errorf("Services and slices were created again: UIDs %v, want %v", after, before)
	}
	inEast()
}

// Somebody deletes the CRD of ServiceExport in a member, and with it all exports. They stay exported, and their
// endpoints current, while the kind is absent and when another CRD is back without them; other members do not notice
// (docs/spec/controller.md 3.2). Whoever deletes all exports ends them.
func TestExportKindIsDeleted(t *testing.T) {
	tier.Nightly(t)
	const ns = "export-kinds"
	var names []string
	for i := range apiserver.WithholdFrom {
		names = append(names, fmt.Sprintf("web-%d", i))
		export(t, east, ns, names[i], fmt.Sprintf("10.21.1.%d", i))
	}
	e := run(t, east, func(c *controller.Config) { c.TTL = time.Minute })
	run(t, west, func(c *controller.Config) { c.TTL = time.Minute })
	west.Put(t, testclusterset.Namespace(ns))
	for i, name := range names {
		awaitImport(t, west, ns, name, fmt.Sprintf("10.21.1.%d", i))
	}
	all := allExports(t, east)
	inWest := undisturbed(t, west, ns)
	deleteCRD(t, east, mcscrd.ServiceExportCRD)
	e.awaitWithheld(len(names), len(all))
	serve(t, east, ns, names[0], "10.21.1.100")
	awaitImport(t, west, ns, names[0], "10.21.1.100")

	if err := east.InstallCRDs(t.Context(), mcscrd.ServiceExportCRD); err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.GetNamespace() != ns || o.GetName() != names[1] {
			east.Put(t, testclusterset.Export(o.GetNamespace(), o.GetName()))
		}
	}
	e.awaitWithheld(1, 1+len(all)-len(names))
	serve(t, east, ns, names[0], "10.21.1.101")
	serve(t, east, ns, names[1], "10.21.1.102")
	awaitImport(t, west, ns, names[0], "10.21.1.101")
	awaitImport(t, west, ns, names[1], "10.21.1.102")
	inWest()
}

// allExports returns the ServiceExports of a member, also those of other tests.
func allExports(t *testing.T, m *testclusterset.Member) []unstructured.Unstructured {
	t.Helper()
	all, err := m.Dynamic().Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// A controller starts where ServiceExports are missing, or served in a version that it does not know. Its heartbeat
// goes on, and so does what it exported, with current endpoints, also when the CRD and the exports are back. An export
// that ends after that is withdrawn (docs/spec/controller.md 3.2).
func TestStartWithoutExportKind(t *testing.T) {
	tier.Nightly(t)
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T)
	}{
		{"deleted", func(t *testing.T) { deleteCRD(t, east, mcscrd.ServiceExportCRD) }},
		{"unknown", func(t *testing.T) { serveUnknown(t, east) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := "start-" + tt.name
			export(t, east, ns, "web", "10.21.1.1")
			export(t, west, ns, "web", "10.22.1.1")
			export(t, east, ns, "ended", "10.21.1.2")
			west.Put(t, testclusterset.Namespace(ns))
			e := run(t, east)
			run(t, west)
			awaitImport(t, west, ns, "web", "10.21.1.1 10.22.1.1")
			awaitImport(t, west, ns, "ended", "10.21.1.2")
			inWest, all := undisturbed(t, west, ns), allExports(t, east)
			e.stop()
			tt.spoil(t)
			e = run(t, east)
			e.awaitMetric("frozen", "export_kind", 1)
			serve(t, east, ns, "web", "10.21.1.3")
			awaitImport(t, west, ns, "web", "10.21.1.3 10.22.1.1")
			awaitImport(t, east, ns, "web", "10.21.1.3 10.22.1.1")
			ruled := testclusterset.Namespace(ns + "-rule")
			ruled.Annotations = map[string]string{broker.AnnotationExportSelector: ""}
			east.Put(t, ruled)
			west.Put(t, testclusterset.Namespace(ruled.Name))
			east.Put(t, testclusterset.Service(ruled.Name, "web", testclusterset.Port("http", 80)))
			serve(t, east, ruled.Name, "web", "10.21.1.5")

			if err := east.InstallCRDs(t.Context(), mcscrd.ServiceExportCRD); err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				east.Put(t, testclusterset.Export(o.GetNamespace(), o.GetName()))
			}
			e.awaitMetric("frozen", "export_kind", 0)
			serve(t, east, ns, "web", "10.21.1.4")
			awaitImport(t, west, ns, "web", "10.21.1.4 10.22.1.1")
			awaitImport(t, west, ruled.Name, "web", "10.21.1.5")
			inWest()
			east.Drop(t, testclusterset.Export(ns, "ended"))
			awaitImport(t, west, ns, "ended", "none")
		})
	}
}

// serveUnknown has a member serve ServiceExports at v2 alone until the end of the test at the latest.
func serveUnknown(t *testing.T, m *testclusterset.Member) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.InstallCRDs(context.WithoutCancel(t.Context()), mcscrd.ServiceExportCRD); err != nil {
			t.Error(err)
		}
	})
	if err := m.InstallCRDs(t.Context(), controlplane.Serving(mcscrd.ServiceExportCRD, "v2")); err != nil {
		t.Fatal(err)
	}
}

// awaitWithheld waits until the number of exports that are gone and stay exported is within bounds. Exports that other
// tests have left are among them or not: the API server deletes one after the other, and on a slow machine the first
// may be gone for good before the last.
func (i *instance) awaitWithheld(least, most int) {
	i.t.Helper()
	until.OK(i.t, "exports that are withheld", func(context.Context) error {
		got, err := i.metric("withheld_exports", "")
		if err == nil && (got < float64(least) || got > float64(most)) {
			err = fmt.Errorf("%v, want %d to %d", got, least, most)
		}
		return err
	})
}

// uidsIn returns the UIDs of all Services and slices of a namespace, sorted.
func uidsIn(t *testing.T, m *testclusterset.Member, namespace string) (all []string) {
	t.Helper()
	for _, resource := range []schema.GroupVersionResource{{Version: "v1", Resource: "services"}, endpoints} {
		list, err := m.Dynamic().Resource(resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			all = append(all, string(o.GetUID()))
		}
	}
	slices.Sort(all)
	return all
}

// Another cluster answers in place of the broker. Whether it rejects the credential or accepts one of its own,
// everything is frozen until the cluster is joined to it explicitly (docs/spec/controller.md 7).
func TestBrokerIsAnother(t *testing.T) {
	tier.Nightly(t)
	const ns = "another"
	names := []string{"a", "b", "c"}
	for _, name := range names {
		export(t, east, ns, name, "10.21.0.1")
		export(t, west, ns, name, "10.22.0.1")
	}
	old := via(t, east.BrokerKubeconfig(), clusters.Broker.Config().Host, nil)
	e, w := run(t, east), run(t, west)
	for _, name := range names {
		awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.1")
		awaitImport(t, west, ns, name, "10.21.0.1 10.22.0.1")
	}
	inEast := steady(t, east, ns, names...)
	e.stop()
	w.stop()

	other := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	t.Cleanup(func() {
		if err := joinMembers(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := join.Init(t.Context(), other.Config(), join.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	ca := other.Config().CAData
	strange := via(t, old, other.Config().Host, ca)
	e = run(t, east, func(c *controller.Config) { c.Broker = strange })
	e.awaitMetric("frozen", "credential", 1)
	serve(t, east, ns, "a", "10.21.0.2")
	awaitImport(t, east, ns, "a", "10.21.0.2 10.22.0.1")
	e.stop()

	known := credentialFrom(t, other, strange, east)
	e = run(t, east, func(c *controller.Config) { c.Broker = known })
	e.awaitMetric("frozen", "broker_identity", 1)
	serve(t, east, ns, "a", "10.21.0.3")
	awaitImport(t, east, ns, "a", "10.21.0.3 10.22.0.1")
	e.stop()
	checkNothingWritten(t, other, east)

	joinOther := func(m *testclusterset.Member, replace bool) error {
		o := join.Defaults()
		o.ClusterID, o.PodCIDRs, o.ReplaceBroker = m.ID, m.PodCIDRs(), replace
		_, err := join.Join(t.Context(), other.Config(), m.Config(), o)
		return err
	}
	if err := joinOther(east, false); err == nil || !strings.Contains(err.Error(), "replace-broker") {
		t.Fatalf("join to another broker = %v, want an error that names --replace-broker", err)
	}
	for _, m := range clusters.Members {
		if err := errors.Join(joinOther(m, true), m.MountSecret(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	long := func(c *controller.Config) { c.TTL = time.Minute }
	e = run(t, east, long)
	run(t, west, long)
	awaitImport(t, west, ns, "a", "10.21.0.3 10.22.0.1")
	// The metrics begin at 0, and the imports of b and c are as they were. A change of west shows that east is frozen no
	// longer.
	for _, name := range names[1:] {
		serve(t, west, ns, name, "10.22.0.2")
		awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.2")
	}
	e.awaitMetric("frozen", "broker_identity", 0)
	inEast()
	e.stop()
}

// checkNothingWritten fails the test if a member, which may, has written exports or its heartbeat to a broker that it
// has not joined.
func checkNothingWritten(t *testing.T, other *controlplane.ControlPlane, m *testclusterset.Member) {
	t.Helper()
	for _, kind := range []schema.GroupVersionResource{records, endpoints, leases} {
		list, err := other.Dynamic().Resource(kind).Namespace(m.BrokerNamespace()).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			t.Errorf("%s has written %s %s to a broker that it has not joined", m.ID, kind.Resource, o.GetName())
		}
	}
}

// A member's own API server is restored from a backup: the controller follows the restored state.
func TestMemberIsRestored(t *testing.T) {
	tier.Nightly(t)
	const ns = "rolledback"
	export(t, east, ns, "old", "10.21.0.1")
	west.Put(t, testclusterset.Namespace(ns))
	run(t, east)
	run(t, west)
	awaitImport(t, west, ns, "old", "10.21.0.1")
	saved, err := east.SaveEtcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	export(t, east, ns, "new", "10.21.0.2")
	awaitImport(t, west, ns, "new", "10.21.0.2")
	awaitImport(t, east, ns, "new", "10.21.0.2")
	east.Drop(t, testclusterset.Export(ns, "old"))
	awaitImport(t, west, ns, "old", "none")
	awaitImport(t, east, ns, "old", "none")
	if err := east.RestoreEtcd(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	awaitImport(t, west, ns, "old", "10.21.0.1")
	awaitImport(t, west, ns, "new", "none")
	awaitImport(t, east, ns, "old", "10.21.0.1")
	awaitImport(t, east, ns, "new", "none")
	serve(t, east, ns, "old", "10.21.0.3")
	awaitImport(t, west, ns, "old", "10.21.0.3")
}
