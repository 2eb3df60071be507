package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// The rights of each account, by name of the resource and in all namespaces. It may do nothing else.
const (
	dnsRights = `
clusterproperties.about.k8s.io: list watch
endpointslices.discovery.k8s.io: list watch
serviceimports.multicluster.x-k8s.io: list watch
`
	controllerRights = `
clusterproperties.about.k8s.io: get list watch create
endpointslices.discovery.k8s.io: get list watch create patch delete
events.events.k8s.io: create
namespaces: get list watch
servicecidrs.networking.k8s.io: get list watch
serviceexports.multicluster.x-k8s.io: get list watch create patch delete
serviceexports/status.multicluster.x-k8s.io: patch
serviceimports.multicluster.x-k8s.io: get list watch create patch delete
serviceimports/status.multicluster.x-k8s.io: patch
services: get list watch create patch delete
services/status: patch
`
	// Beside those, in its own namespace.
	controllerOwnRights = `
leases.coordination.k8s.io: create
`
	memberRights = `
endpointslices.discovery.k8s.io: get list watch
exportedservices.broker.clusterset-dns.io: get list watch
inventories.broker.clusterset-dns.io: get list watch
leases.coordination.k8s.io: get list watch
members.broker.clusterset-dns.io: get list watch
namespaces: get list watch
`
)

// Rules of all manifests for objects with a name, and for users with the roles of Kubernetes.
const namedRights = `
ClusterRole clusterset-controller: [get] [customresourcedefinitions] [] [serviceimports.multicluster.x-k8s.io serviceexports.multicluster.x-k8s.io clusterproperties.about.k8s.io]
ClusterRole clusterset-dns: [get] [namespaces] [] [kube-system]
ClusterRole clusterset-edit to admin edit: [create update patch delete deletecollection] [serviceexports]
ClusterRole clusterset-member: [get] [customresourcedefinitions] [] [members.broker.clusterset-dns.io exportedservices.broker.clusterset-dns.io inventories.broker.clusterset-dns.io]
ClusterRole clusterset-member: [get] [validatingadmissionpolicies validatingadmissionpolicybindings] [] [clusterset-broker-writes clusterset-broker-addresses]
ClusterRole clusterset-view to admin edit view: [get list watch] [serviceexports serviceimports]
ClusterRole clusterset: [get] [customresourcedefinitions] [] [serviceimports.multicluster.x-k8s.io serviceexports.multicluster.x-k8s.io clusterproperties.about.k8s.io]
Role clusterset-controller: [get patch] [secrets] [] [clusterset-broker]
Role clusterset-controller: [get update] [leases] [] [clusterset-controller clusterset-heartbeat clusterset-members]
Role clusterset: [get patch] [secrets] [] [clusterset-broker]
Role clusterset: [get update] [leases] [] [clusterset-controller clusterset-heartbeat clusterset-members]
`

// TestRights asks for every verb on every resource that the API server has.
func TestRights(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{CRDs: allCRDs()})
	for _, text := range [][]byte{deploy.Namespace, deploy.DNSRBAC, deploy.ControllerRBAC, deploy.AllInOneRBAC,
		deploy.Broker} {
		applyYAML(t, c, text)
	}
	ns := broker.NamespaceName("clusterset", "east")
	apply(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "clusterset-read-" + ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "clusterset-member"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: broker.ServiceAccount}},
	})
	client := clientset(t, c.Config())
	dns, controller := account(client, system, "clusterset-dns"), account(client, system, "clusterset-controller")
	both, member := account(client, system, "clusterset"), account(client, ns, broker.ServiceAccount)
	every := resources(t, client)
	// the authorizer learns of rights a moment after they are written
	for _, a := range []asker{dns, controller, both, member} {
		until.True(t, a.user, func() bool { return a.verbs(t, "endpointslices.discovery.k8s.io", ns, "") != "" })
	}
	nobody := account(client, system, "nobody").rights(t, every, "")
	for _, tt := range []struct {
		name            string
		account         asker
		want, wantInOwn string
	}{
		{"DNS server", dns, dnsRights, ""},
		{"controller", controller, controllerRights, controllerOwnRights},
		{"both in one", both, controllerRights, controllerOwnRights},
		{"member on the broker", member, memberRights, ""},
	} {
		everywhere := tt.account.rights(t, every, "")
		got := strings.Join(slices.DeleteFunc(slices.Clone(everywhere),
			func(s string) bool { return slices.Contains(nobody, s) }), "\n")
		if want := strings.TrimSpace(tt.want); got != want {
			t.Errorf("%s may do\n%s\nwant\n%s", tt.name, got, want)
		}
		own := tt.account.rights(t, every, system)
		got = strings.Join(slices.DeleteFunc(own, func(s string) bool { return slices.Contains(everywhere, s) }), "\n")
		if want := strings.TrimSpace(tt.wantInOwn); got != want {
			t.Errorf("%s may do in %s\n%s\nwant\n%s", tt.name, system, got, want)
		}
	}
	testNamed(t, dns, controller, both)
	for _, a := range []asker{dns, controller, both, member} {
		testPowers(t, a)
	}
	for _, name := range []string{"clusterset-controller", "clusterset"} {
		testWrites(t, c, name)
		testExportWrites(t, c, name)
	}
	for mode, of := range map[deploy.Mode]asker{deploy.OnlyController: controller, deploy.AllInOne: both} {
		testNamespaceWrites(t, c, mode, of)
	}
}

