package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func ptr[T any](v T) *T { return &v }

func namespaceOf(id string) string { return broker.NamespaceName("clusterset", id) }

// join makes what the policies look at: Member, namespace, service account, the binding for addresses. The account may
// do everything, so that nothing but the policies refuses.
func join(t *testing.T, c *controlplane.ControlPlane, id string, spec v1alpha1.MemberSpec) {
	t.Helper()
	ns := namespaceOf(id)
	spec.Namespace, spec.KubeSystemUID = ns, "721ab723-13bc-11e5-aec2-42010af0021e"
	apply(t, c,
		&v1alpha1.Member{TypeMeta: kind(v1alpha1.GroupVersion, "Member"), ObjectMeta: metav1.ObjectMeta{Name: id},
			Spec: spec},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{broker.LabelClusterID: id}}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: broker.ServiceAccount}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "too-much-for-" + ns},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: broker.ServiceAccount}},
		},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
			"metadata": map[string]any{"name": "clusterset-" + ns},
			"spec": map[string]any{
				"policyName": "clusterset-broker-addresses", "validationActions": []any{"Deny"},
				"paramRef":       map[string]any{"name": id, "parameterNotFoundAction": "Deny"},
				"matchResources": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{broker.LabelClusterID: id}}},
			},
		}},
	)
}

func kind(gv fmt.Stringer, name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gv.String(), Kind: name}
}

// exported is what the exporter makes of a Service shop/db in a cluster.
func exported(id string, o export.Options) (*v1alpha1.ExportedService, *discoveryv1.EndpointSlice) {
	o.ClusterID, o.BrokerNamespace, o.Namespace = id, namespaceOf(id), export.Allowed
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "db", Generation: 1, CreationTimestamp: metav1.NewTime(time.Date(2026, 3, 1, 9, 0, 0, 0,
			time.UTC)),
	}}
	exp.Spec.ExportedLabels = map[string]string{"tier": "gold", "example.org/team": "a"}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.5", ClusterIPs: []string{"10.96.0.5"},
			IPFamilies: []corev1.IPFamily{"IPv4"},
			Ports:      []corev1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}},
		},
	}
	source := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-x7k2p", Labels: map[string]string{discoveryv1.LabelServiceName: "db", "team": "a"},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-03-01T10:00:00Z", "note": "a"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("pg"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr[int32](5432)}},
	}
	r := export.From(exp, service, []*discoveryv1.EndpointSlice{source}, o)
	return r.Record, r.Slices[0]
}

func record(spoil func(*v1alpha1.ExportedService)) runtime.Object {
	r, _ := exported("east", export.Options{})
	if spoil != nil {
		spoil(r)
	}
	return r
}

func slice(spoil func(*discoveryv1.EndpointSlice)) runtime.Object {
	_, s := exported("east", export.Options{})
	if spoil != nil {
		spoil(s)
	}
	return s
}

func lease(id, name string) runtime.Object {
	return &coordinationv1.Lease{
		TypeMeta:   kind(coordinationv1.SchemeGroupVersion, "Lease"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(id), Name: name},
	}
}

func view(id string) runtime.Object {
	return &mcsv1beta1.ServiceImport{
		TypeMeta:   kind(mcsv1beta1.GroupVersion, "ServiceImport"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(id), Name: "db.shop"},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{},
			IPFamilies: []corev1.IPFamily{"IPv4"}},
	}
}

func configMap(ns string) runtime.Object {
	return &corev1.ConfigMap{TypeMeta: kind(corev1.SchemeGroupVersion, "ConfigMap"),
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}}
}

func tokenRequest(ns string, spec ...authenticationv1.TokenRequestSpec) runtime.Object {
	r := &authenticationv1.TokenRequest{
		TypeMeta: kind(authenticationv1.SchemeGroupVersion, "TokenRequest"), ObjectMeta: metav1.ObjectMeta{Namespace: ns},
	}
	for _, s := range spec {
		r.Spec = s
	}
	return r
}

func lives(d time.Duration) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr(int64(d.Seconds()))}
}

// testTokens requests tokens as east: with the bounds that a join without a grant leaves, and with those of a grant.
func testTokens(t *testing.T, c *controlplane.ControlPlane, client dynamic.Interface) {
	east := namespaceOf("east")
	request := func(ctx context.Context, spec authenticationv1.TokenRequestSpec) error {
		return write{object: tokenRequest(east, spec), name: broker.ServiceAccount, subresource: "token"}.do(ctx, client)
	}
	day := 24 * time.Hour
	for _, tt := range []struct {
		spec    authenticationv1.TokenRequestSpec
		refused string
	}{{lives(7 * day), ""}, {lives(7*day + time.Second), "at most 168h,"}, {lives(100 * 365 * day), "at most 168h,"}} {
		if err := rejected(request(t.Context(), tt.spec), tt.refused); err != nil {
			t.Errorf("without a grant: token for %ds: %v", *tt.spec.ExpirationSeconds, err)
		}
	}
	// The broker's own audience, as it fills it in.
	sa := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(tokenRequest(east))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetName(broker.ServiceAccount)
	answer, err := c.Dynamic().Resource(sa).Namespace(east).Create(t.Context(), u, metav1.CreateOptions{}, "token")
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := unstructured.NestedStringSlice(answer.Object, "spec", "audiences")
	if len(own) == 0 {
		t.Fatal("the API server filled in no audience")
	}
	grant := broker.Grant{Life: time.Hour, Audiences: append([]string{"other.example"}, own...)}
	apply(t, c, &corev1.Namespace{TypeMeta: kind(corev1.SchemeGroupVersion, "Namespace"), ObjectMeta: metav1.ObjectMeta{
		Name: east, Labels: map[string]string{broker.LabelClusterID: "east"}, Annotations: grant.Annotations(),
	}})
	until.OK(t, "the grant", func(ctx context.Context) error {
		return rejected(request(ctx, lives(2*time.Hour)), "at most 1h0m0s,")
	})
	const alone = "for this API server alone"
	for _, tt := range []struct {
		name    string
		spec    authenticationv1.TokenRequestSpec
		refused string
	}{
		{"all of the grant", lives(time.Hour), ""},
		{"audiences that are filled in", authenticationv1.TokenRequestSpec{}, ""},
		{"an audience of the grant", authenticationv1.TokenRequestSpec{Audiences: own}, ""},
		{"another audience", authenticationv1.TokenRequestSpec{Audiences: []string{"vault.example"}}, alone},
		{"another audience besides", authenticationv1.TokenRequestSpec{Audiences: append([]string{"vault.example"}, own...)},
			alone},
		{"bound to an object", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Secret", APIVersion: "v1", Name: "x",
		}}, alone},
	} {
		// An object that a token is bound to has to exist, which is checked after admission.
		if err := rejected(request(t.Context(), tt.spec), tt.refused); err != nil {
			t.Errorf("with a grant: %s: %v", tt.name, err)
		}
	}
}

