package wiring

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A place is one key of a ConfigMap, which need not exist.
type place struct {
	configMap       *unstructured.Unstructured // nil: it does not exist
	namespace, name string
	key             string
}

func (p place) String() string { return "ConfigMap " + p.name + ", key " + p.key }

// text returns the value of the key, "" if it does not exist.
func (p place) text() string {
	if p.configMap == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(p.configMap.Object, "data", p.key)
	return text
}

func (p place) exists() bool {
	if p.configMap == nil {
		return false
	}
	_, found, _ := unstructured.NestedString(p.configMap.Object, "data", p.key)
	return found
}

// set returns the edit that writes text, creating the ConfigMap if need be.
func (p place) set(text string) *Edit {
	e := p.edit(text)
	if e.After == nil {
		e.After = &unstructured.Unstructured{Object: map[string]any{}}
		e.After.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		e.After.SetNamespace(p.namespace)
		e.After.SetName(p.name)
		e.After.SetLabels(map[string]string{broker.LabelManagedBy: broker.ManagedBy})
	}
	if err := unstructured.SetNestedField(e.After.Object, text, "data", p.key); err != nil {
		panic("wiring: data of a ConfigMap is an object: " + err.Error())
	}
	return e
}

// remove returns the edit that removes the key, and the ConfigMap if we have created it and it has no other key.
func (p place) remove() *Edit {
	e := p.edit("")
	unstructured.RemoveNestedField(e.After.Object, "data", p.key)
	data, _, _ := unstructured.NestedMap(e.After.Object, "data")
	if len(data) == 0 && e.After.GetLabels()[broker.LabelManagedBy] == broker.ManagedBy {
		e.After = nil
	}
	return e
}

func (p place) edit(text string) *Edit {
	e := &Edit{Field: "data." + p.key, Old: p.text(), New: text}
	if p.configMap != nil {
		e.Before, e.After = p.configMap, p.configMap.DeepCopy()
	}
	return e
}

// obstacle returns why an edit of the place would be rejected or would not last, or "".
func (p place) obstacle() string {
	if p.configMap == nil {
		return ""
	}
	if immutable, _, _ := unstructured.NestedBool(p.configMap.Object, "immutable"); immutable {
		return "ConfigMap " + p.name + " is immutable"
	}
	if owner := manager(p.configMap); owner != "" {
		return "ConfigMap " + p.name + " is managed by " + owner + ", which would revert an edit"
	}
	return ""
}

// managers are the labels and annotations of programs that reset an object to a state of their own.
var managers = []struct{ key, value, name string }{
	{"addonmanager.kubernetes.io/mode", "Reconcile", "the addon manager of the cluster"},
	{"argocd.argoproj.io/tracking-id", "", "Argo CD"},
	{"argocd.argoproj.io/instance", "", "Argo CD"},
	{"kustomize.toolkit.fluxcd.io/name", "", "Flux"},
	{"helm.toolkit.fluxcd.io/name", "", "Flux"},
	{"objectset.rio.cattle.io/hash", "", "k3s or Rancher"},
	{"resources.gardener.cloud/managed-by", "", "Gardener"},
	{"resources.gardener.cloud/origin", "", "Gardener"},
	{"meta.helm.sh/release-name", "", "Helm"},
	{"app.kubernetes.io/managed-by", "Helm", "Helm"},
}

// manager returns what resets an object, "" if nothing is known to.
func manager(o metav1.Object) string {
	if o.GetAnnotations()["resources.gardener.cloud/ignore"] == "true" {
		return "" // Gardener creates it for others to edit
	}
	for _, m := range managers {
		for _, marks := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
			if value, ok := marks[m.key]; ok && (m.value == "" || value == m.value) {
				return m.name
			}
		}
	}
	for _, owner := range o.GetOwnerReferences() {
		return owner.Kind + " " + owner.Name
	}
	return ""
}

// updater returns what sets a field of an object now and then, and may do so again; "" if nothing is known to.
func (p place) updater() string {
	if p.configMap == nil {
		return ""
	}
	for _, m := range p.configMap.GetManagedFields() {
		if m.Manager == "eks" && m.FieldsV1 != nil && strings.Contains(string(m.FieldsV1.GetRawBytes()), `"f:`+p.key+`"`) {
			return "the EKS add-on"
		}
	}
	return ""
}
