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
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/apiserver"
)

// A customObject is a ServiceImport or ClusterProperty of any version, decoded as far as DNS needs it. Its spec and
// status are decoded when it is validated: were they decoded with the rest, one object of a lax CRD would break the
// list that it is part of.
type customObject struct {
	metav1.TypeMeta `json:",inline"`
	customMeta      `json:"metadata"`
	Spec            json.RawMessage `json:"spec"`
	Status          json.RawMessage `json:"status"`
}

// customMeta is the used part of the metadata. The rest of metav1.Object has no answer here; reflector and apiserver do
// not ask for it.
type customMeta struct {
	metav1.Object     `json:"-"`
	Namespace         string            `json:"namespace"`
	Name              string            `json:"name"`
	UID               types.UID         `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp laxTime           `json:"creationTimestamp"`
	ManagedFields     []managedField    `json:"managedFields"`
}

type managedField struct {
	Time laxTime `json:"time"`
}

// A laxTime is the zero time where JSON has one that Go does not parse, such as one in the year 10000, which the API
// server accepts with an offset and returns in UTC. Times only serve the lag metric: such a time costs nothing else.
type laxTime struct{ metav1.Time }

// UnmarshalJSON implements [json.Unmarshaler].
func (t *laxTime) UnmarshalJSON(text []byte) error {
	if t.Time.UnmarshalJSON(text) != nil {
		t.Time = metav1.Time{}
	}
	return nil
}

func (m *customMeta) GetNamespace() string              { return m.Namespace }
func (m *customMeta) SetNamespace(namespace string)     { m.Namespace = namespace }
func (m *customMeta) GetName() string                   { return m.Name }
func (m *customMeta) GetUID() types.UID                 { return m.UID }
func (m *customMeta) GetResourceVersion() string        { return m.ResourceVersion }
func (m *customMeta) GetLabels() map[string]string      { return m.Labels }
func (m *customMeta) GetAnnotations() map[string]string { return m.Annotations }
func (m *customMeta) GetCreationTimestamp() metav1.Time { return m.CreationTimestamp.Time }
func (m *customMeta) GetManagedFields() (fields []metav1.ManagedFieldsEntry) {
	for _, f := range m.ManagedFields {
		fields = append(fields, metav1.ManagedFieldsEntry{Time: &f.Time.Time})
	}
	return fields
}

// DeepCopyObject makes a customObject a runtime.Object.
func (o *customObject) DeepCopyObject() runtime.Object {
	c := *o
	c.Spec, c.Status = slices.Clone(o.Spec), slices.Clone(o.Status)
	return &c
}

// resources are those of the kinds. ServiceImport and ClusterProperty are followed in the first version that is served
// (docs/spec/dns.md 1).
var resources = [kinds]apiserver.Resource{
	ServiceImport: customResource("ServiceImport", "multicluster.x-k8s.io", "serviceimports",
		"v1", "v1beta1", "v1alpha1"),
	EndpointSlice:   apiserver.ResourceOf(&discoveryv1.EndpointSlice{}),
	Namespace:       apiserver.ResourceOf(&corev1.Namespace{}),
	ClusterProperty: customResource("ClusterProperty", "about.k8s.io", "clusterproperties", "v1beta1", "v1alpha1"),
}

// customResource is the resource of a kind that is decoded to a customObject in each of its versions. ServiceImport
// alone is namespaced.
func customResource(kind, group, plural string, versions ...string) apiserver.Resource {
	r := apiserver.Resource{
		Kind: kind, Group: group, Versions: versions, Plural: plural, Namespaced: kind == "ServiceImport",
		Custom:  true,
		Example: &customObject{},
	}
	scheme := runtime.NewScheme()
	for _, version := range r.Versions {
		gv := schema.GroupVersion{Group: group, Version: version}
		scheme.AddKnownTypeWithName(gv.WithKind(kind), &customObject{})
		metav1.AddToGroupVersion(scheme, gv)
	}
	r.Codecs = serializer.NewCodecFactory(scheme)
	return r
}

// keyOf is the key of an object as in item.key.
func keyOf(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return strings.ToLower(obj.GetName())
	}
	return strings.ToLower(obj.GetNamespace() + "/" + obj.GetName())
}

// writeTime is the time of obj's last change of endpoints if it names that, else of its newest write.
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