// A write is one request, never for good. The object has the kind and namespace, and the name unless there is one here.
type write struct {
	verb        string // create (also if empty), update, patch, apply, delete, deletecollection
	object      runtime.Object
	name        string
	subresource string
}

// do writes as the user of the client.
func (w write) do(ctx context.Context, client dynamic.Interface) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetKind() == "TokenRequest" {
		gvr = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	}
	r := client.Resource(gvr).Namespace(u.GetNamespace())
	if w.name == "" {
		w.name = u.GetName()
	}
	var sub []string
	if w.subresource != "" {
		sub = []string{w.subresource}
	}
	switch w.verb {
	case "update":
		_, err = r.Update(ctx, u, metav1.UpdateOptions{DryRun: dryRun}, sub...)
	case "patch":
		var patch []byte
		if patch, err = json.Marshal(u); err == nil {
			_, err = r.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun}, sub...)
		}
	case "delete":
		err = r.Delete(ctx, w.name, metav1.DeleteOptions{DryRun: dryRun})
	case "deletecollection":
		err = r.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
	case "apply":
		_, err = r.Apply(ctx, w.name, u, metav1.ApplyOptions{FieldManager: wellknown.ManagerExporter, Force: true,
			DryRun: dryRun}, sub...)
	default:
		if len(sub) > 0 {
			u.SetName(w.name) // the client takes it from there
		}
		_, err = r.Create(ctx, u, metav1.CreateOptions{DryRun: dryRun}, sub...)
	}
	return err
}

const (
	nothingElse   = "nothing else"
	noOwners      = "no finalizers and no owners"
	onlyLease     = `the only Lease of a member is "heartbeat"`
	ownToken      = "tokens of its own service account"
	ownCluster    = `label multicluster.kubernetes.io/source-cluster has to be "east"`
	onlyLabels    = "labels have to be service-name"
	bareInventory = "an inventory has no labels and annotations"
	onlyNote      = "the only annotations are"
	ourMark       = "label endpointslice.kubernetes.io/managed-by has to be"
	asSpec        = "have to be those of the spec"
	sliceName     = "the name of a slice is"
	unused        = "endpoints have no node names"
	smallLease    = "a heartbeat has at most"
	smallView     = "a ServiceImport has at most 65536 octets"
	fewPorts      = "a ServiceImport has at most 1000 ports"
	longFields    = "metadata.managedFields is longer"
	fewClusters   = "the status of a ServiceImport has at most 1000 clusters"
)