// testNamespaceWrites grants the account of a controller what "import_namespaces create" needs:
// docs/spec/controller.md 5.9.
func testNamespaceWrites(t *testing.T, c *controlplane.ControlPlane, mode deploy.Mode, of asker) {
	text, err := deploy.Rights(deploy.Options{Mode: mode, Values: map[string]any{"createNamespaces": true}})
	if err != nil {
		t.Fatal(err)
	}
	applyYAML(t, c, text)
	account := of.user[strings.LastIndexByte(of.user, ':')+1:]
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), system, account)
	client, err := dynamic.NewForConfig(as(t, kubeconfig, err))
	if err != nil {
		t.Fatal(err)
	}
	namespace := func(name string, change func(*corev1.Namespace)) write {
		ns := &corev1.Namespace{TypeMeta: kind(corev1.SchemeGroupVersion, "Namespace"), ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
			Annotations: map[string]string{broker.AnnotationCreatedFor: "west"},
		}}
		if change != nil {
			change(ns)
		}
		return write{object: ns}
	}
	until.OK(t, account+" creates namespaces", func(ctx context.Context) error {
		return rejected(namespace("a", nil).do(ctx, client), "")
	})
	if got := of.verbs(t, "namespaces", "", ""); got != "get list watch create" {
		t.Errorf("%s may do %q with namespaces, want to create and read them", account, got)
	}
	const empty, systems, mark = "creates only Namespaces with its own label and annotation",
		"writes nothing in the namespaces kube-*", "writes only objects with the label"
	for _, tt := range []struct {
		name, refused string
		write         write
	}{
		{"no mark", mark, namespace("a", func(ns *corev1.Namespace) { ns.Labels = nil })},
		{"another label", empty, namespace("a", func(
			ns *corev1.Namespace) {
			ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
		})},
		{"another annotation", empty, namespace("a", func(ns *corev1.Namespace) { ns.Annotations["team"] = "a" })},
		{"a finalizer", empty, namespace("a", func(ns *corev1.Namespace) { ns.Finalizers = []string{"example.org/a"} })},
		{"an owner", empty, namespace("a", func(ns *corev1.Namespace) {
			ns.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "b", UID: "c"}}
		})},
		{"kube-x", systems, namespace("kube-x", nil)},
		{"openshift-x", systems, namespace("openshift-x", nil)},
		{"clusterset-x", empty, namespace("clusterset-x", nil)},
		{"a member's", empty, namespace(broker.NamespaceName("hub", "west"), nil)},
	} {
		if err := rejected(tt.write.do(t.Context(), client), tt.refused); err != nil {
			t.Errorf("%s: %s: %v", account, tt.name, err)
		}
	}
}

