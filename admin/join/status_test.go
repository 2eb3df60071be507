package join

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func credentialOf(t *testing.T, member *controlplane.ControlPlane) (*rest.Config, string) {
	t.Helper()
	c, err := read.Open(read.RoleMember, member.Config())
	if err != nil {
		t.Fatal(err)
	}
	secret, err := c.Secret(t.Context(), wellknown.ControllerNamespace)
	if err != nil || secret == nil {
		t.Fatalf("secret %v, error %v", secret, err)
	}
	config, namespace, err := read.CredentialConfig(secret)
	if err != nil {
		t.Fatal(err)
	}
	return config, namespace
}

const lease = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: NAME, namespace: NAMESPACE}
spec: {holderIdentity: pod-1, renewTime: "RENEWED"}
`

func renew(t *testing.T, c *controlplane.ControlPlane, namespace, name string, at time.Time) {
	t.Helper()
	if err := c.ApplyYAML(t.Context(), []byte(leaseText(namespace, name, at))); err != nil {
		t.Fatal(err)
	}
}

func leaseText(namespace, name string, at time.Time) string {
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "RENEWED",
		at.UTC().Format(metav1.RFC3339Micro)).Replace(lease)
}

func TestCredentialAndStatus(t *testing.T) {
	all := startControlPlanes(t, 3)
	onBroker, east, west := all[0], all[1], all[2]
	initBroker(t, onBroker)
	mustJoin(t, onBroker, east, options("east"))
	joined := mustJoin(t, onBroker, west, options("west"))

	config, own := credentialOf(t, east)
	if want := broker.NamespaceName(DefaultPrefix, "east"); own != want {
		t.Errorf("namespace of the context = %s, want %s", own, want)
	}
	// The API server decides by rights and policies that it has noticed.
	for _, await := range []func(context.Context) error{onBroker.AwaitRights, onBroker.AwaitPolicies} {
		if err := await(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("rights", func(t *testing.T) { rights(t, config, own, joined.Namespace) })
	t.Run("tokens", func(t *testing.T) { tokens(t, onBroker, east, own) })

	t.Run("half of its life", func(t *testing.T) {
		o := options("east")
		o.Now = func() time.Time { return time.Now().Add(broker.DefaultCredentialLife * 13 / 24) }
		was := mustJoin(t, onBroker, east, options("east")).CredentialExpires
		before, _ := credentialOf(t, east)
		// Two tokens of one second expire at the same time.
		is := mustJoin(t, onBroker, east, o).CredentialExpires
		if after, _ := credentialOf(t, east); is.Before(was) || after.BearerToken == before.BearerToken {
			t.Errorf("credential expires %s after %s, the same token: %t; want another one that expires no sooner", is, was,
				after.BearerToken == before.BearerToken)
		}
	})
	t.Run("rejected", func(t *testing.T) {
		before, _ := credentialOf(t, east)
		signed := before.BearerToken[:strings.LastIndex(before.BearerToken, ".")+1]
		rejected := signed + base64.RawURLEncoding.EncodeToString(make([]byte, 64)) // as after the broker got other keys
		secret := newSecret(wellknown.ControllerNamespace)
		secret.Data = map[string][]byte{broker.KeyToken: []byte(rejected)}
		if err := east.Apply(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		mustJoin(t, onBroker, east, options("east"))
		after, _ := credentialOf(t, east)
		c, err := read.Open(read.RoleBroker, after)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.KubeSystem(t.Context()); err != nil || after.BearerToken == rejected {
			t.Errorf("with the credential after the join: %v, the same token: %t; want one that the broker accepts", err,
				after.BearerToken == rejected)
		}
	})
	t.Run("server", func(t *testing.T) {
		o := options("east")
		o.BrokerServer = "https://broker.example:6443"
		mustJoin(t, onBroker, east, o)
		if config, _ := credentialOf(t, east); config.Host != o.BrokerServer {
			t.Errorf("host = %s, want %s", config.Host, o.BrokerServer)
		}
		mustJoin(t, onBroker, east, options("east"))
	})

	now := time.Now()
	o := status.Defaults()
	o.Now = func() time.Time { return now }
	for _, c := range []*controlplane.ControlPlane{east, west} {
		renew(t, c, wellknown.ControllerNamespace, wellknown.HeartbeatLease, now)
	}
	renew(t, onBroker, own, broker.HeartbeatName, now)
	renew(t, onBroker, joined.Namespace, broker.HeartbeatName, now)
	renew(t, east, wellknown.ControllerNamespace, wellknown.ControllerLease, now)
	// The credential of the member is enough to read the broker.
	state := statusOf(t, nil, east.Config(), o)
	if len(state.Problems) > 0 || len(state.Members) != 2 || !state.Members[0].This || state.Members[1].This ||
		state.Cluster.Leader != "pod-1" {
		t.Errorf("status = %+v, want two members, east this one, and no problem", state)
	}
	t.Run("imports of Lighthouse before 0.15", func(t *testing.T) { oldImports(t, east, o) })
	t.Run("names of imports that are taken", func(t *testing.T) { takenImports(t, onBroker, east, joined.Namespace, o) })
	t.Run("undeclared Pods", func(t *testing.T) { undeclaredPods(t, onBroker, east, o) })
	t.Run("sources of networks", func(t *testing.T) { findsNetworks(t, west) })
	renew(t, onBroker, joined.Namespace, broker.HeartbeatName, now.Add(-time.Hour))
	wantProblem(t, statusOf(t, nil, east.Config(), o), `member "west" last renewed its heartbeat 1h0m0s ago: it has expired`)
	renew(t, onBroker, own, broker.HeartbeatName, now.Add(-time.Hour))
	wantProblem(t, statusOf(
		t, nil, east.Config(), o), "the controller runs but does not renew its heartbeat on the broker")
	t.Run("a CRD that is too old", func(t *testing.T) { outdatedKind(t, east, o) })
	t.Run("a frozen controller", func(t *testing.T) { frozenController(t, east, o) })
	renew(t, east, wellknown.ControllerNamespace, wellknown.ControllerLease, now.Add(-time.Hour))
	state = statusOf(t, nil, east.Config(), o)
	wantProblem(t, state, "no leader: Lease clusterset-system/clusterset-controller has expired")
	if len(state.Cluster.Frozen) > 0 {
		t.Errorf("frozen = %+v by a controller that leads no more, want nothing", state.Cluster.Frozen)
	}
	t.Run("what does not decode", func(t *testing.T) { undecodable(t, onBroker, east, joined.Namespace, o) })
	o.Now = func() time.Time { return now.Add(broker.DefaultCredentialLife + time.Hour) }
	wantProblem(t, statusOf(t, onBroker.Config(), east.Config(), o), "the broker credential expired")

	t.Run("a broker that cannot be read", func(t *testing.T) { unreadBroker(t, onBroker, east, o) })
	t.Run("conflicts by the broker alone", func(t *testing.T) {
		for _, x := range []struct{ cluster, namespace, kind string }{{"east", own, "ClusterSetIP"},
			{"west", joined.Namespace, "Headless"}} {
			record := strings.NewReplacer("NAMESPACE", x.namespace, "cluster: east", "cluster: "+x.cluster, "ClusterSetIP",
				x.kind).Replace(exported)
			if err := onBroker.ApplyYAML(t.Context(), []byte(record)); err != nil {
				t.Fatal(err)
			}
		}
		state := statusOf(t, onBroker.Config(), nil, o)
		if state.Cluster != nil || len(state.Conflicts) != 1 || state.Conflicts[0].Reason != "TypeConflict" ||
			state.Members[0].Services != 1 {
			t.Errorf("status = %+v, want one conflict of types", state)
		}
	})
	t.Run("versions", func(t *testing.T) { sets(t, onBroker, east) })
	t.Run("a live member is not removed", func(t *testing.T) {
		renew(t, onBroker, joined.Namespace, broker.HeartbeatName, now)
		o := leaveOptions()
		o.Now = func() time.Time { return now.Add(time.Second) }
		_, err := Remove(t.Context(), onBroker.Config(), "west", o)
		if want := `member "west" renewed its heartbeat 1s ago: run "clusterset leave" in that cluster, or use --force`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		o.Force = true
		if _, err := Remove(t.Context(), onBroker.Config(), "west", o); err != nil {
			t.Fatal(err)
		}
		state := statusOf(t, onBroker.Config(), west.Config(), status.Defaults())
		wantProblem(t, state, "the broker has no Member for this cluster")
		if _, err := Remove(t.Context(), onBroker.Config(), "west", o); err != nil { // and its account
			t.Fatal(err)
		}
		until.OK(t, "the broker rejects the token", func(ctx context.Context) error {
			state, err := status.Read(ctx, nil, west.Config(), status.Defaults())
			if err == nil && !strings.HasSuffix(strings.Join(state.Problems, "\n"), "[credential-rejected]") {
				err = fmt.Errorf("problems %q", state.Problems)
			}
			return err
		})
	})
}

// oldImports: DNS does not read what Lighthouse before 0.15 has written (docs/spec/dns.md 1.7), so status warns of it.
func oldImports(t *testing.T, east *controlplane.ControlPlane, o status.Options) {
	const old = `apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {namespace: default, name: db-shop-west, labels: {lighthouse.submariner.io/sourceCluster: west}}
