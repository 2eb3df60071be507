package merge

import (
	"cmp"

	"github.com/clusterset-dns/clusterset/api/reason"
)

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