// testWrites lets the account of a controller write what RBAC grants and the policy beside it denies:
// docs/spec/controller.md 7.6.
func testWrites(t *testing.T, c *controlplane.ControlPlane, account string) {
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), system, account)
	client, err := dynamic.NewForConfig(as(t, kubeconfig, err))
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{broker.LabelManagedBy: broker.ManagedBy}
	service := func(namespace, name string, labels map[string]string, change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{
			TypeMeta:   kind(corev1.SchemeGroupVersion, "Service"),
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		if change != nil {
			change(&s.Spec)
		}
		return s
	}
	slice := func(name, manager, service string) *discoveryv1.EndpointSlice {
		labels := map[string]string{discoveryv1.LabelManagedBy: manager}
		if service != "" {
			labels[discoveryv1.LabelServiceName] = service
		}
		return &discoveryv1.EndpointSlice{
			TypeMeta:    kind(discoveryv1.SchemeGroupVersion, "EndpointSlice"),
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{},
		}
	}
	imp := func(name string, labels map[string]string) *mcsv1beta1.ServiceImport {
		return &mcsv1beta1.ServiceImport{
			TypeMeta:   kind(mcsv1beta1.GroupVersion, "ServiceImport"),
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels},
			Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{},
				IPFamilies: []corev1.IPFamily{"IPv4"}},
		}
	}
	balancer := func(namespace, name string) *corev1.Service {
		return service(namespace, name, ours, func(s *corev1.ServiceSpec) {
			s.Type, s.LoadBalancerClass, s.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, ptr(broker.VIPClass),
				ptr(false)
		})
	}
	withIngress := func(s *corev1.Service, ips ...string) *corev1.Service {
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: ip, IPMode: ptr(corev1.LoadBalancerIPModeVIP)})
		}
		return s
	}
	cloud := func(name string, labels map[string]string) *corev1.Service {
		return service("shop", name, labels, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	}
	theirs := []runtime.Object{
		service("shop", "bank", nil, nil), slice("bank-x", "endpointslice-controller.k8s.io", "bank"), imp("bank", nil),
		service("kube-system", "derived-old", ours, nil), balancer("shop", "derived-vip"), cloud("cloud", nil),
		cloud("derived-cloud", ours),
	}
	apply(t, c, &corev1.Namespace{TypeMeta: kind(corev1.SchemeGroupVersion, "Namespace"),
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{broker.AnnotationExportSelector: ""}}},
		&corev1.Namespace{TypeMeta: kind(corev1.SchemeGroupVersion, "Namespace"),
			ObjectMeta: metav1.ObjectMeta{Name: "openshift-dns",
				Annotations: map[string]string{broker.AnnotationAllowedSources: ""}}},
		&corev1.Namespace{TypeMeta: kind(corev1.SchemeGroupVersion, "Namespace"),
			ObjectMeta: metav1.ObjectMeta{Name: "openshift-shop",
				Annotations: map[string]string{broker.AnnotationAllowedSources: "west"}}})
	apply(t, c, theirs...)
	const (
		mark     = "writes only objects with the label"
		forms    = "writes only Services derived-* of type ClusterIP"
		systems  = "writes nothing in the namespaces kube-*"
		ofOthers = "writes only slices of Services derived-*"
		public   = "writes only addresses of private or reserved networks"
	)
	ready := write{object: service("shop", "derived-0", nil, nil)}
	until.OK(t, "policy for "+account, func(ctx context.Context) error { return rejected(ready.do(ctx, client), mark) })
	for _, tt := range []struct {
		name    string
		write   write
		refused string
	}{
		{"derived Service", write{object: service("shop", "derived-0", ours, nil)}, ""},
		{"imported slice", write{object: slice("imported-0", broker.ManagedBy, "derived-0")}, ""},
		{"imported headless slice", write{object: slice("imported-0", broker.ManagedBy, "")}, ""},
		{"import", write{object: imp("db", ours)}, ""},
		{"Service without the mark", write{object: service("shop", "derived-0", nil, nil)}, mark},
		{"delete a Service of others", write{verb: "delete", object: theirs[0]}, mark},
		{"delete a slice of others", write{verb: "delete", object: theirs[1]}, mark},
		{"delete an import of others", write{verb: "delete", object: theirs[2]}, mark},
		{"adopt a slice of others", write{verb: "patch", object: slice("bank-x", broker.ManagedBy, "derived-0")}, mark},
		{"status of an import of others", write{verb: "patch", object: imp("bank", ours), subresource: "status"}, mark},
		{"Service of another name", write{object: service("shop", "web", ours, nil)}, forms},
		{"selector", write{object: service("shop", "derived-0", ours,
			func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"a": "b"} })}, forms},
		{"external IP", write{object: service("shop", "derived-0", ours,
			func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"10.1.1.1"} })}, forms},
		{"load balancer", write{object: service("shop", "derived-0", ours,
			func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })}, forms},
		{"load balancer of our class with node ports", write{object: service("shop", "derived-0", ours,
			func(s *corev1.ServiceSpec) {
				s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, ptr(broker.VIPClass)
			})}, forms},
		{"load balancer of our class", write{object: balancer("shop", "derived-0")}, ""},
		{"clusterset IPs", write{verb: "patch", object: withIngress(balancer("shop", "derived-vip"), "243.0.0.1",
			"fd17:87d8:f436::1"), subresource: "status"}, ""},
		{"an address of the internet", write{verb: "patch", object: withIngress(balancer("shop", "derived-vip"), "8.8.8.8"),
			subresource: "status"}, public},
		{"clusterset IP of a Service of others", write{verb: "patch",
			object: withIngress(balancer("shop", "cloud"), "243.0.0.1"), subresource: "status"}, mark},
		{"clusterset IP of another class", write{verb: "patch",
			object: withIngress(balancer("shop", "derived-cloud"), "243.0.0.1"), subresource: "status"}, forms},
		{"slice of a Service of others", write{object: slice("imported-0", broker.ManagedBy, "bank")}, ofOthers},
		{"kube-system", write{object: service("kube-system", "derived-0", ours, nil)}, systems},
		{"openshift-dns", write{object: service("openshift-dns", "derived-0", ours, nil)}, systems},
		{"openshift-shop, which lists clusters", write{object: service("openshift-shop", "derived-0", ours, nil)}, ""},
		{"delete in kube-system", write{verb: "delete", object: theirs[3]}, ""},
	} {
		if err := rejected(tt.write.do(t.Context(), client), tt.refused); err != nil {
			t.Errorf("%s: %s: %v", account, tt.name, err)
		}
	}
}