// TestBrokerWrites lets a member write what it should not, with the rights to write everything.
func TestBrokerWrites(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{CRDs: allCRDs()})
	applyYAML(t, c, deploy.Broker)
	networks := v1alpha1.MemberSpec{PodCIDRs: []string{"10.1.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/16"}}
	for _, id := range []string{"east", "west"} {
		join(t, c, id, networks)
		// The policy for addresses finds the Member a moment later.
		r, s := exported(id, export.Options{})
		until.OK(t, "parameters", func(ctx context.Context) error { return c.Apply(ctx, r, s) })
		apply(t, c, lease(id, broker.HeartbeatName), view(id))
	}
	east, west := namespaceOf("east"), namespaceOf("west")
	apply(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: "other"}})
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), east, broker.ServiceAccount)
	client, err := dynamic.NewForConfig(as(t, kubeconfig, err))
	if err != nil {
		t.Fatal(err)
	}
	member := func(id string, spoil func(*v1alpha1.Member)) runtime.Object {
		u, err := c.Dynamic().Resource(v1alpha1.Members).Get(t.Context(), id, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m := &v1alpha1.Member{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, m); err != nil {
			t.Fatal(err)
		}
		spoil(m)
		return m
	}
	status := func(m *v1alpha1.Member) { m.Status.Version = "v1" }
	inWest := func(o runtime.Object) runtime.Object {
		a, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		a.SetNamespace(west)
		return o
	}
	current := func(o runtime.Object, gvr schema.GroupVersionResource) runtime.Object {
		a, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.Dynamic().Resource(gvr).Namespace(a.GetNamespace()).Get(t.Context(), a.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a.SetResourceVersion(u.GetResourceVersion())
		return o
	}
	inventory := func(name string, spoil func(*v1alpha1.Inventory)) runtime.Object {
		i := &v1alpha1.Inventory{
			TypeMeta: kind(v1alpha1.GroupVersion, "Inventory"), ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: name},
			Spec: v1alpha1.InventorySpec{Stamp: 1},
		}
		if spoil != nil {
			spoil(i)
		}
		return i
	}
	slicesGVR := discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	leasesGVR := coordinationv1.SchemeGroupVersion.WithResource("leases")
	viewsGVR := schema.GroupVersion(mcsv1beta1.GroupVersion).WithResource("serviceimports")
	label := func(key, value string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Name, s.Labels[key] = "db.shop.0123456789abcdef", value }
	}
	endpoint := func(change func(*discoveryv1.Endpoint)) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			s.Name = "db.shop.0123456789abcdef"
			change(&s.Endpoints[0])
		}
	}
	named := func(name string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Name = name }
	}
	fresh := func(spoil func(*v1alpha1.ExportedService)) runtime.Object {
		return record(func(r *v1alpha1.ExportedService) {
			r.Name, r.Spec.Name, r.Labels[mcsv1beta1.LabelServiceName] = "web.shop", "web", "web"
			spoil(r)
		})
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "kube-system", UID: "1"}}
	heartbeat := func(spoil func(*coordinationv1.Lease)) write {
		l := lease("east", broker.HeartbeatName).(*coordinationv1.Lease)
		l.Labels = map[string]string{broker.LabelManagedBy: broker.ManagedBy}
		spoil(l)
		return write{verb: "update", object: current(l, leasesGVR)}
	}
	published := func(subresource string, spoil func(*mcsv1beta1.ServiceImport)) write {
		v := view("east").(*mcsv1beta1.ServiceImport)
		spoil(v)
		return write{verb: "update", object: current(v, viewsGVR), subresource: subresource}
	}

	for _, tt := range []struct {
		name    string
		write   write
		refused string
	}{
		// Its daily writes.
		{"export record", write{object: fresh(func(*v1alpha1.ExportedService) {})}, ""},
		{"export record, again", write{verb: "update", object: current(record(nil), v1alpha1.ExportedServices)}, ""},
		{"withdraw export record", write{verb: "delete", object: record(nil)}, ""},
		{"withdraw all", write{verb: "deletecollection", object: record(nil)}, ""},
		{"slice", write{object: slice(named("db.shop.0123456789abcdef"))}, ""},
		{"slice for a zone and a region", write{object: slice(func(s *discoveryv1.EndpointSlice) {
			s.Name, s.Labels[broker.LabelForZone], s.Labels[broker.LabelForRegion] = "db.shop.0123456789abcde0",
				strings.Repeat("z", 63), "r"
		})}, ""},
		{"slice, again", write{verb: "update", object: current(slice(nil), slicesGVR)}, ""},
		{"withdraw slice", write{verb: "delete", object: slice(nil)}, ""},
		{"heartbeat", write{verb: "update", object: current(lease("east", broker.HeartbeatName), leasesGVR)}, ""},
		{"inventory", write{object: inventory("3f", nil)}, ""},
		{"withdraw heartbeat", write{verb: "delete", object: lease("east", broker.HeartbeatName)}, ""},
		{"status of its Member", write{verb: "update", object: member("east", status), subresource: "status"}, ""},
		{"merged view", write{verb: "update", object: current(view("east"), viewsGVR)}, ""},
		{"status of the merged view", write{verb: "update", object: current(view("east"), viewsGVR), subresource: "status"}, ""},
		{"token of its own", write{object: tokenRequest(east), name: broker.ServiceAccount, subresource: "token"}, ""},
		{"question about its rights", write{object: &authorizationv1.SelfSubjectAccessReview{
			TypeMeta: kind(authorizationv1.SchemeGroupVersion, "SelfSubjectAccessReview"),
			Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get"}},
		}}, ""},

		// Objects of others.
		{"someone else's record", write{verb: "update", object: current(inWest(record(nil)), v1alpha1.ExportedServices)},
			nothingElse},
		{"record in someone else's namespace", write{object: inWest(fresh(func(*v1alpha1.ExportedService) {}))}, nothingElse},
		{"withdraw someone else's record", write{verb: "delete", object: inWest(record(nil))}, nothingElse},
		{"withdraw all of someone else's", write{verb: "deletecollection", object: inWest(record(nil))}, nothingElse},
		{"someone else's slice", write{verb: "update", object: current(inWest(slice(nil)), slicesGVR)}, nothingElse},
		{"withdraw someone else's slice", write{verb: "delete", object: inWest(slice(nil))}, nothingElse},
		{"someone else's heartbeat", write{verb: "update", object: current(lease("west", broker.HeartbeatName), leasesGVR)},
			nothingElse},
		{"someone else's view", write{verb: "update", object: current(view("west"), viewsGVR)}, nothingElse},
		{"status of someone else's Member", write{verb: "update", object: member("west", status), subresource: "status"},
			nothingElse},
		{"someone else's token", write{object: tokenRequest(west), name: broker.ServiceAccount, subresource: "token"},
			nothingElse},
		{"kube-system", write{object: configMap("kube-system")}, nothingElse},

		// Objects of nobody.
		{"its Member", write{verb: "update", object: member("east",
			func(m *v1alpha1.Member) { m.Spec.VIPCIDRs = []string{"243.0.0.0/8"} })}, nothingElse},
		{"a Member", write{object: member("east", func(m *v1alpha1.Member) {
			m.Name, m.ResourceVersion, m.UID = "north", "",
				""
		})}, nothingElse},
		{"delete its Member", write{verb: "delete", object: member("east", status)}, nothingElse},
		{"its namespace", write{verb: "update", object: &corev1.Namespace{
			TypeMeta:   kind(corev1.SchemeGroupVersion, "Namespace"),
			ObjectMeta: metav1.ObjectMeta{Name: east, Labels: map[string]string{broker.LabelClusterID: "west"}},
		}}, nothingElse},
		{"something else in its namespace", write{object: configMap(east)}, nothingElse},
		{"rights in its namespace", write{object: &rbacv1.RoleBinding{
			TypeMeta: kind(rbacv1.SchemeGroupVersion, "RoleBinding"), ObjectMeta: metav1.ObjectMeta{Namespace: east, Name: "x"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		}}, nothingElse},
		{"rights everywhere", write{object: &rbacv1.ClusterRoleBinding{
			TypeMeta: kind(rbacv1.SchemeGroupVersion, "ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: "x"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		}}, nothingElse},
		{"another Lease", write{object: lease("east", "leader")}, onlyLease},
		{"another token", write{object: tokenRequest(east), name: "other", subresource: "token"}, ownToken},

		// Bad values, in an inventory.
		{"someone else's inventory", write{object: inWest(inventory("3f", nil))}, nothingElse},
		{"inventory: label", write{object: inventory("3e", func(
			i *v1alpha1.Inventory) {
			i.Labels = map[string]string{"a": "b"}
		})}, bareInventory},
		{"inventory: annotation", write{object: inventory("3e",
			func(i *v1alpha1.Inventory) { i.Annotations = map[string]string{"a": "b"} })}, bareInventory},
		{"inventory: name, by the CRD", write{object: inventory("40", nil)}, "has to be 00 to 3f"},

		// Bad values, in a record.
		{"record: source-cluster of another", write{object: fresh(func(
			r *v1alpha1.ExportedService) {
			r.Labels[mcsv1beta1.LabelSourceCluster] = "west"
		})}, ownCluster},
		{"record: no source-cluster", write{object: fresh(func(r *v1alpha1.ExportedService) {
			delete(r.Labels,
				mcsv1beta1.LabelSourceCluster)
		})}, ownCluster},
		{"record: no labels", write{object: fresh(func(r *v1alpha1.ExportedService) { r.Labels = nil })}, ownCluster},
		{"record: label", write{object: fresh(func(r *v1alpha1.ExportedService) { r.Labels["tier"] = "gold" })}, onlyLabels},
		{"record: for a zone", write{object: fresh(func(
			r *v1alpha1.ExportedService) {
			r.Labels[broker.LabelForZone] = "a"
		})}, onlyLabels},
		{"record: label of slices", write{object: fresh(func(
			r *v1alpha1.ExportedService) {
			r.Labels[discoveryv1.LabelManagedBy] = "x"
		})}, onlyLabels},
		{"record: annotation", write{object: fresh(func(
			r *v1alpha1.ExportedService) {
			r.Annotations = map[string]string{"a": "b"}
		})}, onlyNote},
		{"record: annotation of slices", write{object: fresh(func(r *v1alpha1.ExportedService) {
			r.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "x"}
		})}, onlyNote},
		{"record: service-name of another", write{object: fresh(func(
			r *v1alpha1.ExportedService) {
			r.Labels[mcsv1beta1.LabelServiceName] = "db"
		})}, asSpec},
		{"record: source-namespace of another", write{object: fresh(func(
			r *v1alpha1.ExportedService) {
			r.Labels[broker.LabelSourceNamespace] = "bank"
		})}, asSpec},
		{"record: 512 values in each list of selectors", write{object: fresh(selecting(broker.MaxValues))}, ""},
		{"record: more values", write{object: fresh(selecting(broker.MaxValues + 1))}, "at most 512 values"},
		{"record: exported annotations of 32768 octets", write{object: fresh(annotated("x", broker.MaxAnnotations))}, ""},
		{"record: more octets in no more characters", write{object: fresh(annotated("é", broker.MaxAnnotations))},
			"at most 32768 octets"},
		{"record: finalizer", write{object: fresh(func(
			r *v1alpha1.ExportedService) {
			r.Finalizers = []string{"example.org/never"}
		})}, noOwners},
		{"record: owner", write{object: fresh(func(r *v1alpha1.ExportedService) { r.OwnerReferences = owner })}, noOwners},
		{"record: name, by the CRD", write{object: fresh(func(r *v1alpha1.ExportedService) { r.Name = "web.bank" })},
			"has to be <spec.name>.<spec.namespace>"},
		{"record: reserved exported label, by the CRD", write{object: fresh(func(r *v1alpha1.ExportedService) {
			r.Spec.Labels = []v1alpha1.Label{{Key: "app.kubernetes.io/managed-by", Value: "x"}}
		})}, "the prefix is reserved"},
		{"record: changed label", write{verb: "update", object: current(record(func(r *v1alpha1.ExportedService) {
			r.Labels[mcsv1beta1.LabelSourceCluster] = "west"
		}), v1alpha1.ExportedServices)}, ownCluster},

		// Bad values, in a slice.
		{"slice: source-cluster of another", write{object: slice(label(mcsv1beta1.LabelSourceCluster, "west"))}, ownCluster},
		{"slice: label", write{object: slice(label("tier", "gold"))}, onlyLabels},
		{"slice: for no valid zone", write{object: slice(label(broker.LabelForZone, "zone a"))}, "a valid label must be"},
		{"slice: for too long a zone", write{object: slice(label(broker.LabelForZone, strings.Repeat("z", 64)))},
			"must be no more than 63"},
		{"slice: label that makes it a Service's", write{object: slice(label(discoveryv1.LabelServiceName, "kubernetes"))},
			onlyLabels},
		{"slice: mark of another", write{object: slice(label(discoveryv1.LabelManagedBy,
			"endpointslice-controller.k8s.io"))}, ourMark},
		{"slice: annotation", write{object: slice(func(s *discoveryv1.EndpointSlice) {
			s.Name,
				s.Annotations["a"] = "db.shop.0123456789abcdef", "b"
		})}, onlyNote},
		{"slice: service-name of another", write{object: slice(label(mcsv1beta1.LabelServiceName, "web"))}, sliceName},
		{"slice: no service-name", write{object: slice(func(s *discoveryv1.EndpointSlice) {
			s.Name = "db.shop.0123456789abcdef"
			delete(s.Labels, mcsv1beta1.LabelServiceName)
		})}, sliceName},
		{"slice: source-namespace of another", write{object: slice(label(broker.LabelSourceNamespace, "bank"))}, sliceName},
		{"slice: tail of other digits", write{object: slice(named("db.shop.0123456789abcdeg"))}, sliceName},
		{"slice: zone", write{object: slice(endpoint(func(e *discoveryv1.Endpoint) {
			e.Zone = ptr(strings.Repeat("z",
				63))
		}))}, ""},
		{"slice: long zone", write{object: slice(endpoint(func(e *discoveryv1.Endpoint) {
			e.Zone = ptr(strings.Repeat("z",
				64))
		}))}, unused},
		{"slice: zone of long characters", write{object: slice(endpoint(func(e *discoveryv1.Endpoint) {
			e.Zone = ptr(
				strings.Repeat("\U0001F30D", 63))
		}))}, unused},
		{"slice: node name", write{object: slice(endpoint(func(e *discoveryv1.Endpoint) { e.NodeName = ptr("n1") }))},
			unused},
		{"slice: target", write{object: slice(endpoint(func(e *discoveryv1.Endpoint) {
			e.TargetRef = &corev1.ObjectReference{FieldPath: strings.Repeat("x", 100_000)}
		}))}, unused},
		{"slice: hints", write{object: slice(endpoint(func(e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}}
		}))}, unused},
		{"slice: long time of the last change", write{object: slice(func(s *discoveryv1.EndpointSlice) {
			s.Name, s.Annotations[corev1.EndpointsLastChangeTriggerTime] = "db.shop.0123456789abcdef", strings.Repeat("é", 33)
		})}, "at most 64 octets"},
		{"slice: short tail", write{object: slice(named("db.shop.0123456789abcde"))}, sliceName},
		{"slice: dot in the namespace", write{object: slice(func(s *discoveryv1.EndpointSlice) {
			s.Name, s.Labels[broker.LabelSourceNamespace] = "db.shop.x.0123456789abcdef", "shop.x"
		})}, sliceName},
		{"slice: finalizer", write{object: slice(func(s *discoveryv1.EndpointSlice) {
			s.Name, s.Finalizers = "db.shop.0123456789abcdef", []string{"example.org/never"}
		})}, noOwners},

		// Values without a bound, in a heartbeat and in a merged view.
		{"heartbeat: its holder", heartbeat(func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = ptr(strings.Repeat("x",
				256))
		}), ""},
		{"heartbeat: long holder", heartbeat(func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = ptr(strings.Repeat("x",
				257))
		}), smallLease},
		{"heartbeat: annotation", heartbeat(func(
			l *coordinationv1.Lease) {
			l.Annotations = map[string]string{"a": strings.Repeat("x", 900)}
		}), ""},
		{"heartbeat: long annotation", heartbeat(func(
			l *coordinationv1.Lease) {
			l.Annotations = map[string]string{"a": strings.Repeat("x", 1024)}
		}), smallLease},
		{"heartbeat: many labels", heartbeat(func(l *coordinationv1.Lease) {
			for i := range 100 {
				l.Labels[fmt.Sprintf("example.org/%d", i)] = "x"
			}
		}), smallLease},
		{"merged view: 64 KiB", published("", func(
			v *mcsv1beta1.ServiceImport) {
			v.Annotations = map[string]string{"a": strings.Repeat("x", 65535)}
		}), ""},
		{"merged view: more than 64 KiB", published("", func(v *mcsv1beta1.ServiceImport) {
			v.Annotations, v.Labels = map[string]string{"a": strings.Repeat("x", 65535)}, map[string]string{"a": ""}
		}), smallView},
		{"merged view: 1,000 ports", published("", func(v *mcsv1beta1.ServiceImport) {
			v.Spec.Ports = slices.Repeat([]mcsv1beta1.ServicePort{{Name: "x", Port: 1}}, 1000)
		}), ""},
		{"merged view: more ports", published("", func(v *mcsv1beta1.ServiceImport) {
			v.Spec.Ports = slices.Repeat([]mcsv1beta1.ServicePort{{Name: "x", Port: 1}}, 1001)
		}), fewPorts},
		{"merged view: long name of a port", published("", func(v *mcsv1beta1.ServiceImport) {
			v.Spec.Ports = []mcsv1beta1.ServicePort{{Name: strings.Repeat("x", 64), Port: 1}}
		}), fewPorts},
		{"merged view: long application protocol", published("", func(v *mcsv1beta1.ServiceImport) {
			v.Spec.Ports = []mcsv1beta1.ServicePort{{AppProtocol: ptr(strings.Repeat("x", 318)), Port: 1}}
		}), fewPorts},
		{"merged view: 1,000 clusters", published("status",
			func(v *mcsv1beta1.ServiceImport) { v.Status.Clusters = clusterStatuses(1000) }), ""},
		{"merged view: more clusters", published("status", func(
			v *mcsv1beta1.ServiceImport) {
			v.Status.Clusters = clusterStatuses(1001)
		}), fewClusters},
		{"merged view: long id of a cluster", published("status", func(v *mcsv1beta1.ServiceImport) {
			v.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: strings.Repeat("x", 64)}}
		}), fewClusters},
		{"merged view: condition", published("status", func(v *mcsv1beta1.ServiceImport) {
			v.Status.Conditions = []metav1.Condition{{Type: "A", Status: "True", Reason: "B", Message: "x",
				LastTransitionTime: metav1.Now()}}
		}), fewClusters},

		// The lists of fields that managers own: of what a controller applies, and what someone else makes of them.
		{"fields of the largest record", write{verb: "apply", object: fresh(largest)}, ""},
		{"fields of a slice", write{verb: "update", object: current(slice(func(
			s *discoveryv1.EndpointSlice) {
			s.ManagedFields = owned(s, 7000)
		}), slicesGVR)}, ""},
		{"too many of a slice", write{verb: "update", object: current(slice(func(s *discoveryv1.EndpointSlice) {
			s.ManagedFields = owned(s, 8000)
		}), slicesGVR)}, longFields},
		{"too many of a new slice", write{object: slice(func(s *discoveryv1.EndpointSlice) {
			s.Name, s.ManagedFields = "db.shop.0123456789abcdef", owned(s, 8000)
		})}, longFields},
		{"fields of a heartbeat", heartbeat(func(l *coordinationv1.Lease) { l.ManagedFields = owned(l, 3000, 3000) }), ""},
		{"too many of a heartbeat", heartbeat(func(l *coordinationv1.Lease) { l.ManagedFields = owned(l, 4000, 4000) }),
			longFields},
		{"of many managers", heartbeat(func(l *coordinationv1.Lease) { l.ManagedFields = owned(l, make([]int, 20)...) }),
			longFields},
		{"below others", heartbeat(func(l *coordinationv1.Lease) {
			l.ManagedFields = owned(l, 1)
			l.ManagedFields[0].FieldsV1.SetRawBytes([]byte(strings.Repeat(`{"f:x":`, 6) + "{}" + strings.Repeat("}", 6)))
		}), longFields},
		{"side by side", heartbeat(func(l *coordinationv1.Lease) {
			l.ManagedFields = owned(l, 1)
			text, _ := json.Marshal(map[string]any{"f:spec": manyFields(50_000)})
			l.ManagedFields[0].FieldsV1.SetRawBytes(text)
		}), longFields},
		{"fields of a record", write{verb: "update", object: current(record(func(r *v1alpha1.ExportedService) {
			r.ManagedFields = owned(r, 60_000)
		}), v1alpha1.ExportedServices)}, ""},
		{"too many of a record", write{verb: "update", object: current(record(func(r *v1alpha1.ExportedService) {
			r.ManagedFields = owned(r, 1_000_000)
		}), v1alpha1.ExportedServices)}, longFields},
		{"fields of an inventory", write{object: inventory("3e",
			func(i *v1alpha1.Inventory) { i.ManagedFields = owned(i, 60_000) })}, ""},
		{"too many of an inventory", write{object: inventory("3e",
			func(i *v1alpha1.Inventory) { i.ManagedFields = owned(i, 1_000_000) })}, longFields},
		{"fields of a merged view", applied(published("status",
			func(v *mcsv1beta1.ServiceImport) { v.Status.Clusters = clusterStatuses(1000) })), ""},
		{"too many of a merged view", published("", func(v *mcsv1beta1.ServiceImport) {
			v.ManagedFields = owned(v,
				262_144)
		}), longFields},
	} {
		if err := rejected(tt.write.do(t.Context(), client), tt.refused); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	testManagers(t, client)
	testTokens(t, c, client)
	testOthers(t, c)
}

