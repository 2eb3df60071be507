package export

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// slices returns the slices for the own import, with nodeName, sorted by name.
func (x *exporter) slices() []*discoveryv1.EndpointSlice {
	if x.o.Endpoints == broker.ServiceIP && !x.headless() {
		x.strategy() // has no effect, which it reports
		return x.atOwnPorts(x.clusterIPs())
	}
	var exported []*discoveryv1.EndpointSlice
	for _, s := range x.sources {
		if x.exportable(s) {
			exported = append(exported, x.copyOf(s))
		}
	}
	exported = x.byStrategy(exported)
	slices.SortFunc(exported, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return exported
}

// exportable drops slices that every importer would reject as a whole.
func (x *exporter) exportable(s *discoveryv1.EndpointSlice) bool {
	switch {
	case s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6:
		x.drop("EndpointSlice %q is not exported: its address type is %.80q.", s.Name, s.AddressType)
	case len(s.Endpoints) > broker.MaxEndpoints:
		x.drop("EndpointSlice %q is not exported: it has %d endpoints, at most %d can be.", s.Name, len(s.Endpoints),
			broker.MaxEndpoints)
	case addresses(s) > broker.MaxEndpoints:
		x.drop("EndpointSlice %q is not exported: it has %d addresses, at most %d can be.", s.Name, addresses(s),
			broker.MaxEndpoints)
	case len(s.Ports) > broker.MaxPorts:
		x.drop("EndpointSlice %q is not exported: it has %d ports, at most %d can be.", s.Name, len(s.Ports), broker.MaxPorts)
	default:
		return true
	}
	return false
}

func addresses(s *discoveryv1.EndpointSlice) (n int) {
	for i := range s.Endpoints {
		n += len(s.Endpoints[i].Addresses)
	}
	return n
}

// copyOf returns one source slice as it is exported. Of its metadata only the time of the change travels, and for which
// zone or region it is; targetRef and hints mean nothing in another cluster.
func (x *exporter) copyOf(source *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s := x.newSlice(source.Name, source.AddressType)
	maps.Copy(s.Labels, broker.TopologyOf(source.Labels))
	if trigger, ok := source.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok && len(trigger) <= broker.MaxTrigger {
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger}
	}
	for i := range source.Endpoints {
		e := &source.Endpoints[i]
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  slices.Clone(e.Addresses),
			Conditions: *e.Conditions.DeepCopy(),
			Hostname:   clone(e.Hostname),
			Zone:       zone(e.Zone),
			NodeName:   clone(e.NodeName),
		})
	}
	for i := range source.Ports {
		s.Ports = append(s.Ports, *source.Ports[i].DeepCopy())
	}
	return s
}

// zone leaves out what no Node has as its zone: the broker would reject the whole slice for it.
func zone(z *string) *string {
	if z != nil && !broker.IsLabelValue(*z) {
		return nil
	}
	return clone(z)
}

// atOwnPorts returns a slice for each family of the export, sorted by name: addresses of the Service are the endpoints,
// at its own ports. While no endpoint of the Service is ready the list is empty, so that no request goes to a cluster
// that cannot serve it (first Lighthouse document, "EndpointSlice Behaviour"). A cluster IP needs one of its family.
func (x *exporter) atOwnPorts(addrs []netip.Addr) (all []*discoveryv1.EndpointSlice) {
	for _, f := range x.families() {
		family := discoveryv1.AddressType(f)
		s := x.newSlice(broker.ServiceIPSource(string(f)), family)
		for _, p := range x.service.Spec.Ports {
			protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{
				Name: &p.Name, Protocol: &protocol, Port: &p.Port, AppProtocol: clone(p.AppProtocol),
			})
		}
		ready := slices.ContainsFunc(x.sources, func(source *discoveryv1.EndpointSlice) bool {
			return (x.o.Endpoints == broker.LoadBalancer || source.AddressType == family) &&
				slices.ContainsFunc(source.Endpoints, isReady)
		})
		for _, addr := range addrs {
			if ready && broker.FamilyOf(addr) == f {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{addr.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				})
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// trim returns a copy for the broker: other clusters have no use for node names, and a pod that moves to another node
// need not change the slice.
func trim(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	t := s.DeepCopy()
	for i := range t.Endpoints {
		t.Endpoints[i].NodeName = nil
	}
	return t
}