// testExportWrites lets the account of a controller change a ServiceExport, which belongs to a user:
// docs/spec/controller.md 7.6.
func testExportWrites(t *testing.T, c *controlplane.ControlPlane, account string) {
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), system, account)
	client, err := dynamic.NewForConfig(as(t, kubeconfig, err))
	if err != nil {
		t.Fatal(err)
	}
	users := mcsv1beta1.ServiceExport{
		TypeMeta: kind(mcsv1beta1.GroupVersion, "ServiceExport"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "bank", Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{broker.AnnotationToClusters: "east"},
		},
		Spec: mcsv1beta1.ServiceExportSpec{ExportedLabels: map[string]string{"tier": "gold"}},
	}
	apply(t, c, users.DeepCopy())
	patch := func(change func(*mcsv1beta1.ServiceExport)) write {
		exp := users.DeepCopy()
		change(exp)
		return write{verb: "patch", object: exp}
	}
	const others = "writes only the annotation clusterset-dns.io/exported-to"
	for _, tt := range []struct {
		name    string
		change  func(*mcsv1beta1.ServiceExport)
		refused string
	}{
		{"its annotation", func(e *mcsv1beta1.ServiceExport) { e.Annotations[broker.AnnotationExportedTo] = "east" }, ""},
		{"another annotation", func(e *mcsv1beta1.ServiceExport) { e.Annotations["team"] = "a" }, others},
		{"an annotation of the user", func(
			e *mcsv1beta1.ServiceExport) {
			e.Annotations[broker.AnnotationToClusters] = "west"
		}, others},
		{"a label", func(e *mcsv1beta1.ServiceExport) { e.Labels["team"] = "b" }, others},
		{"the spec", func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels["tier"] = "silver" }, others},
		{"a finalizer", func(e *mcsv1beta1.ServiceExport) { e.Finalizers = []string{"example.org/a"} }, others},
		{"an owner", func(e *mcsv1beta1.ServiceExport) {
			e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "bank", UID: "a"}}
		}, others},
	} {
		until.OK(t, account+": "+tt.name, func(ctx context.Context) error { // the policy counts a moment after it was written
			return rejected(patch(tt.change).do(ctx, client), tt.refused)
		})
	}
	ruled := func(change func(*mcsv1beta1.ServiceExport)) *mcsv1beta1.ServiceExport {
		exp := &mcsv1beta1.ServiceExport{TypeMeta: users.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
			Name: "ruled", Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy}}}
		change(exp)
		return exp
	}
	ended := ruled(func(e *mcsv1beta1.ServiceExport) { e.Name = "ended" })
	apply(t, c, ended.DeepCopy())
	for _, tt := range []struct {
		name    string
		write   write
		refused string
	}{
		{"one without our label", write{verb: "create", object: ruled(func(e *mcsv1beta1.ServiceExport) { e.Labels = nil })}, others},
		{"one with a spec", write{verb: "create", object: ruled(func(e *mcsv1beta1.ServiceExport) { e.Spec = users.Spec })}, others},
		{"one with another label", write{verb: "create", object: ruled(func(e *mcsv1beta1.ServiceExport) { e.Labels["x"] = "y" })}, others},
		{"one in a namespace without a rule", write{verb: "create", object: ruled(func(e *mcsv1beta1.ServiceExport) {
			e.Namespace = "openshift-shop"
		})}, others},
		{"one of a rule", write{verb: "create", object: ruled(func(*mcsv1beta1.ServiceExport) {})}, ""},
		{"the end of one", write{verb: "delete", object: ended}, ""},
		{"the end of a user's", write{verb: "delete", object: users.DeepCopy()}, others},
	} {
		if err := rejected(tt.write.do(t.Context(), client), tt.refused); err != nil {
			t.Errorf("%s: %s: %v", account, tt.name, err)
		}
	}
	status := patch(func(e *mcsv1beta1.ServiceExport) { e.Status.Conditions = []metav1.Condition{} })
	status.subresource = "status"
	if err := rejected(status.do(t.Context(), client), ""); err != nil {
		t.Errorf("%s: the status: %v", account, err)
	}
}