// testManagers applies the largest status of a Member, as ever more managers. The API server ignores managed fields in
// a write of a status, but gives each manager an entry.
func testManagers(t *testing.T, client dynamic.Interface) {
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Member"))
	m.SetName("east")
	var properties []any
	for i := range 32 {
		properties = append(properties, map[string]any{"name": fmt.Sprintf("%02d.%s", i, strings.Repeat("x.", 120)+"x"),
			"value": "v"})
	}
	m.Object["status"] = map[string]any{"properties": properties}
	for i := range 20 {
		_, err := client.Resource(v1alpha1.Members).ApplyStatus(t.Context(), "east", m,
			metav1.ApplyOptions{FieldManager: fmt.Sprint("m", i), Force: true})
		if err == nil {
			continue
		}
		if err := rejected(err, longFields); err != nil || i < 3 {
			t.Errorf("status of its Member, as manager %d: %v, want three managers taken, and then a bound", i, err)
		}
		return
	}
	t.Error("status of its Member: taken from 20 managers, want a bound")
}

// largest gives a record all labels, annotations and ports that it can have, with the longest names.
func largest(r *v1alpha1.ExportedService) {
	r.Spec.Labels, r.Spec.Annotations, r.Spec.Ports = nil, nil, nil
	domain := strings.Repeat(strings.Repeat("x", 62)+".", 4)
	for i := range 64 {
		key := fmt.Sprintf("%s%d/%s%02d", domain, i%10, strings.Repeat("y", 61), i)
		r.Spec.Labels = append(r.Spec.Labels, v1alpha1.Label{Key: key, Value: "v"})
		r.Spec.Annotations = append(r.Spec.Annotations, v1alpha1.Annotation{Key: key, Value: "v"})
	}
	for i := range broker.MaxPorts {
		r.Spec.Ports = append(r.Spec.Ports, v1alpha1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP,
			Port: int32(20_000 + i)})
	}
}

