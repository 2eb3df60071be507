package broker

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/merge"
)

// A Change is one of a record, a slice or an inventory entry for a service.
type Change struct {
	Service types.NamespacedName
	Member  string // its namespace on the broker
	Initial bool   // the first list is being read
	Listed  bool   // of an inventory entry
	// by another member, of an entry or a record, without an end of an export or other slices: it may do so at any rate
	Altered bool
	Urgent  bool // a slice of another member lost its last ready endpoint, or an export ended
}

// Handlers are notified of what happens on the broker, from several goroutines. They should return soon; any of them
// may be nil.
type Handlers struct {
	// Changed: a record, a slice or an inventory entry of some member was added, changed or deleted.
	Changed func(Change)
	// InventoryChanged: a part of the inventory of a cluster, the member with that namespace, changed. What it does not
	// list ends by that, too.
	InventoryChanged func(member, cluster, part string)
	// MembersChanged: members or their namespaces changed, which may affect every service.
	MembersChanged func()
	// PropertiesChanged: only the ClusterProperties of a member changed, which may affect every service.
	PropertiesChanged func(clusterID string)
	// Rejected: an object is not accepted. It is called once for each version of an object.
	Rejected func(merge.Rejection)
}

// complete returns the handlers with a function in place of each that is nil.
func (h Handlers) complete() Handlers {
	if h.Changed == nil {
		h.Changed = func(Change) {}
	}
	if h.InventoryChanged == nil {
		h.InventoryChanged = func(string, string, string) {}
	}
	if h.MembersChanged == nil {
		h.MembersChanged = func() {}
	}
	if h.PropertiesChanged == nil {
		h.PropertiesChanged = func(string) {}
	}
	if h.Rejected == nil {
		h.Rejected = func(merge.Rejection) {}
	}
	return h
}
