package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestRepeat runs everything twice: the second run writes nothing.
func TestRepeat(t *testing.T) {
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	var first, again steps
	if err := Init(t.Context(), onBroker.Config(), InitOptions{Options: first.options("")}); err != nil {
		t.Fatal(err)
	}
	first.only(t, write.Created)
	before := snapshot(t, versions, onBroker)
	if err := Init(t.Context(), onBroker.Config(), InitOptions{Options: again.options("")}); err != nil {
		t.Fatal(err)
	}
	again.only(t, write.Unchanged)
	sameObjects(t, "init again", snapshot(t, versions, onBroker), before)

	clean := snapshot(t, contents, onBroker)
	first, again = nil, nil
	o := options("east")
	o.Options = first.options("")
	joined := mustJoin(t, onBroker, east, o)
	first.only(t, write.Created)
	before = snapshot(t, versions, all...)
	o.Options = again.options("")
	if rejoined := mustJoin(t, onBroker, east, o); rejoined.CredentialExpires != joined.CredentialExpires {
		t.Errorf("credential expires %s, want that of the first, %s", rejoined.CredentialExpires, joined.CredentialExpires)
	}
	again.only(t, write.Unchanged)
	if len(again) != len(first) {
		t.Errorf("steps of the first join:\n%s\nof the second:\n%s", &first, &again)
	}
	sameObjects(t, "join again", snapshot(t, versions, all...), before)

	first, again = nil, nil
	l := leaveOptions()
	l.Options = first.options("")
	if _, err := Leave(t.Context(), onBroker.Config(), east.Config(), l); err != nil {
		t.Fatal(err)
	}
	first.only(t, write.Deleted, write.Updated)
	sameObjects(t, "left", snapshot(t, contents, onBroker), clean)
	before = snapshot(t, versions, all...)
	l.Options = again.options("")
	if _, err := Leave(t.Context(), onBroker.Config(), east.Config(), l); err != nil {
		t.Fatal(err)
	}
	again.only(t, write.Unchanged)
	sameObjects(t, "leave again", snapshot(t, versions, all...), before)
}

const exported = `
apiVersion: broker.clusterset-dns.io/v1alpha1
kind: ExportedService
metadata:
  name: db.shop
  namespace: NAMESPACE
  labels:
    multicluster.kubernetes.io/service-name: db
    multicluster.kubernetes.io/source-cluster: east
    broker.clusterset-dns.io/source-namespace: shop
spec: {namespace: shop, name: db, type: ClusterSetIP, ipFamilies: [IPv4], exportCreated: "2026-01-01T00:00:00Z"}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: heartbeat, namespace: NAMESPACE}
spec: {renewTime: "2099-01-01T00:00:00.000000Z"}
`

// imported has objects that a controller imported, and objects that only have the same labels.
const imported = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: db, namespace: shop, labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io}}
spec: {type: ClusterSetIP, ports: [{port: 5432}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: other, namespace: shop}
spec: {type: ClusterSetIP, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: mine, namespace: shop, labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io}}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: hub, labels: {broker.clusterset-dns.io/cluster-id: west}}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: view, namespace: hub, labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io}}
spec: {type: ClusterSetIP, ports: [{port: 5432}]}
`

const owned = `
apiVersion: v1
kind: Service
metadata:
  name: DERIVED
  namespace: shop
  labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io, multicluster.kubernetes.io/service-name: db}