// selecting gives a record so many values in each of its lists of selectors.
func selecting(values int) func(*v1alpha1.ExportedService) {
	return func(r *v1alpha1.ExportedService) {
		for some := range slices.Chunk(strings.Fields(strings.Repeat("v ", values)), broker.MaxSelectorValues) {
			e := v1alpha1.PropertyExpression{Key: "a", Operator: v1alpha1.In, Values: some}
			s := &r.Spec.ClusterSelectors
			if len(*s) == 0 || len((*s)[len(*s)-1].MatchExpressions) == broker.MaxRequirements {
				*s = append(*s, v1alpha1.ClusterSelector{})
			}
			last := &(*s)[len(*s)-1]
			last.MatchExpressions = append(last.MatchExpressions, e)
		}
		r.Spec.ToClusters = r.Spec.ClusterSelectors
	}
}

// annotated gives a record exported annotations of so many characters, keys and values together.
func annotated(character string, characters int) func(*v1alpha1.ExportedService) {
	return func(r *v1alpha1.ExportedService) {
		r.Spec.Annotations = nil
		for i := 0; characters > 0; i++ {
			key := fmt.Sprintf("k%02d", i)
			value := min(broker.MaxValue, characters-len(key))
			r.Spec.Annotations = append(r.Spec.Annotations, v1alpha1.Annotation{Key: key,
				Value: strings.Repeat(character, value)})
			characters -= len(key) + value
		}
	}
}

