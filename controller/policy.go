package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// namespacePolicy says whether services of a namespace take part, be they exported or imported (section 9).
func (s *session) namespacePolicy(name string) export.NamespacePolicy {
	return s.cfg.namespacePolicy(s.local.Namespace(name))
}

// namespacePolicy is pure. A namespace that is gone is as one that is going.
func (c *Config) namespacePolicy(ns *corev1.Namespace) export.NamespacePolicy {
	switch {
	case ns == nil || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating:
		return export.Terminating
	case !c.takesPart(ns):
		return export.NotAllowed
	}
	return export.Allowed
}

// takesPart applies import_namespaces. What Kubernetes or we ourselves run in never takes part: whoever could export into
// kube-system of all members would own them.
func (c *Config) takesPart(ns *corev1.Namespace) bool {
	switch {
	case c.neverTakesPart(ns.Name) || isBrokerNamespace(ns):
		return false
	case len(c.Namespaces) > 0:
		return slices.Contains(c.Namespaces, ns.Name)
	case c.NamespaceLabels != nil:
		return c.NamespaceLabels.Matches(labels.Set(ns.Labels))
	}
	return ns.Name != metav1.NamespaceDefault
}

// isBrokerNamespace reports whether a namespace of this cluster is one that members write to: the cluster is its own broker.
func isBrokerNamespace(ns *corev1.Namespace) bool {
	return ns != nil && ns.Labels[apibroker.LabelClusterID] != ""
}

// neverTakesPart names the namespaces that no option lets take part.
func (c *Config) neverTakesPart(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || namespace == c.Namespace
}

// leftOut reports whether a namespace that does not take part could, if import_namespaces chose it: nobody does wrong who
// exports from there.
func (c *Config) leftOut(namespace string) bool {
	return (len(c.Namespaces) > 0 || c.NamespaceLabels != nil) && !c.neverTakesPart(namespace)
}

// sourceAllowed reports whether the namespace takes exports of the cluster. One that says nothing takes those of all; one
// that says nobody takes none.
func sourceAllowed(ns *corev1.Namespace, clusterID string) bool {
	list, limited := ns.Annotations[apibroker.AnnotationAllowedSources]
	if !limited {
		return true
	}
	for id := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(id) == clusterID {
			return true
		}
	}
	return false
}

// mergeOptions are those that do not depend on the service.
func (c *Config) mergeOptions() merge.Options {
	return merge.Options{
		OnConflict: c.OnConflict, PortMerge: c.PortMerge, TypeConflict: c.TypeConflict, Precedence: c.Precedence, VIP: c.VIP,
		VIPPool: c.VIPPool,
	}
}

// mergeOptions are those by which the export records of a service are merged here.
func (s *session) mergeOptions(svc types.NamespacedName) merge.Options {
	o := s.cfg.mergeOptions()
	if o.VIP == merge.CIDR {
		o.Pools, o.Claims = merge.Pools(s.broker.Members(), o.VIPPool), s.broker.Claims(svc)
	}
	return o
}
