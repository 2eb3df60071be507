// Package memberenv is an environment for tests of the parts of the controller: one real API server that is a member of
// a clusterset and its own broker, and the member's view of both.
//
//	env := memberenv.New(t)      // API server, broker namespace, Member
//	env.Join()                   // ClusterProperty objects: a member
//	i := env.Start()             // member.Cluster, synced; broker.Broker, not running
//	exp := exporter.New(...)     // the part under test, from i
//	i.Follow(broker.Handlers{})  // broker running, synced; membership evaluated
//	i.Writes.Take()              // what was written since
package memberenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// ID is the cluster id of the member, Namespace its namespace on the broker.
const ID = "east"

var (
	// Namespace is the broker namespace of the member.
	Namespace = apibroker.NamespaceName("member", ID)
	// DB is a service.
	DB = Service("db")
)

// Service returns the key of a service in namespace shop.
func Service(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// New starts the API server. It has the namespaces shop, of the controller and of the member, and the Member with the
// VIP CIDR 243.0.0.4/31.
func New(t *testing.T) *Env {
	t.Helper()
	server := controlplane.StartT(t, controlplane.Options{CRDs: append(controlplane.DefaultCRDs(), crd.ExportedServices,
		crd.Inventories, crd.Members)})
	admin, err := apiserver.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	e := &Env{T: t, Server: server, Admin: admin, dir: t.TempDir(), owners: make(map[string]*owner)}
	if e.System, err = admin.SystemUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop", wellknown.ControllerNamespace} {
		e.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	e.addMember(ID, v1alpha1.MemberSpec{
		KubeSystemUID: string(e.System), VIPCIDRs: []string{"243.0.0.4/31"}, PodCIDRs: []string{"10.1.0.0/16"},
	})
	return e
}

// AddMember makes another member, which is not running, with these VIP CIDRs, and pods in 10.2.0.0/16 and
// 10.1.128.0/17; the second overlaps with the pods of the member that runs. It returns the namespace of the member on
// the broker.
func (e *Env) AddMember(id string, vips ...string) string {
	e.Helper()
	namespace := apibroker.NamespaceName("member", id)
	e.owners[namespace] = &owner{Env: e, namespace: namespace, parts: make(map[string]*v1alpha1.Inventory),
		from: make(map[string]int64), claims: make(map[string][]v1alpha1.Claim), uids: make(map[string]string)}
	return e.addMember(id, v1alpha1.MemberSpec{
		KubeSystemUID: "11234567-89ab-cdef-0123-456789abcdef", VIPCIDRs: vips,
		PodCIDRs: []string{"10.2.0.0/16", "10.1.128.0/17"},
	})
}

func (e *Env) addMember(id string, spec v1alpha1.MemberSpec) string {
	e.Helper()
	spec.Namespace = apibroker.NamespaceName("member", id)
	e.Create(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spec.Namespace,
			Labels: map[string]string{apibroker.LabelClusterID: id}}},
		&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: spec},
	)
	return spec.Namespace
}

// Join makes the ClusterProperty objects of a member.
func (e *Env) Join() {
	e.Helper()
	e.Create(&aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: about.ClusterIDName}, Spec: aboutv1beta1.ClusterPropertySpec{Value: ID},
	})
	e.JoinSet()
}

// JoinSet makes the ClusterProperty that a join ends with. That of the cluster id is separate.
func (e *Env) JoinSet() {
	e.Helper()
	e.Create(&aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: about.ClusterSetName,
			Annotations: map[string]string{apibroker.AnnotationBrokerUID: string(e.System)}},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "set"},
	})
}

// TakeOff takes all members off the broker, as the first step of a leave does with one.
func (e *Env) TakeOff() {
	e.Helper()
	namespaces := &corev1.NamespaceList{}
	if err := e.Admin.List(e.Context(), &corev1.Namespace{}, namespaces, "", apibroker.LabelClusterID); err != nil {
		e.Fatal(err)
	}
	for i := range namespaces.Items {
		delete(namespaces.Items[i].Labels, apibroker.LabelClusterID)
		e.Update(&namespaces.Items[i])
	}
}

// Leave marks the member as leaving.
func (e *Env) Leave() {
	e.Helper()
	property := &aboutv1beta1.ClusterProperty{}
	if err := e.Admin.Get(e.Context(), property, "", about.ClusterSetName); err != nil {
		e.Fatal(err)
	}
	property.Annotations[apibroker.AnnotationLeaving] = "now"
	e.Update(property)
}

// Create makes objects as an administrator. Records and slices of other members get stamps and lists, as their owners
// would give them.
func (e *Env) Create(objects ...apiserver.Object) {
	e.Helper()
	for _, o := range objects {
		w := e.ownerOf(o)
		if w != nil {
			w.stampOn(o)
			w.list(o)
		}
		if err := e.Admin.Create(e.Context(), o); err != nil {
			e.Fatal(err)
		}
	}
}

// Update changes an object as an administrator.
func (e *Env) Update(o apiserver.Object) {
	e.Helper()
	if w := e.ownerOf(o); w != nil {
		w.current(o)
		w.stampOn(o)
	}
	if err := e.Admin.Update(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

// Try fills a new object with what the API server would store of it, without a write.
func (e *Env) Try(o apiserver.Object) error {
	e.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		e.Fatal(err)
	}
	r := apiserver.ResourceOf(o)
	gv := schema.GroupVersion{Group: r.Group, Version: r.Versions[0]}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gv.WithKind(r.Kind))
	stored, err := e.Server.Dynamic().Resource(gv.WithResource(r.Plural)).Namespace(o.GetNamespace()).
		Create(e.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, o)
}

