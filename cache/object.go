package cache

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// A customObject is a ServiceImport or ClusterProperty of any version, decoded as far as DNS needs it. Its spec waits
// for the door: were it decoded with the rest, one object of a lax CRD would break the list that it is part of.
type customObject struct {
	metav1.TypeMeta `json:",inline"`
	customMeta      `json:"metadata"`
	Spec            json.RawMessage `json:"spec"`
}

// customMeta is the part of the metadata that is used. Whatever else metav1.Object asks for has no answer here, and
// the reflector asks for none of it.
type customMeta struct {
	metav1.Object     `json:"-"`
	Namespace         string            `json:"namespace"`
	Name              string            `json:"name"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp"`
	ManagedFields     []managedField    `json:"managedFields"`
}

type managedField struct {
	Time *metav1.Time `json:"time"`
}

func (m *customMeta) GetNamespace() string              { return m.Namespace }
func (m *customMeta) GetName() string                   { return m.Name }
func (m *customMeta) GetResourceVersion() string        { return m.ResourceVersion }
func (m *customMeta) GetLabels() map[string]string      { return m.Labels }
func (m *customMeta) GetAnnotations() map[string]string { return m.Annotations }
func (m *customMeta) GetCreationTimestamp() metav1.Time { return m.CreationTimestamp }
func (m *customMeta) GetManagedFields() (fields []metav1.ManagedFieldsEntry) {
	for _, f := range m.ManagedFields {
		fields = append(fields, metav1.ManagedFieldsEntry{Time: f.Time})
	}
	return fields
}

// DeepCopyObject makes a customObject a runtime.Object.
func (o *customObject) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec = slices.Clone(o.Spec)
	return &c
}

// A resource says where objects of a kind are found: in the first of its versions that is served.
type resource struct {
	group      string
	versions   []string // the preferred one first
	plural     string
	namespaced bool
	custom     bool // by a CRD, which may be absent; in JSON only
	example    runtime.Object
}

// IsWatchListSemanticsUnSupported tells the reflector which kinds to list, and which to have streamed.
func (r resource) IsWatchListSemanticsUnSupported() bool { return r.custom }

var resources = [kinds]resource{
	ServiceImport: {
		group: "multicluster.x-k8s.io", versions: []string{"v1beta1", "v1alpha1"}, plural: "serviceimports",
		namespaced: true, custom: true, example: &customObject{},
	},
	EndpointSlice: {
		group: discoveryv1.GroupName, versions: []string{"v1"}, plural: "endpointslices",
		namespaced: true, example: &discoveryv1.EndpointSlice{},
	},
	Namespace: {versions: []string{"v1"}, plural: "namespaces", example: &corev1.Namespace{}},
	ClusterProperty: {
		group: "about.k8s.io", versions: []string{"v1beta1", "v1alpha1"}, plural: "clusterproperties",
		custom: true, example: &customObject{},
	},
}

var codecs = newCodecs()

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic("cache: a scheme of the built-in kinds: " + err.Error())
		}
	}
	for kind, r := range resources {
		for _, version := range r.versions {
			gv := schema.GroupVersion{Group: r.group, Version: version}
			if r.custom {
				scheme.AddKnownTypeWithName(gv.WithKind(Kind(kind).String()), &customObject{})
			}
			metav1.AddToGroupVersion(scheme, gv)
		}
	}
	return serializer.NewCodecFactory(scheme)
}

// read takes one object of a kind through the door.
func read(kind Kind, obj any) (item, []Rejection) {
	switch kind {
	case ServiceImport:
		return readImport(obj.(*customObject))
	case EndpointSlice:
		return readSlice(obj.(*discoveryv1.EndpointSlice))
	case ClusterProperty:
		return readProperty(obj.(*customObject))
	}
	key := keyOf(obj.(*corev1.Namespace))
	return item{key: key, value: key}, nil
}

// keyOf is the key of an object as in item.key.
func keyOf(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return strings.ToLower(obj.GetName())
	}
	return strings.ToLower(obj.GetNamespace() + "/" + obj.GetName())
}

// writeTime is when obj was written: when its endpoints changed if it says so, else its newest write.
func writeTime(m metav1.Object) written {
	if trigger := m.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]; trigger != "" {
		if t, err := time.Parse(time.RFC3339Nano, trigger); err == nil {
			return t
		}
	}
	newest := m.GetCreationTimestamp().Time
	for _, f := range m.GetManagedFields() {
		if f.Time != nil && f.Time.After(newest) {
			newest = f.Time.Time
		}
	}
	return newest
}

// serviceKey is "<name>.<namespace>" of the import with the key "<namespace>/<name>".
func serviceKey(key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return name + "." + namespace
}
