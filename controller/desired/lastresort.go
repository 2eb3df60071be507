package desired

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A Port is one of a slice, for its IP family: proxies balance each by itself. The zero value stands for all of them.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Family   discoveryv1.AddressType
}

// PortOf returns the port of a slice that one of its entries is.
func PortOf(e *discoveryv1.EndpointSlice, p discoveryv1.EndpointPort) Port {
	return Port{ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP), e.AddressType}
}

// HasPort reports whether a slice has a port.
func HasPort(e *discoveryv1.EndpointSlice, port Port) bool {
	return slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool { return PortOf(e, p) == port })
}

// LastResort drops from last resorts the endpoints that are not ready, and each port and IP family that another slice
// serves with a ready endpoint. The slices beside count as others. The given slices do not change.
func LastResort(sources []Source, imported, further []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	last := func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(sources, func(src Source) bool {
			return src.Cluster == s.Labels[mcsv1beta1.LabelSourceCluster] && src.LastResort > StampOf(s)
		})
	}
	if !slices.ContainsFunc(imported, last) {
		return imported
	}
	others := make(map[Port]bool)
	ready := func(e discoveryv1.Endpoint) bool { return broker.IsReady(e.Conditions) }
	for _, s := range slices.Concat(imported, further) {
		if !last(s) && slices.ContainsFunc(s.Endpoints, ready) {
			for _, p := range servedBy(s) {
				others[p] = true
			}
		}
	}
	var rest []*discoveryv1.EndpointSlice
	for _, s := range imported {
		if last(s) {
			s = neededPart(s, others)
		}
		if s != nil {
			rest = append(rest, s)
		}
	}
	return rest
}

// neededPart returns the part of a last resort that no other slice replaces, or nil.
func neededPart(s *discoveryv1.EndpointSlice, others map[Port]bool) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	portless := len(s.Ports) == 0
	s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return !broker.IsReady(e.Conditions)
	})
	s.Ports = slices.DeleteFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return others[PortOf(s, p)] })
	if len(s.Endpoints) == 0 || len(s.Ports) == 0 && !portless || portless && others[Port{Family: s.AddressType}] {
		return nil
	}
	return s
}

// servedBy lists the ports of a slice; without ports one that has only the family.
func servedBy(s *discoveryv1.EndpointSlice) (all []Port) {
	if len(s.Ports) == 0 {
		return []Port{{Family: s.AddressType}}
	}
	for _, p := range s.Ports {
		all = append(all, PortOf(s, p))
	}
	return all
}

// StampOf returns the stamp of a slice on the broker, or of the source of an imported slice. It is 0 without a stamp.
func StampOf(s *discoveryv1.EndpointSlice) int64 {
	if source, ok := SourceOf(s); ok {
		return source.Stamp
	}
	stamp, err := strconv.ParseInt(s.Annotations[broker.AnnotationStamp], 10, 64)
	if err != nil {
		return 0
	}
	return stamp
}

// A NotedSource is what an imported slice notes of the slice that it was made from: the hash in its name, the UID of
// the ServiceExport, and its stamp.
type NotedSource struct {
	Hash, UID string
	Stamp     int64
}

// SourceOf returns the source that an imported slice notes; ok is false where it has no note, or one that cannot be
// read.
func SourceOf(imported *discoveryv1.EndpointSlice) (source NotedSource, ok bool) {
	words := strings.Split(imported.Annotations[broker.AnnotationSource], " ")
	if len(words) != 4 {
		return NotedSource{}, false
	}
	stamp, err := strconv.ParseInt(words[3], 10, 64)
	return NotedSource{Hash: words[0], UID: words[1], Stamp: stamp}, err == nil
}
