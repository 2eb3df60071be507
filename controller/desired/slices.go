package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/shorten"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// DerivedName is the name of the Service that is derived from an import.
func DerivedName(namespace, name string) string { return "derived-" + broker.Hash(16, namespace, name) }

// importedPrefix starts the name of an imported slice.
const importedPrefix = "imported-"

// A Source is the slices of one member, with the state of that member.
type Source struct {
	Cluster string
	// Slices are those on the broker, or for the importing cluster itself those that its exporter makes. Their names are
	// valid, and agree with their labels.
	Slices []*discoveryv1.EndpointSlice
	// Kept are imported slices that stay, since the broker lacks their sources.
	Kept []*discoveryv1.EndpointSlice
	// From: objects of the export with a lower stamp do not count.
	From int64
	// LastResort makes slices with a lower stamp a last resort.
	LastResort int64
	// Local: they come from the importing cluster's own API server. Their nodeName stays, and their addresses need no
	// declaration.
	Local bool
	// Declared are the networks of the member (its Member object). No address outside them counts.
	Declared []netip.Prefix
	// Reserved are the networks of the importing cluster itself, of Pods and of Services. No address of another member in
	// them counts.
	Reserved []netip.Prefix
}

// Slices returns the imported form of the slices of one member, in their order, and the rejections. It shares no
// memory with src.
//
// Only ports of the member's port map are left, under the names of the import; only families of the import; only
// addresses that the member may offer (docs/spec/controller.md 9). A slice in which nothing counts is left out. Kept
// slices are added unchanged, and shown.
func Slices(r merge.Result, src Source) ([]*discoveryv1.EndpointSlice, []merge.Rejection) {
	at := slices.IndexFunc(r.Members, func(m merge.Member) bool { return m.Cluster == src.Cluster })
	if r.Import == nil || at < 0 || r.Members[at].LeftOut != "" {
		return nil, nil
	}
	im := &importer{Result: r, src: src, member: r.Members[at], reported: make(map[merge.Rejection]bool)}
	var imported []*discoveryv1.EndpointSlice
	names := make(map[string]bool, len(src.Slices))
	for _, s := range src.Slices {
		if err := checkBounds(s); err != nil {
			im.reject(s, merge.BadSlice, err)
			continue
		}
		if i := im.slice(s); i != nil {
			names[i.Name] = true
			imported = append(imported, i)
		}
	}
	for _, s := range src.Kept {
		if !names[s.Name] {
			imported = append(imported, ShownCopy(s))
		}
	}
	return imported, im.rejected
}

// An importer reads the slices of one member.
type importer struct {
	merge.Result
	src      Source
	member   merge.Member
	rejected []merge.Rejection
	reported map[merge.Rejection]bool // those in rejected, without details
}

// reject records a rejection, once for each slice and reason.
func (im *importer) reject(s *discoveryv1.EndpointSlice, reason merge.Reason, err error) {
	r := merge.Rejection{Cluster: im.src.Cluster, Object: shorten.Text(s.Name, 253), Reason: reason}
	if im.reported[r] {
		return
	}
	im.reported[r] = true
	r.Detail = err.Error()
	im.rejected = append(im.rejected, r)
}

// checkBounds returns why a whole slice is rejected.
func checkBounds(s *discoveryv1.EndpointSlice) error {
	switch {
	case s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6:
		return fmt.Errorf("address type %.80q: want IPv4 or IPv6", s.AddressType)
	case len(s.Endpoints) > broker.MaxEndpoints:
		return fmt.Errorf("%d endpoints: want at most %d", len(s.Endpoints), broker.MaxEndpoints)
	case len(s.Ports) > broker.MaxPorts:
		return fmt.Errorf("%d ports: want at most %d", len(s.Ports), broker.MaxPorts)
	}
	for i := range s.Endpoints {
		if n := len(s.Endpoints[i].Addresses); n > broker.MaxAddresses {
			return fmt.Errorf("%d addresses of one endpoint: want at most %d", n, broker.MaxAddresses)
		}
	}
	return nil
}

// slice returns the imported form of s, or nil if nothing in it counts.
func (im *importer) slice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if !slices.Contains(im.Import.Spec.IPFamilies, corev1.IPFamily(s.AddressType)) {
		return nil
	}
	ports := im.ports(s.Ports)
	portless := len(s.Ports) == 0 && im.Import.Spec.Type == mcsv1beta1.Headless
	if len(ports) == 0 && len(im.Import.Spec.Ports) > 0 && !portless {
		return nil
	}
	imported := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: im.Import.Namespace,
			Name:      importedPrefix + broker.Hash(32, im.src.Cluster, im.Import.Namespace, s.Name),
			Labels:    im.labels(s),
		},
		AddressType: s.AddressType,
		Endpoints:   im.endpoints(s),
		Ports:       ports,
	}
	if len(imported.Endpoints) == 0 && len(s.Endpoints) > 0 {
		return nil
	}
	// The lag of an endpoint is measured from here.
	trigger := s.Annotations[corev1.EndpointsLastChangeTriggerTime]
	if _, err := time.Parse(time.RFC3339Nano, trigger); err == nil {
		metav1.SetMetaDataAnnotation(&imported.ObjectMeta, corev1.EndpointsLastChangeTriggerTime, trigger)
	}
	if !im.src.Local {
		metav1.SetMetaDataAnnotation(&imported.ObjectMeta, broker.AnnotationSource, im.source(s))
	}
	return imported
}

