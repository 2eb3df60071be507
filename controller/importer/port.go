package importer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// A port is one of a slice, for its IP family: proxies balance each by itself. The zero value stands for all of them.
type port struct {
	name     string
	protocol corev1.Protocol
	family   discoveryv1.AddressType
}

func keyOf(e *discoveryv1.EndpointSlice, p discoveryv1.EndpointPort) port {
	key := port{protocol: corev1.ProtocolTCP, family: e.AddressType}
	if p.Name != nil {
		key.name = *p.Name
	}
	if p.Protocol != nil {
		key.protocol = *p.Protocol
	}
	return key
}

func hasPort(e *discoveryv1.EndpointSlice, key port) bool {
	return slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool { return keyOf(e, p) == key })
}

// sameNumber reports whether two ports have equal numbers, or both no number.
func sameNumber(p, q discoveryv1.EndpointPort) bool {
	return p.Port == nil && q.Port == nil || p.Port != nil && q.Port != nil && *p.Port == *q.Port
}
