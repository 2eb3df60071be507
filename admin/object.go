package admin

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// typedObject is a Go type of an API object that holds its own kind.
type typedObject interface {
	runtime.Object
	metav1.Object
}

// toUnstructured returns o without the fields that only the server sets.
func toUnstructured(o runtime.Object) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic("admin: every type here can be converted: " + err.Error())
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}
}

// object returns an object without content, to look one up.
func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
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
