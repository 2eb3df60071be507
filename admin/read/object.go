package read

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// Object returns an object without content, to look one up.
func Object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// Describe names an object in messages: "Role clusterset-0f/member".
func Describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// IsManaged reports whether an object has the label of the objects that clusterset manages.
func IsManaged(o metav1.Object) bool { return o.GetLabels()[broker.LabelManagedBy] == broker.ManagedBy }

// StringAt returns the string at a path in an object, "" if the path does not exist.
func StringAt(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// IsMarked reports whether the cluster of a broker namespace was removed.
func IsMarked(namespace *unstructured.Unstructured) bool {
	_, marked := namespace.GetAnnotations()[broker.AnnotationRemoved]
	return marked
}