// testNamed asks about rights that are bound to a name, and similar ones.
func testNamed(t *testing.T, dns, controller, both asker) {
	const leases, secrets, crds = "leases.coordination.k8s.io", "secrets", "customresourcedefinitions.apiextensions.k8s.io"
	for _, tt := range []struct {
		resource, namespace, name, want string
	}{
		{leases, system, "clusterset-controller", "get create update"},
		{leases, system, wellknown.HeartbeatLease, "get create update"},
		{leases, system, wellknown.MembersLease, "get create update"},
		{leases, system, "other", "create"},
		{leases, "kube-system", "clusterset-controller", ""},
		{secrets, system, broker.SecretName, "get patch"},
		{secrets, system, "other", ""},
		{secrets, "kube-system", broker.SecretName, ""},
		{crds, "", "serviceimports.multicluster.x-k8s.io", "get"},
		{crds, "", "serviceexports.multicluster.x-k8s.io", "get"},
		{crds, "", "clusterproperties.about.k8s.io", "get"},
		{crds, "", "exportedservices.broker.clusterset-dns.io", ""},
		{"serviceaccounts/token", system, "clusterset-controller", ""},
		{"endpointslices/restricted.discovery.k8s.io", "shop", "", "create"}, // of OpenShift
		{"endpoints/restricted", "shop", "", ""},
	} {
		for _, a := range []asker{controller, both} {
			if got := a.verbs(t, tt.resource, tt.namespace, tt.name); got != tt.want {
				t.Errorf("%s may do %q with %s %s/%s, want %q", a.user, got, tt.resource, tt.namespace, tt.name, tt.want)
			}
		}
		if got := dns.verbs(t, tt.resource, tt.namespace, tt.name); got != "" {
			t.Errorf("%s may do %q with %s %s/%s, want nothing", dns.user, got, tt.resource, tt.namespace, tt.name)
		}
	}
	for name, want := range map[string]string{"kube-system": "get", "default": ""} {
		if got := dns.verbs(t, "namespaces", "", name); got != want {
			t.Errorf("the DNS server may do %q with namespace %s, want %q", got, name, want)
		}
	}
}