spec: {type: ClusterSetIP, ips: [10.2.0.1], ports: []}
`
	warns := func() bool {
		return slices.ContainsFunc(statusOf(t, nil, east.Config(), o).Warnings, func(w string) bool {
			return strings.Contains(w, "Lighthouse before 0.15 has written: 1, such as default/db-shop-west")
		})
	}
	if warns() {
		t.Error("a warning before there is an import")
	}
	if err := east.ApplyYAML(t.Context(), []byte(old)); err != nil {
		t.Fatal(err)
	}
	if !warns() {
		t.Error("no warning")
	}
	imports := east.Dynamic().Resource(read.ServiceImports).Namespace("default")
	if err := imports.Delete(t.Context(), "db-shop-west", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// takenImports: somebody else has created the ServiceImport of a service that the namespace would import.
func takenImports(t *testing.T, onBroker, east *controlplane.ControlPlane, west string, o status.Options) {
	must := func(c *controlplane.ControlPlane, manifest string) {
		t.Helper()
		if err := c.ApplyYAML(t.Context(), []byte(manifest)); err != nil {
			t.Fatal(err)
		}
	}
	record, _, _ := strings.Cut(strings.NewReplacer("NAMESPACE", west, "cluster: east",
		"cluster: west").Replace(exported), "\n---")
	annotated := func(sources string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {clusterset-dns.io/allowed-source-clusters: '" + sources + "'}}}"
	}
	lacks := func() bool {
		return slices.ContainsFunc(statusOf(t, nil, east.Config(), o).Warnings, func(w string) bool {
			return strings.HasPrefix(w, "namespaces of services that are exported to this cluster do not exist here: 1, such as shop; ")
		})
	}
	must(onBroker, record)
	before := lacks()
	must(east, annotated("north, west"))
	if !before || lacks() {
		t.Errorf("a warning before there is the namespace: %t, and after: %t; want true, false", before, lacks())
	}
	must(east, `{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {name: db, namespace: shop}, spec: {type: Headless, ports: []}}`)
	wantProblem(t, statusOf(
		t, nil, east.Config(), o),
		"import shop/db is not ready, Foreign: It is not that of the controller, which leaves it alone, "+
			"though the service is exported by west [import-foreign]")
	must(east, annotated("north"))
	if state := statusOf(t, nil, east.Config(), o); len(state.Problems) > 0 {
		t.Errorf("problems %q of a service that the namespace does not accept, want none", state.Problems)
	}
	for _, err := range []error{
		onBroker.Dynamic().Resource(memberRecords).Namespace(west).Delete(t.Context(), "db.shop", metav1.DeleteOptions{}),
		east.Dynamic().Resource(serviceImportResource).Namespace("shop").Delete(t.Context(), "db", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// outdatedKind: the controller waits for a CRD, and so its heartbeat has expired (docs/spec/controller.md 5.3). That is
// the cause, and readable exports are counted.
func outdatedKind(t *testing.T, east *controlplane.ControlPlane, o status.Options) {
	export := `{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceExport, metadata: {name: db, namespace: default}}`
	if err := east.ApplyYAML(t.Context(), []byte(export)); err != nil {
		t.Fatal(err)
	}
	crds := east.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	serve := func(served bool) {
		t.Helper()
		patch := fmt.Sprintf(`[{"op":"test","path":"/spec/versions/1/name","value":"v1beta1"},{"op":"replace","path":"/spec/versions/1/served","value":%t}]`, served)
		if _, err := crds.Patch(t.Context(), mcsv1beta1.ServiceExportFullName, types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	serve(false)
	state := statusOf(t, nil, east.Config(), o)
	wantProblem(
		t, state,
		"CRD serviceexports.multicluster.x-k8s.io does not serve v1 or v1beta1: update it to that of sigs.k8s.io/mcs-api v0.5 or later; "+
			"until then the controller waits and sends no heartbeat")
	if text := strings.Join(state.Problems, "\n"); strings.Contains(text, "cannot reach") ||
		strings.Contains(text, "NotReconciled") || state.Cluster.Exports.Total != 1 {
		t.Errorf("problems %q, exports %+v, want the CRD as the one cause, and one export", state.Problems,
			state.Cluster.Exports)
	}
	serve(true)
	exports := east.Dynamic().Resource(read.ServiceExports).Namespace("default")
	until.OK(t, "the export is gone", func(ctx context.Context) error {
		return exports.Delete(ctx, "db",
			metav1.DeleteOptions{})
	})
}

// undecodable: an object that the API server accepts and Go does not decode is left out and named; all else is read.
func undecodable(t *testing.T, onBroker, east *controlplane.ControlPlane, west string, o status.Options) {
	const year10000 = "9999-12-31T23:59:59.000000-23:00" // in UTC, which is how the API server returns it
	heartbeat := strings.NewReplacer("NAMESPACE", west, "NAME", broker.HeartbeatName, "RENEWED", year10000).Replace(lease)
	if err := onBroker.ApplyYAML(t.Context(), []byte(heartbeat)); err != nil {
		t.Fatal(err)
	}
	exports := east.Dynamic().Resource(read.ServiceExports).Namespace("default")
	odd := read.Object(mcsv1beta1.SchemeGroupVersion.WithKind("ServiceExport"), "default", "odd")
	created, err := exports.Create(t.Context(), odd, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Odd", "status": "True", "reason": "Odd", "message": "", "lastTransitionTime": "2026-01-01t00:00:00z",
	}}}
	if _, err := exports.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	state := statusOf(t, onBroker.Config(), east.Config(), o)
	wantProblem(t, state, "member: ServiceExport default/odd is left out, because it does not decode: ")
	wantProblem(t, state, "broker: Lease "+west+"/"+broker.HeartbeatName+" is left out, because it does not decode: ")
	if len(state.Members) != 2 {
		t.Errorf("members = %+v, want both", state.Members)
	}
	mustJoin(t, onBroker, east, options("east"))
	if err := exports.Delete(t.Context(), "odd", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// unreadBroker: the state of the cluster is reported even if the broker cannot be read.
func unreadBroker(t *testing.T, onBroker, east *controlplane.ControlPlane, o status.Options) {
	stranger := onBroker.Config()
	stranger.TLSClientConfig = rest.TLSClientConfig{CAData: stranger.CAData, CAFile: stranger.CAFile}
	stranger.BearerToken, stranger.BearerTokenFile = "wrong", ""
	problem := func(want string) {
		t.Helper()
		state, err := status.Read(t.Context(), stranger, east.Config(), o)
		if err != nil || !strings.Contains(strings.Join(state.Unread, "\n"), "Unauthorized") {
			t.Errorf("error %v, unread %q, want Unauthorized", err, state.Unread)
		}
		wantProblem(t, state, want)
		if strings.Contains(strings.Join(state.Problems, "\n"), "no Member") {
			t.Errorf("problems %q, want no problem of the broker", state.Problems)
		}
	}
	problem("no leader: Lease clusterset-system/clusterset-controller has expired")
	problem("the broker credential expired")
	var c crash
	c.left.Store(1)
	if _, err := Leave(t.Context(), c.wrap(onBroker.Config()), c.wrap(east.Config()), leaveOptions()); !errors.Is(err,
		errCrash) {
		t.Fatalf("leave: %v, want a crash", err)
	}
	problem(`this cluster is leaving: run "clusterset leave" again to finish, or "clusterset join" to stay`)
	mustJoin(t, onBroker, east, options("east"))
}

func statusOf(t *testing.T, onBroker, onMember *rest.Config, o status.Options) status.State {
	t.Helper()
	state, err := status.Read(t.Context(), onBroker, onMember, o)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func wantProblem(t *testing.T, s status.State, want string) {
	t.Helper()
	if !strings.Contains(strings.Join(s.Problems, "\n"), want) {
		t.Errorf("problems %q, want %s", s.Problems, want)
	}
}

// tokens requests tokens with the credential of the member, within and beyond what its join granted.
// docs/spec/controller.md 2.4.
func tokens(t *testing.T, onBroker, east *controlplane.ControlPlane, own string) {
	request := func(ctx context.Context, life time.Duration, audiences ...string) error {
		config, _ := credentialOf(t, east)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		seconds := int64(life.Seconds())
		_, err = client.CoreV1().ServiceAccounts(own).CreateToken(ctx, broker.ServiceAccount, &authv1.TokenRequest{
			Spec: authv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: audiences},
		}, metav1.CreateOptions{})
		return err
	}
	for _, tt := range []struct {
		name, denied string
		err          error
	}{
		{"a week", "", request(t.Context(), broker.DefaultCredentialLife)},
		{"100 years", "at most 168h0m0s", request(t.Context(), 100*365*24*time.Hour)},
		{"another audience", "for this API server alone", request(t.Context(), time.Hour, "vault.example")},
	} {
		if tt.denied == "" && tt.err != nil || tt.denied != "" &&
			(tt.err == nil || !strings.Contains(tt.err.Error(), tt.denied)) {
			t.Errorf("%s: error %v, want %q in it", tt.name, tt.err, tt.denied)
		}
	}
	o := options("east")
	o.CredentialLife = 30 * 24 * time.Hour
	mustJoin(t, onBroker, east, o)
	until.OK(t, "token for 30 days", func(ctx context.Context) error { return request(ctx, o.CredentialLife) })
	// Back to the default: a token that lives longer is replaced.
	if expires := mustJoin(t, onBroker, east, options("east")).CredentialExpires; time.Until(
		expires) > broker.DefaultCredentialLife {
		t.Errorf("credential expires %s, want within a week", expires)
	}
}

// rights asks the broker which requests it allows a member.
func rights(t *testing.T, config *rest.Config, own, other string) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		verb, group, resource, sub, namespace, name string
		want                                        bool
	}{
		{"create", broker.GroupName, "exportedservices", "", own, "", true},
		{"delete", "discovery.k8s.io", "endpointslices", "", own, "", true},
		{"patch", mcsv1beta1.GroupName, "serviceimports", "", own, "", true},
		{"patch", mcsv1beta1.GroupName, "serviceimports", "status", own, "", true},
		{"create", "coordination.k8s.io", "leases", "", own, "", true},
		{"patch", "coordination.k8s.io", "leases", "", own, "heartbeat", true},
		{"patch", "coordination.k8s.io", "leases", "", own, "other", false},
		{"create", "", "serviceaccounts", "token", own, "member", true},
		{"create", "", "serviceaccounts", "token", own, "default", false},
		{"list", broker.GroupName, "exportedservices", "", "", "", true},
		{"list", "", "namespaces", "", "", "", true},
		{"watch", "coordination.k8s.io", "leases", "", "", "", true},
		{"patch", broker.GroupName, "members", "status", "", "east", true},
		{"patch", broker.GroupName, "members", "status", "", "west", false},
		{"patch", broker.GroupName, "members", "", "", "east", false},
		{"create", broker.GroupName, "exportedservices", "", other, "", false},
		{"delete", "discovery.k8s.io", "endpointslices", "", other, "", false},
		{"create", "", "serviceaccounts", "token", other, "member", false},
		{"get", "", "secrets", "", own, "", false},
		{"delete", "", "resourcequotas", "", own, "member", false},
		{"delete", "", "namespaces", "", "", own, false},
	} {
		review := &authzv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &authzv1.ResourceAttributes{
			Verb: tt.verb, Group: tt.group, Resource: tt.resource, Subresource: tt.sub, Namespace: tt.namespace, Name: tt.name,
		}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status.Allowed != tt.want {
			t.Errorf("%+v: allowed %t", tt, answer.Status.Allowed)
		}
	}
	// A real request succeeds with the same credential.
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dyn.Resource(read.Namespaces).List(t.Context(),
		metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// sets changes the CRDs and policies of broker and member: nothing newer is overwritten, and status reports the
// differences. docs/spec/controller.md 7.7.
func sets(t *testing.T, onBroker, east *controlplane.ControlPlane) {
	change := func(c *controlplane.ControlPlane, r schema.GroupVersionResource, name, patch string) {
		t.Helper()
		if _, err := c.Dynamic().Resource(r).Patch(t.Context(), name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	version := func(c *controlplane.ControlPlane, r schema.GroupVersionResource, name, value string) {
		t.Helper()
		change(c, r, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, broker.AnnotationVersion, value))
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	const records, writes, ids = "exportedservices.broker.clusterset-dns.io", "clusterset-broker-writes",
		"clusterset-cluster-id"
	denied := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", what, err, want)
		}
	}
	// The member's own credential is enough. Rights take effect a moment after they are written.
	reports := func(in func(status.State) []string, want string) {
		t.Helper()
		until.OK(t, want, func(ctx context.Context) error {
			state, err := status.Read(ctx, nil, east.Config(), status.Defaults())
			if err == nil && !strings.Contains(strings.Join(in(state), "\n"), want) {
				err = fmt.Errorf("%q", in(state))
			}
			return err
		})
	}
	warnings := func(s status.State) []string { return s.Warnings }
	problems := func(s status.State) []string { return s.Problems }
	if v := statusOf(t, nil, east.Config(), status.Defaults()).Broker.Version; v != deploy.Version {
		t.Errorf("version %d, want %d", v, deploy.Version)
	}

	version(onBroker, crds, records, "null") // counts as 1
	reports(problems, "the broker has CRDs and policies of version 1 (CustomResourceDefinition "+records+")")
	if joined := mustJoin(t, onBroker, east, options("east")); !strings.Contains(strings.Join(joined.Warnings, "\n"), `run "clusterset broker init"`) {
		t.Errorf("warnings of a join to an old broker: %q", joined.Warnings)
	}
	for _, r := range []struct {
		gvr  schema.GroupVersionResource
		name string
	}{{crds, records}, {policyResource, writes}} {
		version(onBroker, r.gvr, r.name, `"99"`)
		newer := "the broker has CRDs and policies of version 99"
		denied("init", Init(t.Context(), onBroker.Config(), InitOptions{}), newer)
		_, err := Join(t.Context(), onBroker.Config(), east.Config(), options("east"))
		denied("join", err, newer)
		reports(warnings, newer)
		version(onBroker, r.gvr, r.name, `"1"`)
	}
	version(east, policyResource, ids, `"1"`)
	reports(warnings, "ValidatingAdmissionPolicy "+ids+" is of version 1, and this program brings version 2: run")
	version(east, policyResource, ids, `"2"`)
	change(east, policyResource, ids, `{"spec":{"failurePolicy":"Ignore"}}`)
	reports(warnings, "ValidatingAdmissionPolicy "+ids+" is missing or differs from that of version 2")
	change(east, policyResource, ids, `{"spec":{"failurePolicy":"Fail"}}`)
	initBroker(t, onBroker)
	change(onBroker, policyBindingResource, writes, `{"spec":{"validationActions":["Audit"]}}`)
	reports(problems, "ValidatingAdmissionPolicyBinding "+writes+" differs")
	if err := onBroker.Dynamic().Resource(policyBindingResource).Delete(t.Context(), writes,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	reports(problems, "ValidatingAdmissionPolicyBinding "+writes+" does not exist")
	_, err := Join(t.Context(), onBroker.Config(), east.Config(), options("east"))
	denied("join", err, "the broker is not initialised")
	initBroker(t, onBroker)
	if state := statusOf(t, nil, east.Config(), status.Defaults()); strings.Contains(strings.Join(state.Problems, "\n"),
		"broker: ") {
		t.Errorf("problems %q, want none of the policies", state.Problems)
	}

	const imports = "serviceimports.multicluster.x-k8s.io"
	if _, err := east.Dynamic().Resource(crds).Patch(t.Context(), imports, types.JSONPatchType, []byte(
		`[{"op":"remove","path":"/spec/versions/1/schema/openAPIV3Schema/properties/status/properties/endpointSliceObjects"}]`), metav1.PatchOptions{},
	); err != nil {
		t.Fatal(err)
	}
	reports(warnings, "CRD "+imports+" has no field status.endpointSliceObjects at v1beta1: update it")
	mustJoin(t, onBroker, east, options("east"))

	version(east, policyResource, ids, `"99"`)
	change(east, policyResource, ids, `{"spec":{"failurePolicy":"Ignore"}}`)
	mustJoin(t, onBroker, east, options("east"))
	policy := find(t, east, "validatingadmissionpolicies", "", ids)
	if read.VersionOf(policy) != 99 || read.StringAt(policy, "spec", "failurePolicy") != "Ignore" {
		t.Errorf("policy of a newer version was overwritten: %v", policy.Object)
	}
	version(east, policyResource, ids, "null")
	mustJoin(t, onBroker, east, options("east"))
	if policy := find(t, east, "validatingadmissionpolicies", "", ids); read.VersionOf(policy) != deploy.Version {
		t.Errorf("policy has version %d, want that of the join", read.VersionOf(policy))
	}
}

// frozenController has the reasons that the controller of east writes on its Lease.
func frozenController(t *testing.T, east *controlplane.ControlPlane, o status.Options) {
	since := o.Now().Add(-time.Minute)
	text := wellknown.FormatFreezes([]wellknown.Freeze{{Reason: "broker_identity", Code: "cluster-cloned",
		Detail: "two of them", Suspends: "exports", Since: since}})
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wellknown.AnnotationFrozen, text)
	_, err := east.Dynamic().Resource(read.Leases).Namespace(wellknown.ControllerNamespace).
		Patch(t.Context(), wellknown.ControllerLease, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state := statusOf(t, nil, east.Config(), o)
	wantProblem(t, state, "the controller is frozen (broker_identity): two of them [cluster-cloned]; suspended: exports")
	if f := state.Cluster.Frozen; len(f) != 1 || !f[0].Since.Equal(since.Truncate(time.Second)) {
		t.Errorf("frozen = %+v, want one reason since %s", f, since)
	}
}
