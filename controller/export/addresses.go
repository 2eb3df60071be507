package export

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// families returns those of the Service. An API server without IPv6DualStack leaves them out; they then follow from the
// cluster IP.
func (x *exporter) families() []corev1.IPFamily {
	if families := slices.Clone(x.service.Spec.IPFamilies); len(families) > 0 {
		first := families[0]
		if families = slices.DeleteFunc(families, x.lacks); len(families) == 0 {
			families = append(families, first) // a record has a family
		}
		return families
	}
	var families []corev1.IPFamily
	for _, addr := range x.clusterIPs() {
		families = append(families, broker.FamilyOf(addr))
	}
	if len(families) == 0 {
		return []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return families
}

// lacks reports whether the export lacks a family of the Service. A load balancer may have addresses of one family. The
// API server gives both to a headless Service without selector, also in a cluster that has one.
func (x *exporter) lacks(f corev1.IPFamily) bool {
	addrs := x.balancers()
	switch {
	case x.o.Endpoints == broker.LoadBalancer:
		return len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return broker.FamilyOf(a) == f })
	case !x.headless() || len(x.service.Spec.Selector) > 0:
		return false
	}
	return !slices.ContainsFunc(x.sources, func(s *discoveryv1.EndpointSlice) bool {
		return string(s.AddressType) == string(f) && len(s.Endpoints) > 0
	})
}

// balancers returns the addresses of the load balancer of the Service, sorted.
func (x *exporter) balancers() (addrs []netip.Addr) {
	for _, in := range x.service.Status.LoadBalancer.Ingress {
		if addr, err := broker.ParseAddress(in.IP); err == nil {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// withoutAddress returns why a load balancer has no address that other clusters could use: for good, or until it gets
// one.
func (x *exporter) withoutAddress() (failed, waits string) {
	addrs, families := x.balancers(), x.families()
	if len(addrs) == 0 {
		for _, in := range x.service.Status.LoadBalancer.Ingress {
			if in.Hostname != "" {
				return fmt.Sprintf("The load balancer of the Service has the host name %.80q and no address: want one with an IP.",
					in.Hostname), ""
			}
		}
		return "", "The load balancer of the Service has no address yet."
	}
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !slices.Contains(families, broker.FamilyOf(a)) })
	switch {
	case len(addrs) == 0:
		return fmt.Sprintf("The load balancer of the Service has no address of its family, %s.", families[0]), ""
	case x.o.Networks != nil && !slices.ContainsFunc(addrs, x.isDeclared):
		return fmt.Sprintf("The load balancer has the address %s, and this cluster has declared no network with it: "+
			"join again with --load-balancer-cidr.", addrs[0]), ""
	}
	return "", ""
}
