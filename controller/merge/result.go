package merge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A Record is an export record with its data from the broker, not from its writer.
type Record struct {
	Cluster  string      // id of the member, by the label of its broker namespace
	Admitted metav1.Time // creation of that namespace
	Created  metav1.Time // creation of the record; zero while the broker does not have it
	Spec     v1alpha1.ExportedServiceSpec
}

// A Result is what the export records of one service come to. It shares no memory with them.
type Result struct {
	// Import has its name, labels, annotations and spec, and status.clusters; nil for no import.
	//
	// With [Derived] the addresses are those of the derived Service, which package desired fills in, with [CIDR] they were
	// allocated.
	Import *mcsv1beta1.ServiceImport

	// Selectors are those of the oldest export: the clusters that it prefers. An importing cluster need not follow them.
	Selectors []v1alpha1.ClusterSelector

	Oldest    string      // cluster whose export comes first in precedence; "" without exports
	Members   []Member    // one for each record that is not rejected whole, sorted by cluster
	Conflicts []Conflict  // in the order of the table in docs/spec/controller.md 6.2
	Rejected  []Rejection // sorted by cluster
	PortNames []string    // of the ports of Import, as the derived Service and the slices have them

	vip VIPMode
}

// HasService reports whether a Service is derived from the import. A Service must have a port.
func (r Result) HasService() bool {
	return (r.vip == "" || r.vip == Derived || r.Routed()) && r.Import.Spec.Type == mcsv1beta1.ClusterSetIP &&
		len(r.Import.Spec.Ports) > 0
}

// Routed reports whether the import has clusterset IPs that its derived Service carries, in place of addresses of the
// Service itself (docs/spec/controller.md 5.7).
func (r Result) Routed() bool { return r.vip == CIDR && r.Import != nil && len(r.Import.Spec.IPs) > 0 }

// Families returns the families of local that the import has, in its order. An empty result means that the import
// cannot be reached from here (condition Ready: IPFamilyNotSupported).
func (r Result) Families(local []corev1.IPFamily) []corev1.IPFamily {
	if r.Import == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Import.Spec.IPFamilies), func(f corev1.IPFamily) bool {
		return !slices.Contains(local, f)
	})
}

// Withheld reports whether the exports conflict and there is no import until they agree ([First]).
func (r Result) Withheld() bool {
	return r.Import == nil && slices.ContainsFunc(r.Members, func(m Member) bool { return m.LeftOut == LeftOutConflict })
}

// A Member is the contribution of one exporting cluster to the import.
type Member struct {
	Cluster string
	LeftOut LeftOut
	Ports   []PortMapping // which ports of its slices count, in the order of its record
}

// LeftOut is the reason why no endpoint of a member counts, or "".
type LeftOut string

// The reasons for leaving a member out.
const (
	LeftOutType     LeftOut = "TypeConflict"     // "merge lighthouse", and the type is another
	LeftOutFamily   LeftOut = "IPFamilyConflict" // no IP family of the oldest export
	LeftOutPorts    LeftOut = "PortConflict"     // no port that it serves is one of the import
	LeftOutConflict LeftOut = "Conflict"         // "merge first", and there is a conflict
)

// A PortMapping maps one port of a member's slices to a port of the import.
type PortMapping struct {
	From        string // name in the member's slices, which is that in its Service
	To          string // name in imported slices
	Protocol    corev1.Protocol
	AppProtocol *string
}
