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

// A served is a port of one IP family, by its name in the import. The name is "" for a slice without ports.
type served struct {
	family   discoveryv1.AddressType
	protocol corev1.Protocol
	port     string
}

// LastResort drops from last resorts the endpoints that are not ready, and each port and IP family that another slice
// serves with a ready endpoint. The slices beside count as others. The given slices do not change.
func LastResort(sources []Source, imported, further []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	last := func(s *discoveryv1.EndpointSlice) bool {
		at := slices.IndexFunc(sources, func(
			src Source) bool {
			return src.Cluster == s.Labels[mcsv1beta1.LabelSourceCluster]
		})
		return at >= 0 && sources[at].LastResort > StampOf(s)
	}
	if !slices.ContainsFunc(imported, last) {
		return imported
	}
	others := make(map[served]bool)
	for _, s := range slices.Concat(imported, further) {
		if ready := func(e discoveryv1.Endpoint) bool { return broker.IsReady(e.Conditions) }; !last(s) &&
			slices.ContainsFunc(s.Endpoints, ready) {
			for _, p := range servedBy(s) {
				others[p] = true
			}
		}
	}
	var rest []*discoveryv1.EndpointSlice
	for _, s := range imported {
		if last(s) {
			s = needed(s, others)
		}
		if s != nil {
			rest = append(rest, s)
		}
	}
	return rest
}

// needed returns the part of a last resort that no other slice replaces, or nil.
func needed(s *discoveryv1.EndpointSlice, others map[served]bool) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return !broker.IsReady(e.Conditions)
	})
	serves, ports := servedBy(s), s.Ports
	s.Ports = nil
	for i, p := range ports {
		if !others[serves[i]] {
			s.Ports = append(s.Ports, p)
		}
	}
	if len(s.Endpoints) == 0 || len(ports) > 0 && len(s.Ports) == 0 || len(ports) == 0 && others[serves[0]] {
		return nil
	}
	return s
}

// servedBy lists the ports of a slice.
func servedBy(s *discoveryv1.EndpointSlice) (all []served) {
	for _, p := range s.Ports {
		current := served{family: s.AddressType, port: ptr.Deref(p.Name, "")}
		if p.Protocol != nil {
			current.protocol = *p.Protocol
		}
		all = append(all, current)
	}
	if len(all) == 0 {
		all = append(all, served{family: s.AddressType})
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
