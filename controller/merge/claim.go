package merge

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A Pool is the network that a member may allocate clusterset IPs from, the zero Prefix if there is none.
type Pool struct {
	Cluster string
	Prefix  netip.Prefix
}

// A Claim is what one export record says about the clusterset IP of a service, be it allocated there or copied.
type Claim struct {
	Service  types.NamespacedName
	Cluster  string      // whose record it is
	Admitted metav1.Time // as in Record
	Created  metav1.Time
	VIP      v1alpha1.VIP
}

// An Allocation is the clusterset IP of a service.
type Allocation struct {
	IPs []string // in the order of the claim, canonical
	By  string   // id of the cluster that allocated them
	At  metav1.Time
}
