package admin

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// object returns an object without content, to look one up.
func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// describe names an object in messages: "Role clusterset-0f/member".
func describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// isManaged reports whether an object has the label of the objects that clusterset manages.
func isManaged(o metav1.Object) bool { return o.GetLabels()[broker.LabelManagedBy] == broker.ManagedBy }

// stringAt returns the string at a path in an object, "" if the path does not exist.
func stringAt(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// isMarked reports whether the cluster of a broker namespace was removed.
func isMarked(namespace *unstructured.Unstructured) bool {
	_, marked := namespace.GetAnnotations()[broker.AnnotationRemoved]
	return marked
}