// TestNamedRights lists the rules for objects with a name, and those that Kubernetes adds to its own roles: TestRights
// asks about each resource without a name, about names that it knows, and about accounts of ours.
func TestNamedRights(t *testing.T) {
	var got []string
	for _, text := range [][]byte{deploy.DNSRBAC, deploy.ControllerRBAC, deploy.AllInOneRBAC, deploy.Broker} {
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var role rbacv1.ClusterRole
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			if role.Kind != "Role" && role.Kind != "ClusterRole" {
				continue
			}
			var to string
			for _, label := range slices.Sorted(maps.Keys(role.Labels)) {
				if kubernetes, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok {
					to += " " + kubernetes
				}
			}
			for _, r := range role.Rules {
				if to != "" {
					got = append(got, fmt.Sprint(role.Kind, " ", role.Name, " to", to, ": ", r.Verbs, " ", r.Resources))
				}
				if len(r.ResourceNames) > 0 || len(r.NonResourceURLs) > 0 {
					got = append(got, fmt.Sprint(role.Kind, " ", role.Name, ": ", r.Verbs, " ", r.Resources, r.NonResourceURLs, " ",
						r.ResourceNames))
				}
			}
		}
	}
	slices.Sort(got)
	if text := strings.Join(slices.Compact(got), "\n"); text != strings.TrimSpace(namedRights) {
		t.Errorf("rules for objects with a name:\n%s\nwant\n%s", text, namedRights)
	}
}

// testPowers asks about rights that give others: with them RBAC limits nothing.
func testPowers(t *testing.T, a asker) {
	t.Helper()
	for _, power := range []string{
		"bind roles.rbac.authorization.k8s.io", "bind clusterroles.rbac.authorization.k8s.io",
		"escalate roles.rbac.authorization.k8s.io", "escalate clusterroles.rbac.authorization.k8s.io",
		"impersonate users", "impersonate groups", "impersonate serviceaccounts",
		"impersonate userextras.authentication.k8s.io",
		"approve signers.certificates.k8s.io", "sign signers.certificates.k8s.io", "attest signers.certificates.k8s.io",
		"* *.*",
	} {
		verb, resource, _ := strings.Cut(power, " ")
		for _, namespace := range []string{"", system} {
			if a.may(t, verb, resource, namespace, "") {
				t.Errorf("%s may %s in namespace %q, want it denied", a.user, power, namespace)
			}
		}
	}
	for _, path := range []string{"/metrics", "/logs", "/debug/pprof", "/configz", "/*"} {
		if a.review(
			t,
			authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get",
				Path: path}}) {
			t.Errorf("%s may get %s, want it denied", a.user, path)
		}
	}
}

// An asker asks the API server what one service account may do.
type asker struct {
	client          kubernetes.Interface
	namespace, user string
}

func account(client kubernetes.Interface, namespace, name string) asker {
	return asker{client, namespace, "system:serviceaccount:" + namespace + ":" + name}
}

// may asks about one request. A resource is written "pods/log" or "leases.coordination.k8s.io".
func (a asker) may(t *testing.T, verb, resource, namespace, name string) bool {
	t.Helper()
	path, group, _ := strings.Cut(resource, ".")
	kind, sub, _ := strings.Cut(path, "/")
	return a.review(t, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: kind, Subresource: sub, Namespace: namespace, Name: name,
	}})
}

func (a asker) review(t *testing.T, of authorizationv1.SubjectAccessReviewSpec) bool {
	t.Helper()
	of.User, of.Groups = a.user, []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace,
		"system:authenticated"}
	review := &authorizationv1.SubjectAccessReview{Spec: of}
	answer, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

// verbs returns what may be done, with blanks between.
func (a asker) verbs(t *testing.T, resource, namespace, name string) string {
	t.Helper()
	var allowed []string
	for _, verb := range verbs {
		if a.may(t, verb, resource, namespace, name) {
			allowed = append(allowed, verb)
		}
	}
	return strings.Join(allowed, " ")
}

// rights returns a line for each resource with which something may be done, whatever its name.
func (a asker) rights(t *testing.T, resources []string, namespace string) []string {
	t.Helper()
	var lines []string
	for _, r := range resources {
		if allowed := a.verbs(t, r, namespace, ""); allowed != "" {
			lines = append(lines, r+": "+allowed)
		}
	}
	return lines
}

// resources returns all that the API server has, sorted.
func resources(t *testing.T, client kubernetes.Interface) []string {
	t.Helper()
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var all []string
	for _, list := range lists {
		group, _, grouped := strings.Cut(list.GroupVersion, "/")
		for i := range list.APIResources {
			name := list.APIResources[i].Name
			if grouped {
				name += "." + group
			}
			if !seen[name] {
				seen[name] = true
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}