spec: {ports: [{port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: imported-0123456789abcdef
  namespace: shop
  labels:
    endpointslice.kubernetes.io/managed-by: controller.clusterset-dns.io
    multicluster.kubernetes.io/service-name: db
addressType: IPv4
endpoints: []
`

// addServices gives a member exports, imports and a heartbeat.
func addServices(t *testing.T, onBroker, member *controlplane.ControlPlane, namespace string) {
	t.Helper()
	// Discovery knows the kinds some time after the API server serves them.
	until.OK(t, "exports and imports", func(ctx context.Context) error {
		return errors.Join(
			onBroker.ApplyYAML(ctx, []byte(strings.ReplaceAll(exported, "NAMESPACE", namespace))),
			member.ApplyYAML(ctx, []byte(imported)))
	})
	renew(t, member, wellknown.ControllerNamespace, wellknown.HeartbeatLease, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC))
	if err := member.ApplyYAML(t.Context(), []byte(strings.ReplaceAll(owned, "DERIVED",
		desired.DerivedName("shop", "db")))); err != nil {
		t.Fatal(err)
	}
}

// TestCrash interrupts a join, and then a leave, after each of its writes. A second run has the same result as one that
// was not interrupted. TestLeaveThenJoin does so after few writes.
func TestCrash(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initBroker(t, onBroker)

	// A cluster has no policies before its first join.
	fresh := func() {
		t.Helper()
		for _, r := range []schema.GroupVersionResource{policyResource, policyBindingResource} {
			if err := east.Dynamic().Resource(r).DeleteCollection(t.Context(), metav1.DeleteOptions{},
				metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// crashes reports whether a call was interrupted after n writes with of in their path.
	crashes := func(what string, n int, of string, call func(*crash) error) bool {
		t.Helper()
		c := crash{of: of}
		c.left.Store(int64(n))
		err := call(&c)
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatalf("%s, crashed after %d writes: %v", what, n, err)
		}
		return err != nil
	}
	join := func(c *crash) error {
		_, err := Join(t.Context(), c.wrap(onBroker.Config()), c.wrap(east.Config()), options("east"))
		return err
	}
	leave := func(c *crash) error {
		_, err := Leave(t.Context(), c.wrap(onBroker.Config()), c.wrap(east.Config()), leaveOptions())
		return err
	}

	// A cluster has no CRDs before its first join. Below they stay, since new ones cost the API server more than
	// everything else.
	own := mustJoin(t, onBroker, east, options("east")).Namespace
	joined := snapshot(t, contents, all...)
	for n := range read.MemberCRDs() {
		mustLeave(t, onBroker, east)
		if err := east.DeleteCRDs(t.Context(), controlplane.DefaultCRDs()...); err != nil {
			t.Fatal(err)
		}
		if !crashes("join", n, "/customresourcedefinitions/", join) {
			t.Errorf("no crash after %d CRDs", n)
		}
		mustJoin(t, onBroker, east, options("east"))
		sameObjects(t, fmt.Sprintf("join, crashed after %d CRDs", n), snapshot(t, contents, all...), joined)
	}

	addServices(t, onBroker, east, own)
	mustLeave(t, onBroker, east)
	if find(t, east, "serviceimports", "shop", "db") != nil || find(t, east, "serviceimports", "hub", "view") == nil {
		t.Error("want the import deleted, and the one in a broker namespace kept")
	}
	left := snapshot(t, contents, all...)
	mustJoin(t, onBroker, east, options("east"))
	joined = snapshot(t, contents, all...)
	mustLeave(t, onBroker, east)
	joins, leaves := 0, 0
	for n := 0; (joins == n || leaves == n) && !t.Failed(); n++ {
		fresh()
		if crashes("join", n, "", join) {
			joins++
		}
		mustJoin(t, onBroker, east, options("east"))
		sameObjects(t, fmt.Sprintf("join, crashed after %d writes", n), snapshot(t, contents, all...), joined)
		addServices(t, onBroker, east, own)
		if crashes("leave", n, "", leave) {
			leaves++
		}
		mustLeave(t, onBroker, east)
		sameObjects(t, fmt.Sprintf("leave, crashed after %d writes", n), snapshot(t, contents, all...), left)
	}
	if joins < 20 || leaves < 15 {
		t.Errorf("%d crashes of join and %d of leave, want one for each object", joins, leaves)
	}
}

// TestLeaveThenJoin: after an interrupted leave, a join makes the cluster a member again, also one that was
// interrupted, too.
func TestLeaveThenJoin(t *testing.T) {
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initBroker(t, onBroker)
	mustJoin(t, onBroker, east, options("east"))
	want := snapshot(t, contents, all...)
	for _, n := range []int64{1, 3, 8} {
		var c crash
		c.left.Store(n)
		if _, err := Leave(t.Context(), c.wrap(onBroker.Config()), c.wrap(east.Config()), leaveOptions()); !errors.Is(err,
			errCrash) {
			t.Fatalf("leave: %v, want a crash", err)
		}
		c.left.Store(n)
		if _, err := Join(t.Context(), c.wrap(onBroker.Config()), c.wrap(east.Config()), options("east")); err != nil &&
			!errors.Is(err, errCrash) {
			t.Fatalf("join: %v, want a crash", err)
		}
		mustJoin(t, onBroker, east, options("east"))
		sameObjects(t, "joined again", snapshot(t, contents, all...), want)
	}

	t.Run("rename", func(t *testing.T) {
		mustLeave(t, onBroker, east)
		joined := mustJoin(t, onBroker, east, options("sunrise"))
		if want := broker.NamespaceName(DefaultPrefix, "sunrise"); joined.ClusterID != "sunrise" || joined.Namespace != want {
			t.Errorf("joined as %s in %s, want sunrise in %s", joined.ClusterID, joined.Namespace, want)
		}
		members, err := onBroker.Dynamic().Resource(memberResource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(members.Items) != 1 || members.Items[0].GetName() != "sunrise" {
			t.Errorf("members = %v, want sunrise alone", members.Items)
		}
	})
}

func TestDryRuns(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	for _, dry := range []write.DryRun{write.DryRunClient, write.DryRunServer} {
		before := snapshot(t, versions, onBroker)
		var s steps
		if err := Init(t.Context(), onBroker.Config(), InitOptions{Options: s.options(dry)}); err != nil {
			t.Fatal(err)
		}
		s.only(t, write.Created)
		sameObjects(t, "init, dry run by "+string(dry), snapshot(t, versions, onBroker), before)
	}
	initBroker(t, onBroker)
	for _, dry := range []write.DryRun{write.DryRunClient, write.DryRunServer} {
		before := snapshot(t, versions, all...)
		var s steps
		o := options("east")
		o.Options = s.options(dry)
		mustJoin(t, onBroker, east, o)
		s.only(t, write.Created)
		sameObjects(t, "join, dry run by "+string(dry), snapshot(t, versions, all...), before)
	}
	joined := mustJoin(t, onBroker, east, options("east"))
	addServices(t, onBroker, east, joined.Namespace)
	for _, dry := range []write.DryRun{write.DryRunClient, write.DryRunServer} {
		before := snapshot(t, versions, all...)
		var same, changed, left steps
		o := options("east")
		o.Options = same.options(dry)
		mustJoin(t, onBroker, east, o)
		same.only(t, write.Unchanged)

		o.PodCIDRs, o.Options = []string{"10.245.0.0/16"}, changed.options(dry)
		mustJoin(t, onBroker, east, o)
		if changed[0].Action != write.Updated || changed[0].Kind != "Member" {
			t.Errorf("step %q, want the Member updated", changed[0])
		}
		l := leaveOptions()
		l.Options = left.options(dry)
		if _, err := Leave(t.Context(), onBroker.Config(), east.Config(), l); err != nil {
			t.Fatal(err)
		}
		left.only(t, write.Deleted, write.Updated)
		sameObjects(t, "dry run by "+string(dry), snapshot(t, versions, all...), before)
	}
}

// TestRemove: an id that the broker does not know is an error, and an interrupted removal can be repeated.
func TestRemove(t *testing.T) {
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initBroker(t, onBroker)
	wantError := func(id, want string) {
		t.Helper()
		var s steps
		o := leaveOptions()
		o.Options = s.options("")
		if _, err := Remove(t.Context(), onBroker.Config(), id, o); err == nil || err.Error() != "remove: "+want ||
			len(s) > 0 {
			t.Errorf("remove %s: error %v, want %s, and no step of %s", id, err, want, &s)
		}
	}
	clean := snapshot(t, contents, onBroker)
	wantError("east", `member "east" does not exist, and the broker has no other members`)
	for _, n := range []int64{0, 1, 3, 8} {
		mustJoin(t, onBroker, east, options("east"))
		wantError("nope", `member "nope" does not exist: want one of east`)
		var c crash
		c.left.Store(n)
		if _, err := Remove(t.Context(), c.wrap(onBroker.Config()), "east", leaveOptions()); !errors.Is(err, errCrash) {
			t.Fatalf("remove: %v, want a crash", err)
		}
		if n == 3 { // the rest without a Member is found by its names
			if err := onBroker.Dynamic().Resource(memberResource).Delete(t.Context(), "east",
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Remove(t.Context(), onBroker.Config(), "east", leaveOptions()); err != nil {
			t.Fatal(err)
		}
		if _, own := credentialOf(t, east); find(t, onBroker, "namespaces", "", own) != nil {
			readMark(t, onBroker, east)
			mustRemove(t, onBroker, "east", leaveOptions())
		} else if n != 3 {
			t.Errorf("after %d writes: the namespace is gone, want it with the mark", n)
		}
		sameObjects(t, "removed", snapshot(t, contents, onBroker), clean)
		wantError("east", `member "east" does not exist, and the broker has no other members`)
	}

	// A join deletes what a removal has left, with the account: another cluster may have the id now.
	mustJoin(t, onBroker, east, options("east"))
	_, own := credentialOf(t, east)
	account := find(t, onBroker, "serviceaccounts", own, broker.ServiceAccount).GetUID()
	mustRemove(t, onBroker, "east", leaveOptions())
	mustJoin(t, onBroker, east, options("east"))
	if namespace := find(t, onBroker, "namespaces", "", own); read.IsMarked(namespace) {
		t.Errorf("annotations %v after a join, want no mark", namespace.GetAnnotations())
	}
	if is := find(t, onBroker, "serviceaccounts", own, broker.ServiceAccount).GetUID(); is == account {
		t.Error("the account of before the removal has the rights of the join")
	}
	// The removal of another member deletes it, too, after a year.
	mustRemove(t, onBroker, "east", leaveOptions())
	for _, tt := range []struct {
		after time.Duration
		stays bool
	}{{markLife - time.Hour, true}, {markLife + time.Hour, false}} {
		west := Admission{ClusterID: "west", Spec: v1alpha1.MemberSpec{
			Namespace: broker.NamespaceName(DefaultPrefix, "west"), KubeSystemUID: "11234567-89ab-cdef-0123-456789abcdef",
		}}
		if _, err := onBroker.Dynamic().Resource(memberResource).Create(t.Context(), toUnstructured(west.member()),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		o := leaveOptions()
		o.Now = func() time.Time { return time.Now().Add(tt.after) }
		mustRemove(t, onBroker, "west", o)
		if n := find(t, onBroker, "namespaces", "", own); tt.stays && (n == nil || n.GetDeletionTimestamp() != nil) {
			t.Error("the mark of east was deleted while another cluster may need it")
		}
	}
	until.OK(t, "the mark of east is gone", func(context.Context) error {
		if find(t, onBroker, "namespaces", "", own) != nil {
			return errors.New("it is there")
		}
		return nil
	})
	removeUndecodable(t, onBroker, east)
}

// A cluster with a Member that does not decode can be removed, and can leave.
func removeUndecodable(t *testing.T, onBroker, east *controlplane.ControlPlane) {
	t.Helper()
	spoilMember(t, onBroker, east)
	mustRemove(t, onBroker, "east", leaveOptions())
	if m := find(t, onBroker, "members", "", "east"); m != nil {
		t.Errorf("%v exists, want it removed", m)
	}
	_, own := credentialOf(t, east)
	if namespace := find(t, onBroker, "namespaces", "", own); namespace == nil || !read.IsMarked(namespace) {
		t.Errorf("namespace = %v, want it with the mark", namespace)
	}

	spoilMember(t, onBroker, east)
	if left := mustLeave(t, onBroker, east); len(left.Warnings) > 0 || left.ClusterID != "east" {
		t.Errorf("left: %+v, want east without warnings", left)
	}
	if o := find(t, onBroker, "members", "", "east"); o != nil {
		t.Errorf("%v exists, want the member gone", o)
	}
	if namespace := find(t, onBroker, "namespaces", "", own); namespace == nil || !read.IsMarked(namespace) ||
		find(t, onBroker, "serviceaccounts", own, broker.ServiceAccount) != nil {
		t.Errorf("namespace = %v, want it with the mark and without the account", namespace)
	}
}

// spoilMember lets a cluster join, and write a status that does not decode.
func spoilMember(t *testing.T, onBroker, east *controlplane.ControlPlane) {
	t.Helper()
	mustJoin(t, onBroker, east, options("east"))
	crds := onBroker.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	if _, err := crds.Patch(t.Context(), "members.broker.clusterset-dns.io", types.JSONPatchType, []byte(
		`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/version","value":{"type":"integer"}}]`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	members := onBroker.Dynamic().Resource(memberResource)
	until.OK(t, "a Member that does not decode", func(ctx context.Context) error {
		_, err := members.Patch(ctx, "east", types.MergePatchType, []byte(`{"status":{"version":1}}`), metav1.PatchOptions{}, "status")
		return err
	})
}

func mustRemove(t *testing.T, onBroker *controlplane.ControlPlane, id string, o LeaveOptions) {
	t.Helper()
	if _, err := Remove(t.Context(), onBroker.Config(), id, o); err != nil {
		t.Fatal(err)
	}
}

// readMark reads with the credential of a member that was removed: the mark, and nothing else.
func readMark(t *testing.T, onBroker, member *controlplane.ControlPlane) {
	t.Helper()
	config, own := credentialOf(t, member)
	if namespace := find(t, onBroker, "namespaces", "", own); !read.IsMarked(namespace) {
		t.Errorf("annotations %v, want the mark", namespace.GetAnnotations())
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	until.OK(t, "the member reads the mark", func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, own, metav1.GetOptions{})
		return err
	})
	until.OK(t, "the member can do nothing else", func(ctx context.Context) error {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: own}}
		review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, r := range review.Status.ResourceRules {
			if !slices.Equal(r.APIGroups, []string{"authorization.k8s.io"}) &&
				!slices.Equal(r.APIGroups, []string{"authentication.k8s.io"}) &&
				!slices.Equal(r.ResourceNames, []string{own}) {
				return fmt.Errorf("it has the right to %v", r)
			}
		}
		return nil
	})
	state, err := status.Read(t.Context(), nil, member.Config(), status.Defaults())
	if err != nil || state.Cluster.Removed == "" {
		t.Errorf("status = %+v, %v; want that the cluster was removed", state.Cluster, err)
	}
}

