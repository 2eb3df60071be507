package merge

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
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

// ReasonClusterSetIP is the reason of a difference in whether a clusterset IP is wanted. The MCS API has no reason for
// it.
const ReasonClusterSetIP mcsv1beta1.ServiceExportConditionReason = "ClusterSetIPConflict"

// ReasonClusterSelectors is the reason of a difference in the cluster selectors (KEP-5939).
const ReasonClusterSelectors mcsv1beta1.ServiceExportConditionReason = "ClusterSelectorsConflict"

// A Conflict is one property that the exports of a service disagree on.
type Conflict struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string // one sentence on the disagreement, in the words of KEP-1645, and the clusters that it leaves out

	unresolved bool // the exports cannot be had as they are: one had to give way
}

// reasons are those of a conflict, in the order of the table in docs/spec/controller.md 6.2.
var reasons = []mcsv1beta1.ServiceExportConditionReason{
	mcsv1beta1.ServiceExportReasonTypeConflict,
	mcsv1beta1.ServiceExportReasonPortConflict,
	mcsv1beta1.ServiceExportReasonSessionAffinityConflict,
	mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict,
	mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict,
	mcsv1beta1.ServiceExportReasonTrafficDistributionConflict,
	mcsv1beta1.ServiceExportReasonLabelsConflict,
	mcsv1beta1.ServiceExportReasonAnnotationsConflict,
	mcsv1beta1.ServiceExportReasonIPFamilyConflict,
	ReasonClusterSetIP,
	ReasonClusterSelectors,
}

// Condition is the condition Conflict that every constituent export gets (docs/spec/controller.md 6.2). Its
// LastTransitionTime is for the writer, who knows the earlier condition.
func Condition(conflicts []Conflict, generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: string(mcsv1beta1.ServiceExportConditionConflict), Status: metav1.ConditionFalse,
		ObservedGeneration: generation,
		Reason:             string(mcsv1beta1.ServiceExportReasonNoConflicts), Message: "All service exports agree.",
	}
	if len(conflicts) == 0 {
		return c
	}
	var why, text []string
	for _, conflict := range conflicts {
		if reason := string(conflict.Reason); !slices.Contains(why, reason) {
			why = append(why, reason)
		}
		text = append(text, conflict.Message)
	}
	c.Status, c.Reason = metav1.ConditionTrue, strings.Join(why, ",")
	c.Message = reason.Say(reason.Conflict, c.Reason, strings.Join(text, " "))
	return c
}

// A Rejection is an object of a member, or a part of one, that merge does not accept.
type Rejection struct {
	Cluster string // "" if the object belongs to no member
	Object  string // the name of an export record or slice
	Reason  Reason
	Detail  string // for a log: the first bad value, cut, and the wanted form
	// Code is that of the cause, if it is another than that of the reason (docs/spec/explain.md 4).
	Code reason.Code
}

// Local is the Cluster of a [Rejection] of an object in this cluster. No cluster id has a blank.
const Local = "this cluster"

// Reason is why an object was rejected; it is a label of a metric.
type Reason string

// The reasons of a [Rejection].
const (
	BadCluster  Reason = "cluster_id"  // the writer has no valid cluster id
	BadRecord   Reason = "record"      // a value out of bounds
	Undecodable Reason = "undecodable" // a value that its Go type does not take
	BadName     Reason = "name"        // a name or label that does not fit its place
	Duplicate   Reason = "duplicate"   // a second record of one cluster
	BadSlice    Reason = "slice"       // a slice out of bounds
	BadAddress  Reason = "address"     // an address that no service may have
	AlienCIDR   Reason = "cidr"        // an address outside the networks that the member declared
	OwnCIDR     Reason = "own_cidr"    // an address in a network of the importing cluster itself
	// a clusterset IP that its member may not claim, that another service has, or in a network of the importing cluster
	AlienVIP    Reason = "vip"
	NotTaken    Reason = "namespace" // a namespace without exports, or without those of that cluster
	BadProperty Reason = "property"  // a ClusterProperty that a member publishes, out of bounds
	BadSelector Reason = "selector"  // annotations of a Namespace that say which clusters traffic goes to
	BadWeights  Reason = "weights"   // the annotation of a Namespace with weights of clusters
	// BadDistribution is that of the annotation of a Namespace with a traffic distribution.
	BadDistribution Reason = "distribution"
	BeyondLimit     Reason = "limit" // more than an importing cluster takes of one member, or of all
)

func compareRejections(a, b Rejection) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Object, b.Object),
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
}
