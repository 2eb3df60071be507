package apiserver

import (
	"fmt"
	"reflect"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// An Object is a pointer to a type that a [Client] knows: Namespace, Service, ServiceAccount, Secret, Node,
// EndpointSlice, Lease, ServiceCIDR, Event (events.k8s.io), ServiceExport, ServiceImport and ClusterProperty (v1beta1,
// for the versions in sharedTypes), ExportedService, Inventory, Member. Any other is a panic.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Resource tells where the objects of a kind are, and how to read them.
type Resource struct {
	Kind       string // as in the API
	Group      string
	Versions   []string // the preferred one first: the first that is served is followed
	Plural     string
	Namespaced bool
	Custom     bool // defined by a CRD: it travels as JSON, others as protobuf
	// Example is what events are decoded to, by Codecs.
	Example runtime.Object
	Codecs  serializer.CodecFactory

	version string // of the Go type; empty for a resource that no [Client] knows
}

// ResourceOf returns the resource of an object of a type that a [Client] knows. Another type is a broken promise of the
// caller.
func ResourceOf(example runtime.Object) Resource {
	r, ok := allKinds().byType[reflect.TypeOf(example).Elem()]
	if !ok {
		panic(fmt.Sprintf("apiserver: %T: want a type that a client knows", example))
	}
	r.Example, r.Codecs = example, allKinds().codecs
	return r
}

// path is where the objects of a version are found, in a namespace or ("") in all.
func (r Resource) path(gv schema.GroupVersion, namespace string) []string {
	path := groupPath(gv)
	if namespace != "" && r.Namespaced {
		path = append(path, "namespaces", namespace)
	}
	return append(path, r.Plural)
}

// sharedTypes are the versions of groups that use the Go types of v1beta1 for all, the preferred version first.
var sharedTypes = map[string][]string{
	mcsv1beta1.GroupName: {"v1", "v1beta1"}, about.GroupName: {"v1beta1", "v1alpha1"},
}

// kinds are all that a [Client] knows.
type kinds struct {
	byType map[reflect.Type]Resource // without Example and Codecs
	codecs serializer.CodecFactory
}

// allKinds returns the kinds, which all clients share.
var allKinds = sync.OnceValue(func() *kinds {
	return &kinds{byType: newKinds(), codecs: newCodecs()}
})

// newKinds returns all that a [Client] knows, by Go type.
func newKinds() map[reflect.Type]Resource {
	all := make(map[reflect.Type]Resource)
	add := func(gv schema.GroupVersion, example runtime.Object, plural string, namespaced, custom bool) {
		t := reflect.TypeOf(example).Elem()
		versions := sharedTypes[gv.Group]
		if versions == nil {
			versions = []string{gv.Version}
		}
		all[t] = Resource{Kind: t.Name(), Group: gv.Group, Versions: versions, Plural: plural, Namespaced: namespaced,
			Custom: custom, version: gv.Version}
	}
	const namespaced, custom = true, true
	add(corev1.SchemeGroupVersion, &corev1.Namespace{}, "namespaces", !namespaced, !custom)
	add(corev1.SchemeGroupVersion, &corev1.Service{}, "services", namespaced, !custom)
	add(corev1.SchemeGroupVersion, &corev1.ServiceAccount{}, "serviceaccounts", namespaced, !custom)
	add(corev1.SchemeGroupVersion, &corev1.Secret{}, "secrets", namespaced, !custom)
	add(corev1.SchemeGroupVersion, &corev1.Node{}, "nodes", !namespaced, !custom)
	add(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, "endpointslices", namespaced, !custom)
	add(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, "leases", namespaced, !custom)
	add(networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDR{}, "servicecidrs", !namespaced, !custom)
	add(eventsv1.SchemeGroupVersion, &eventsv1.Event{}, "events", namespaced, !custom)
	mcs := schema.GroupVersion(mcsv1beta1.GroupVersion)
	add(mcs, &mcsv1beta1.ServiceExport{}, "serviceexports", namespaced, custom)
	add(mcs, &mcsv1beta1.ServiceImport{}, "serviceimports", namespaced, custom)
	add(aboutv1beta1.GroupVersion, &aboutv1beta1.ClusterProperty{}, "clusterproperties", !namespaced, custom)
	add(v1alpha1.GroupVersion, &v1alpha1.ExportedService{}, "exportedservices", namespaced, custom)
	add(v1alpha1.GroupVersion, &v1alpha1.Inventory{}, "inventories", namespaced, custom)
	add(v1alpha1.GroupVersion, &v1alpha1.Member{}, "members", !namespaced, custom)
	return all
}

// newCodecs knows the types of all kinds, their lists and what goes with them.
func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme, networkingv1.AddToScheme,
		eventsv1.AddToScheme, authenticationv1.AddToScheme, mcsv1beta1.Install,
		aboutv1beta1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic("apiserver: a scheme of all kinds: " + err.Error())
		}
	}
	for group, versions := range sharedTypes {
		for name, t := range scheme.KnownTypes(schema.GroupVersion{Group: group, Version: "v1beta1"}) {
			for _, version := range versions {
				gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: name}
				scheme.AddKnownTypeWithName(gvk, reflect.New(t).Interface().(runtime.Object))
			}
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}

// groupPath is where the resources of a version are found.
func groupPath(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"/api", gv.Version}
	}
	return []string{"/apis", gv.Group, gv.Version}
}