// Delete deletes objects as an administrator. Owners end theirs first.
func (e *Env) Delete(objects ...apiserver.Object) {
	e.Helper()
	for _, o := range objects {
		if w := e.ownerOf(o); w != nil {
			w.end(o)
		}
		if err := e.Admin.Delete(e.Context(), o); err != nil {
			e.Fatal(err)
		}
	}
}

// DropFields applies the manifest of a CRD without the fields at these paths, such as ".spec.ports.items.name". It
// returns when the API server has ended the watches of the kind, which it does a moment after it uses the new
// definition.
func (e *Env) DropFields(manifest []byte, paths ...string) {
	e.Helper()
	var definition map[string]any
	if err := yaml.Unmarshal(manifest, &definition); err != nil {
		e.Fatal(err)
	}
	version := definition["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	for _, path := range paths {
		schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		parts := strings.Split(path, ".")[1:]
		for _, part := range parts[:len(parts)-1] {
			if part == "items" {
				schema = schema["items"].(map[string]any)
				continue
			}
			schema = schema["properties"].(map[string]any)[part].(map[string]any)
		}
		delete(schema["properties"].(map[string]any), parts[len(parts)-1])
	}
	e.applyCRD(definition)
}

func (e *Env) applyCRD(definition map[string]any) {
	e.Helper()
	text, err := yaml.Marshal(definition)
	if err != nil {
		e.Fatal(err)
	}
	ended := e.watchEnds(definition)
	if err := e.Server.ApplyYAML(e.Context(), text); err != nil {
		e.Fatal(err)
	}
	ended()
}

// watchEnds watches the kind of a CRD. ended returns when the API server has ended that watch.
func (e *Env) watchEnds(definition map[string]any) (ended func()) {
	e.Helper()
	crd := unstructured.Unstructured{Object: definition}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	gvr := schema.GroupVersionResource{Group: group, Version: versions[0].(map[string]any)["name"].(string),
		Resource: plural}
	w, err := e.Server.Dynamic().Resource(gvr).Watch(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return func() {
		e.Helper()
		defer w.Stop()
		e.Await("the end of the watches of "+plural, func() bool {
			select {
			case _, open := <-w.ResultChan():
				return !open
			default:
				return false
			}
		})
	}
}

// Await waits until ok returns true.
func (e *Env) Await(what string, ok func() bool) {
	e.Helper()
	until.True(e, what, ok)
}

// Account makes the service account of the member on the broker, with all rights.
func (e *Env) Account() {
	e.Helper()
	e.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: apibroker.ServiceAccount}})
	if err := e.Server.Apply(e.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "member"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: Namespace, Name: apibroker.ServiceAccount}},
	}); err != nil {
		e.Fatal(err)
	}
}

// Token returns a new token of the account, valid for 10 minutes.
func (e *Env) Token() string {
	e.Helper()
	text, _, err := e.Admin.Token(e.Context(), Namespace, apibroker.ServiceAccount, 10*time.Minute)
	if err != nil {
		e.Fatal(err)
	}
	return text
}

// Kubeconfig is the path of the kubeconfig that [Env.WriteKubeconfig] writes.
func (e *Env) Kubeconfig() string { return filepath.Join(e.dir, apibroker.KeyKubeconfig) }

// WriteKubeconfig writes kubeconfig and token as a mounted Secret has them.
func (e *Env) WriteKubeconfig(token string) {
	e.Helper()
	admin := e.Server.Config()
	c := clientcmdapi.NewConfig()
	c.Clusters["broker"] = &clientcmdapi.Cluster{
		Server: admin.Host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile,
	}
	c.AuthInfos["broker"] = &clientcmdapi.AuthInfo{TokenFile: apibroker.KeyToken}
	c.Contexts["broker"] = &clientcmdapi.Context{Cluster: "broker", AuthInfo: "broker", Namespace: Namespace}
	c.CurrentContext = "broker"
	content, err := clientcmd.Write(*c)
	if err != nil {
		e.Fatal(err)
	}
	e.write(apibroker.KeyToken, []byte(token))
	e.write(apibroker.KeyKubeconfig, content)
}

// write replaces a file in one step: the part under test may read it at any time.
func (e *Env) write(name string, content []byte) {
	e.Helper()
	next := filepath.Join(e.dir, "."+name)
	err := os.WriteFile(next, content, 0o600)
	if err == nil {
		err = os.Rename(next, filepath.Join(e.dir, name))
	}
	if err != nil {
		e.Fatal(err)
	}
}

// NewExport returns a ServiceExport.
func NewExport(svc types.NamespacedName) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
}

// NewService returns a Service with port pg, 5432.
func NewService(svc types.NamespacedName) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "pg", Port: 5432}}},
	}
}

// NewSourceSlice returns an EndpointSlice of a Service with one ready endpoint.
func NewSourceSlice(svc types.NamespacedName, name, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports: []discoveryv1.EndpointPort{{Name: new("pg"), Port: new(int32(5432))}},
	}
}
