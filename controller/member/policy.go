package member

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/export"
)

// A Policy decides which namespaces take part, for exports and for imports (docs/spec/controller.md 9).
//
// A namespace takes part if Namespaces selects it. If that restricts nothing, every namespace takes part except
// default. The namespaces of the controller and of a broker never do. The namespaces kube-* and openshift-* do if they
// list their source clusters: whoever could export into kube-system of every member would own all of them.
type Policy struct {
	Namespaces wellknown.NamespaceChoice
	Controller string // namespace of the controller
	Create     bool   // missing namespaces are created; see [Policy.Creates]
}

// Of returns the policy for ns. A namespace that does not exist, nil, counts as terminating.
func (p Policy) Of(ns *corev1.Namespace) export.NamespacePolicy {
	switch {
	case ns == nil || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating:
		return export.Terminating
	case !p.selects(ns):
		return export.NotAllowed
	}
	return export.Allowed
}

func (p Policy) selects(ns *corev1.Namespace) bool {
	switch {
	case p.excludes(ns.Name, ns.Annotations) || IsBrokerNamespace(ns):
		return false
	case p.Namespaces.Restricts():
		return p.Namespaces.Selects(ns.Name, ns.Labels)
	}
	return ns.Name != metav1.NamespaceDefault
}

// excludes reports whether no option can make the namespace take part.
func (p Policy) excludes(namespace string, annotations map[string]string) bool {
	return wellknown.NeverTakesPart(namespace, annotations, p.Controller)
}

// Creates reports whether a missing namespace shall be created for imports: never one that others may expect only
// administrators to create. Those are the ones that never take part, and those of this project, such as the namespace
// of a future member on a broker. A label selector matches no missing namespace.
func (p Policy) Creates(namespace string) bool {
	switch {
	case !p.Create || p.Namespaces.Selector != "" || !apibroker.IsLabel(namespace):
		return false
	case p.excludes(namespace, nil) || namespace == metav1.NamespaceDefault ||
		strings.HasPrefix(namespace, "clusterset-") ||
		apibroker.IsNamespaceName(namespace):
		return false
	}
	return !p.Namespaces.Restricts() || p.Namespaces.Selects(namespace, nil)
}

// LeftOut reports whether the administrator restricted the policy, so that a namespace does not take part although it
// could. An export to it is then no mistake of the exporting cluster.
func (p Policy) LeftOut(ns *corev1.Namespace) bool {
	return p.Namespaces.Restricts() && !p.excludes(ns.Name, ns.Annotations)
}