// source is the note of an imported slice about its source.
func (im *importer) source(s *discoveryv1.EndpointSlice) string {
	return fmt.Sprintf("%s %s %d %s", broker.SliceHash(s.Name), s.Annotations[broker.AnnotationExportUID], im.src.From,
		s.Annotations[broker.AnnotationStamp])
}

// labels are those of docs/spec/controller.md 5.5. Every slice has kubernetes.io/service-name, also where there is no
// derived Service: CoreDNS's plugin kubernetes makes names of it for reverse lookups. kube-proxy ignores a name that no
// Service has.
func (im *importer) labels(s *discoveryv1.EndpointSlice) map[string]string {
	l := map[string]string{
		mcsv1beta1.LabelServiceName:   im.Import.Name,
		mcsv1beta1.LabelSourceCluster: im.src.Cluster,
		discoveryv1.LabelManagedBy:    broker.ManagedBy,
		discoveryv1.LabelServiceName:  DerivedName(im.Import.Namespace, im.Import.Name),
	}
	if im.Import.Spec.Type == mcsv1beta1.Headless {
		l[corev1.IsHeadlessService] = ""
	}
	maps.Copy(l, broker.TopologyOf(s.Labels))
	return l
}

func (im *importer) ports(ports []discoveryv1.EndpointPort) []discoveryv1.EndpointPort {
	var imported []discoveryv1.EndpointPort
	for _, p := range ports {
		protocol := ptr.Deref(p.Protocol, corev1.ProtocolTCP)
		at := slices.IndexFunc(im.member.Ports, func(m merge.PortMapping) bool {
			return m.From == ptr.Deref(p.Name, "") && m.Protocol == protocol
		})
		if port := ptr.Deref(p.Port, 0); at < 0 || port < 1 || port > 65535 {
			continue
		}
		m := im.member.Ports[at]
		named := func(q discoveryv1.EndpointPort) bool { return *q.Name == m.To }
		if slices.ContainsFunc(imported, named) { // the API server rejects a second port of a name
			continue
		}
		port := discoveryv1.EndpointPort{Name: &m.To, Protocol: &protocol, Port: p.Port, AppProtocol: m.AppProtocol}
		imported = append(imported, *port.DeepCopy())
	}
	return imported
}

func (im *importer) endpoints(s *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	var imported []discoveryv1.Endpoint
	for i := range s.Endpoints {
		from, addresses := &s.Endpoints[i], im.addresses(s, s.Endpoints[i].Addresses)
		if len(addresses) == 0 {
			continue
		}
		to := discoveryv1.Endpoint{Conditions: from.Conditions}
		if broker.IsLabel(ptr.Deref(from.Hostname, "")) {
			to.Hostname = from.Hostname
		}
		if zone := ptr.Deref(from.Zone, ""); zone != "" && broker.IsLabelValue(zone) {
			to.Zone = from.Zone
		}
		if im.src.Local {
			to.NodeName = from.NodeName
		}
		to = *to.DeepCopy()
		to.Addresses = addresses
		imported = append(imported, to)
	}
	return imported
}

// addresses returns those that count, in canonical form.
func (im *importer) addresses(s *discoveryv1.EndpointSlice, given []string) []string {
	var addresses []string
	for _, text := range given {
		addr, err := broker.ParseAddress(text)
		reason := merge.BadAddress
		if err == nil {
			reason, err = im.accept(s.AddressType, addr)
		}
		if err != nil {
			im.reject(s, reason, err)
			continue
		}
		if canonical := addr.String(); !slices.Contains(addresses, canonical) {
			addresses = append(addresses, canonical)
		}
	}
	return addresses
}

// accept returns the reason why a member may not offer an address.
func (im *importer) accept(family discoveryv1.AddressType, addr netip.Addr) (merge.Reason, error) {
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch {
	case addr.Is4() != (family == discoveryv1.AddressTypeIPv4):
		return merge.BadAddress, fmt.Errorf("address %s: want one of the address type %s", addr, family)
	case im.src.Local:
		return "", nil
	case slices.ContainsFunc(im.src.Reserved, within):
		return merge.OwnCIDR, fmt.Errorf("address %s: want none in the networks of this cluster itself", addr)
	case !slices.ContainsFunc(im.src.Declared, within):
		return merge.AlienCIDR, fmt.Errorf("address %s: want one in a network that its member declared", addr)
	}
	return "", nil
}
