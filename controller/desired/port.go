package desired

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// A Port is one of a slice, for its IP family: proxies balance each by itself. The zero value stands for all of them.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Family   discoveryv1.AddressType
}

// PortOf returns the port of a slice that one of its entries is.
func PortOf(e *discoveryv1.EndpointSlice, p discoveryv1.EndpointPort) Port {
	port := Port{Protocol: corev1.ProtocolTCP, Family: e.AddressType}
	if p.Name != nil {
		port.Name = *p.Name
	}
	if p.Protocol != nil {
		port.Protocol = *p.Protocol
	}
	return port
}

// HasPort reports whether a slice has a port.
func HasPort(e *discoveryv1.EndpointSlice, port Port) bool {
	return slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool { return PortOf(e, p) == port })
}