func TestForcedLeave(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initBroker(t, onBroker)
	mustJoin(t, onBroker, east, options("east"))
	o := leaveOptions()
	if _, err := Leave(t.Context(), nil, east.Config(), o); err == nil ||
		!strings.Contains(err.Error(), "--force if the broker no longer exists") {
		t.Errorf("leave without a broker: %v, want advice", err)
	}
	if err := onBroker.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := Leave(t.Context(), onBroker.Config(), east.Config(), o); err == nil ||
		!strings.Contains(err.Error(), "--force cleans up only the member") {
		t.Errorf("leave with a broker that is down: %v, want advice", err)
	}
	o.Force = true
	left, err := Leave(t.Context(), onBroker.Config(), east.Config(), o)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(left.Warnings, "\n"); !strings.Contains(text, "clusterset broker remove east") {
		t.Errorf("warnings %q, want what is left on the broker", text)
	}
	if got := find(t, east, "clusterproperties", "", "clusterset.k8s.io"); got != nil {
		t.Errorf("%v exists, want no membership", got)
	}
	if err := onBroker.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Remove(t.Context(), onBroker.Config(), "east", leaveOptions()); err != nil {
		t.Fatal(err)
	}
	if got := find(t, onBroker, "members", "", "east"); got != nil {
		t.Errorf("%v exists, want it removed", got)
	}
}

func find(t *testing.T, c *controlplane.ControlPlane, resource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	for _, r := range snapshotResources {
		if r.Resource != resource {
			continue
		}
		o, err := c.Dynamic().Resource(r).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil && strings.Contains(err.Error(), "not found") {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	t.Fatalf("no resource %s", resource)
	return nil
}