// owned returns managed fields of an object: for each of sizes a manager that owns one field with a name of as many
// octets.
func owned(o runtime.Object, sizes ...int) (all []metav1.ManagedFieldsEntry) {
	for i, size := range sizes {
		all = append(all, metav1.ManagedFieldsEntry{
			Manager: fmt.Sprint("m", i), Operation: metav1.ManagedFieldsOperationApply,
			APIVersion: o.GetObjectKind().GroupVersionKind().GroupVersion().String(),
			Time:       ptr(metav1.Now()), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", size) + `":{}}`),
		})
	}
	return all
}

// manyFields returns n fields.
func manyFields(n int) map[string]any {
	all := make(map[string]any, n)
	for i := range n {
		all[fmt.Sprint("f:", i)] = map[string]any{}
	}
	return all
}

// applied returns a write as server-side apply.
func applied(w write) write {
	w.verb = "apply"
	return w
}

// clusterStatuses returns that n clusters export a service.
func clusterStatuses(n int) (all []mcsv1beta1.ClusterStatus) {
	for i := range n {
		all = append(all, mcsv1beta1.ClusterStatus{Cluster: fmt.Sprint("c", i)})
	}
	return all
}

// testOthers shows that the policy is for members alone.
func testOthers(t *testing.T, c *controlplane.ControlPlane) {
	for _, user := range []string{
		"system:serviceaccount:default:member", "system:serviceaccount:" + namespaceOf("east") + ":other", "admin",
		"system:serviceaccount:clusterset-0123456789abcde:member",
	} {
		kubeconfig, err := c.UserKubeconfig(user, "system:masters")
		client, err := dynamic.NewForConfig(as(t, kubeconfig, err))
		if err != nil {
			t.Fatal(err)
		}
		if err := rejected(write{object: configMap("kube-system")}.do(t.Context(), client), ""); err != nil {
			t.Errorf("as %s: %v", user, err)
		}
	}
}

const (
	notDeclared = "addresses have to be in the networks of Member "
	family      = "the address type has to be IPv4 or IPv6"
	special     = "addresses must not be loopback"
	tooMany     = "at most 1000 endpoints and 100 ports"
	tooLong     = "at most 1000 addresses"
	badVIP      = "has to be in a VIP CIDR of its Member"
)

// TestBrokerAddresses has a Member with networks of both families, one with as many as there can be, one without any,
// and a namespace without its Member.
func TestBrokerAddresses(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{CRDs: allCRDs()})
	applyYAML(t, c, deploy.Broker)
	join(t, c, "east", v1alpha1.MemberSpec{
		PodCIDRs:     []string{"10.1.0.0/16", "fd00:1::/64", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "fe80::/10"},
		ServiceCIDRs: []string{"10.96.0.0/16"}, LoadBalancerCIDRs: []string{"192.0.2.0/24"},
		VIPCIDRs: []string{"243.0.0.0/16", "fd00:243::/112"},
	})
	join(t, c, "none", v1alpha1.MemberSpec{})
	wide := v1alpha1.MemberSpec{}
	for i := range broker.MaxCIDRs {
		wide.PodCIDRs = append(wide.PodCIDRs, fmt.Sprintf("10.%d.0.0/24", i))
		wide.ServiceCIDRs = append(wide.ServiceCIDRs, fmt.Sprintf("10.%d.0.0/24", 100+i))
		wide.LoadBalancerCIDRs = append(wide.LoadBalancerCIDRs, fmt.Sprintf("172.%d.0.0/16", 100+i))
	}
	join(t, c, "wide4", wide)
	for i := range broker.MaxCIDRs {
		wide.PodCIDRs[i], wide.ServiceCIDRs[i] = fmt.Sprintf("fd00:1234:5678:%x::/64", 0x1000+i),
			fmt.Sprintf("fd00:1234:5678:%x::/64", 0x2000+i)
		wide.LoadBalancerCIDRs[i] = fmt.Sprintf("fd00:1234:5678:%x::/64", 0x3000+i)
	}
	join(t, c, "wide6", wide)
	join(t, c, "gone", v1alpha1.MemberSpec{})
	gone := &v1alpha1.Member{TypeMeta: kind(v1alpha1.GroupVersion, "Member"), ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	if err := c.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, id string, s *discoveryv1.EndpointSlice) error {
		s.Namespace = namespaceOf(id)
		return write{object: s}.do(ctx, c.Dynamic())
	}
	for _, tt := range []struct{ id, address, refused string }{
		{"east", "10.2.0.1", notDeclared}, {"east", "10.1.0.1", ""}, {"none", "10.1.0.1", notDeclared},
		{"gone", "10.1.0.1", "no params found"},
		{"wide4", "10.200.0.1", notDeclared}, {"wide6", "10.200.0.1", notDeclared},
	} {
		until.OK(t, "policy for "+tt.id, func(ctx context.Context) error {
			return rejected(create(ctx, tt.id, addressSlice("IPv4", tt.address)), tt.refused)
		})
	}

	for _, tt := range []struct {
		name    string
		id      string
		slice   *discoveryv1.EndpointSlice
		refused string
	}{
		{"none", "east", addressSlice("IPv4"), ""},
		{"pod", "east", addressSlice("IPv4", "10.1.255.255"), ""},
		{"service", "east", addressSlice("IPv4", "10.96.0.5"), ""},
		{"load balancer", "east", addressSlice("IPv4", "192.0.2.7"), ""},
		{"load balancer of someone else", "none", addressSlice("IPv4", "192.0.2.7"), notDeclared + "none"},
		{"IPv6 pod", "east", addressSlice("IPv6", "fd00:1::7"), ""},
		{"1,000 endpoints, the last network of 192", "wide4", addressSlice("IPv4", many("172.163.%d.%d", 1000)...), ""},
		{"1,000 endpoints, the last IPv6 network of 192", "wide6",
			addressSlice("IPv6", many("fd00:1234:5678:303f:1234:1234:12%02x:12%02x", 1000)...), ""},
		{"100 ports", "east", portSlice(100), ""},
		{"someone else's pod", "east", addressSlice("IPv4", "10.1.0.1", "10.2.0.1"), notDeclared + "east"},
		{"IPv6 of someone else", "east", addressSlice("IPv6", "fd00:2::7"), notDeclared + "east"},
		{"the wrong family", "none", addressSlice("IPv6", "fd00:1::7"), notDeclared + "none"},
		// The API server itself refuses most of these, in words of its own; older ones refuse fewer.
		{"broadcast", "east", addressSlice("IPv4", "255.255.255.255"), special},
		{"IPv4-mapped", "east", addressSlice("IPv6", "::ffff:10.1.0.1"), "IPv4-mapped"},
		{"loopback", "east", addressSlice("IPv4", "127.0.0.1"), "loopback"},
		{"link-local", "east", addressSlice("IPv4", "169.254.169.254"), "link-local"},
		{"IPv6 link-local", "east", addressSlice("IPv6", "fe80::1"), "link-local"},
		{"multicast", "east", addressSlice("IPv4", "239.0.0.1"), "multicast"},
		{"host name", "east", addressSlice("FQDN", "db.example.org"), family},
		{"1,001 endpoints", "wide4", addressSlice("IPv4", many("10.163.%d.%d", 1001)...), "1000"},
		{"101 ports", "east", portSlice(101), tooMany},
		{"1,001 addresses", "east", longSlice(1001), tooLong},
		{"1,000 addresses of few endpoints", "east", longSlice(1000), ""},
		{"no Member", "gone", addressSlice("IPv4"), "no params found"},
	} {
		if err := rejected(create(t.Context(), tt.id, tt.slice), tt.refused); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// addressSlice has one endpoint for each address.
func addressSlice(family discoveryv1.AddressType, addresses ...string) *discoveryv1.EndpointSlice {
	_, s := exported("east", export.Options{})
	s.AddressType, s.Endpoints = family, []discoveryv1.Endpoint{}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// many returns n addresses of a format with two numbers from 1 to 250 in it.
func many(format string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, 1+i/250, 1+i%250))
	}
	return all
}

func portSlice(n int) *discoveryv1.EndpointSlice {
	s := addressSlice("IPv4", "10.1.0.1")
	s.Ports = nil
	for i := range n {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr(fmt.Sprintf("p%d", i)), Port: ptr(int32(1000 + i)),
			Protocol: ptr(corev1.ProtocolTCP)})
	}
	return s
}

// longSlice has n addresses, 91 of them at each endpoint.
func longSlice(n int) *discoveryv1.EndpointSlice {
	s := addressSlice("IPv4")
	all := many("10.1.%d.%d", n)
	for len(all) > 0 {
		size := min(91, len(all))
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: all[:size]})
		all = all[size:]
	}
	return s
}
