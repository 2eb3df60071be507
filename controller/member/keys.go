package member

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// The indexes. Their values are keys of services, "<namespace>/<name>".
const (
	indexSource   = "source"   // EndpointSlices of a Service of this cluster
	indexImported = "imported" // EndpointSlices of a ServiceImport, also by the name of its derived Service
	indexDerived  = "derived"  // ServiceImports by the name of their derived Service
	indexAddress  = "address"  // ServiceImports by each clusterset IP; its values are addresses
)

func index(keys func(metav1.Object) []string) cache.IndexFunc {
	return func(o any) ([]string, error) { return keys(o.(metav1.Object)), nil }
}

// KeyOf returns namespace and name of o.
func KeyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func keysOf[T metav1.Object](objects []T) []types.NamespacedName {
	keys := make([]types.NamespacedName, len(objects))
	for i, o := range objects {
		keys[i] = KeyOf(o)
	}
	return keys
}

// parseKey reads the value of an index.
func parseKey(key string) types.NamespacedName {
	namespace, name, _ := strings.Cut(key, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func derivedKeys(o metav1.Object) []string {
	return []string{o.GetNamespace() + "/" + desired.DerivedName(o.GetNamespace(), o.GetName())}
}

// addressKeys returns the clusterset IPs that an import notes.
func addressKeys(o metav1.Object) (ips []string) {
	for _, a := range merge.AddressesOf(o.(*mcsv1beta1.ServiceImport), merge.VIPNetworks{}) {
		ips = append(ips, a.IP.String())
	}
	return ips
}

// sourceKeys returns the Service of a slice, unless the slice is imported, by this controller or by another
// implementation. Cilium gives slices of other clusters to a global Service itself, with the label of their cluster.
func sourceKeys(o metav1.Object) []string {
	labels := o.GetLabels()
	service, cluster := labels[discoveryv1.LabelServiceName], labels[mcsv1beta1.LabelSourceCluster]
	if _, imported := labels[mcsv1beta1.LabelServiceName]; imported || cluster != "" || service == "" || isOurSlice(o) {
		return nil
	}
	return []string{o.GetNamespace() + "/" + service}
}

// importedKeys returns the import of a slice and, because someone may have removed or changed that label of a slice of
// ours, the name of the derived Service that it has.
func importedKeys(o metav1.Object) (keys []string) {
	if service := importOfSlice(o); service != "" {
		keys = append(keys, o.GetNamespace()+"/"+service)
	}
	if derived := o.GetLabels()[discoveryv1.LabelServiceName]; derived != "" && isOurSlice(o) {
		keys = append(keys, o.GetNamespace()+"/"+derived)
	}
	return keys
}

// importOfSlice returns the name of the import that a slice has the label of, "" without one. A slice of ours always
// has a name here, of an import or not, so that its reconcile puts it right or deletes it: someone may have removed any
// label.
func importOfSlice(o metav1.Object) string {
	name := desired.ImportName(o)
	if isOurSlice(o) {
		name = cmp.Or(name, o.GetLabels()[discoveryv1.LabelServiceName], o.GetName())
	}
	return name
}

func isOurSlice(o metav1.Object) bool {
	return o.GetLabels()[discoveryv1.LabelManagedBy] == apibroker.ManagedBy
}

// IsOurs reports whether imp, which may be nil, is an import that this controller manages.
func IsOurs(imp *mcsv1beta1.ServiceImport) bool {
	return imp != nil && imp.Labels[apibroker.LabelManagedBy] == apibroker.ManagedBy
}

// IsBrokerNamespace reports whether ns, which may be nil, is a namespace that members write to: this cluster is its own
// broker.
func IsBrokerNamespace(ns *corev1.Namespace) bool {
	return ns != nil && ns.Labels[apibroker.LabelClusterID] != ""
}
