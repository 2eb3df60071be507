package merge

import (
	"cmp"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A Pool is a network that a member may allocate clusterset IPs from. A member without one has the zero Prefix.
type Pool struct {
	Cluster string
	Prefix  netip.Prefix
	Second  bool // the second VIP CIDR of its Member, which members of version 0.1 do not know
}

// A Claim is what one export record says about the clusterset IP of a service, be it allocated there or copied.
type Claim struct {
	Service  types.NamespacedName
	Cluster  string      // whose record it is
	Admitted metav1.Time // as in Record
	Created  metav1.Time
	VIP      v1alpha1.VIP
	// Barred is whether the importing cluster does not accept the record. Then the service has no address from it, but goes on having one that a
	// record which it accepts names, too: what others may have does not depend on who accepts it.
	Barred bool
}

// An Allocation is a clusterset IP of a service, one of at most two: each IP family has an allocation of its own.
type Allocation struct {
	IP     netip.Addr
	By     string // id of the cluster that allocated it
	At     metav1.Time
	Second bool // records name it as their second, for the sake of members of version 0.1
}

// VIPOf returns what a record says about the allocations of a service, which are at most one of each family. What members of version 0.1 know
// they go on finding where it was, also in copies.
func VIPOf(all []Allocation) v1alpha1.VIP {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Allocation) int {
		if a.Second != b.Second {
			return cmp.Compare(rank(a.Second), rank(b.Second))
		}
		return cmp.Or(cmp.Compare(a.At.Unix(), b.At.Unix()), a.IP.Compare(b.IP))
	})
	var v v1alpha1.VIP
	for i, a := range all {
		if len(all) == 2 && i == 1 || len(all) == 1 && a.Second {
			v.Second = &v1alpha1.SecondVIP{IP: a.IP.String(), AllocatedBy: a.By, At: *a.At.DeepCopy()}
		} else {
			v.IPs, v.AllocatedBy, v.At = []string{a.IP.String()}, a.By, a.At.DeepCopy()
		}
	}
	return v
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// AllocationsOf returns what a record says about clusterset IPs, each address by itself.
func AllocationsOf(v *v1alpha1.VIP) []Allocation {
	var all []Allocation
	add := func(ip, by string, at metav1.Time, second bool) {
		if addr, err := netip.ParseAddr(ip); err == nil {
			all = append(all, Allocation{IP: addr, By: by, At: *at.DeepCopy(), Second: second})
		}
	}
	for _, ip := range v.IPs {
		add(ip, v.AllocatedBy, *v.At, false)
	}
	if v.Second != nil {
		add(v.Second.IP, v.Second.AllocatedBy, v.Second.At, true)
	}
	return all
}
