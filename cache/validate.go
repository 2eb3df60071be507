package cache

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/cache/index"
)

// The labels that are read of an EndpointSlice (KEP-1645, KEP-2030).
const (
	labelService = mcsv1beta1.LabelServiceName
	labelCluster = mcsv1beta1.LabelSourceCluster
	labelZone    = broker.LabelForZone
	labelRegion  = broker.LabelForRegion
)

// An item is what DNS needs of one API object. An item without imp, slice and value records only that the object
// exists. With keep, the previous item of the object stays.
type item struct {
	key     string // lower-case "<namespace>/<name>" of the object, or "<name>" where the kind has no namespace
	imp     *index.Import
	slice   *index.Slice
	service string // "<name>.<namespace>" of the service that slice belongs to
	value   string // of a ClusterProperty; anything but "" for a Namespace
	keep    bool
}

// A validation collects the rejections of one object. Only the first one for each reason counts: the metric counts
// objects, and one example a reason is enough for a log.
type validation struct {
	deny     []netip.Prefix // networks with rejected addresses
	rejected []Rejection
}

// reject notes a rejection. The value is cut, so that no object can flood the log.
func (v *validation) reject(reason Reason, what, value, want string) {
	if v.hasReason(reason) {
		return
	}
	v.rejected = append(v.rejected, Rejection{reason, fmt.Sprintf("%s %.80q: %s", what, value, want)})
}

// rejectFor notes a rejection that an error explains.
func (v *validation) rejectFor(reason Reason, err error) {
	if !v.hasReason(reason) {
		v.rejected = append(v.rejected, Rejection{reason, err.Error()})
	}
}

func (v *validation) hasReason(reason Reason) bool {
	return slices.ContainsFunc(v.rejected, func(r Rejection) bool { return r.Reason == reason })
}

// validateObject validates one object of a kind. Addresses in the networks of deny are rejected.
func validateObject(kind Kind, obj any, deny ...netip.Prefix) (item, []Rejection) {
	switch kind {
	case ServiceImport:
		return readImport(obj.(*customObject), deny...)
	case EndpointSlice:
		return readSlice(obj.(*discoveryv1.EndpointSlice), deny...)
	case ClusterProperty:
		return readProperty(obj.(*customObject))
	}
	key := keyOf(obj.(*corev1.Namespace))
	return item{key: key, value: key}, nil
}

// importSpec is the part of the spec of a ServiceImport that DNS needs. v1alpha1 and v1beta1 agree on it.
type importSpec struct {
	Type  string   `json:"type"`
	IPs   []string `json:"ips"`
	Ports []struct {
		Name     string          `json:"name"`
		Protocol corev1.Protocol `json:"protocol"`
		Port     int64           `json:"port"`
	} `json:"ports"`
}

// readImport turns a ServiceImport into an item.
//
// An import with addresses that are all rejected, or still to come, has asked for addresses of its own: answers from
// its slices would be wrong, so its name exists without addresses (docs/spec/dns.md 3.1).
func readImport(obj *customObject, deny ...netip.Prefix) (item, []Rejection) {
	v := validation{deny: deny}
	it := item{key: keyOf(obj)}
	namespace, name := strings.ToLower(obj.Namespace), strings.ToLower(obj.Name)
	if !broker.IsLabel(name) || !broker.IsLabel(namespace) {
		v.reject(BadName, "name", it.key, "want one RFC 1123 label each of namespace and name")
		return it, v.rejected
	}
	var spec importSpec
	if err := json.Unmarshal(obj.Spec, &spec); err != nil {
		v.reject(BadObject, "spec", err.Error(), "want that of a ServiceImport")
		return it, v.rejected
	}
	var typ index.Type
	switch spec.Type {
	case "ClusterSetIP":
		typ = index.ClusterSetIP
	case "Headless":
		typ = index.Headless
	default:
		v.reject(BadType, "type", spec.Type, "want ClusterSetIP or Headless")
		return it, v.rejected
	}
	var ips []netip.Addr
	for _, s := range spec.IPs {
		ips = v.address(ips, s)
	}
	ports := make([]index.Port, 0, len(spec.Ports))
	for _, p := range spec.Ports {
		ports = v.port(ports, p.Name, p.Protocol, p.Port)
	}
	vip := len(spec.IPs) > 0 || typ == index.ClusterSetIP && isPending(obj.Status)
	it.imp = index.NewImport(index.ImportSpec{
		Namespace: namespace, Name: name, Type: typ, VIP: vip, IPs: ips, Ports: index.NewPorts(ports),
		Weights: v.weights(obj),
	})
	return it, v.rejected
}

// weights returns the weights in an annotation, or nil if it is malformed.
func (v *validation) weights(obj *customObject) (list []index.Weight) {
	parsed, err := broker.ParseWeights(obj.Annotations[broker.AnnotationWeights])
	if err != nil {
		v.rejectFor(BadWeights, err)
	}
	for cluster, share := range parsed {
		list = append(list, index.Weight{Cluster: cluster, Share: share})
	}
	return list
}

// isPending reports whether a ServiceImport waits, as for its address: the condition Ready is False for the reason
// Pending (KEP-1645). A status that cannot be decoded does not count.
func isPending(status json.RawMessage) bool {
	var s struct {
		Conditions []struct{ Type, Status, Reason string } `json:"conditions"`
	}
	if len(status) == 0 || json.Unmarshal(status, &s) != nil {
		return false
	}
	for _, c := range s.Conditions {
		if c.Type == "Ready" && c.Status == "False" && c.Reason == "Pending" {
			return true
		}
	}
	return false
}

// readSlice turns an EndpointSlice into an item. A slice without a service name is ignored, not rejected: the API
// server is asked for the others only.
func readSlice(obj *discoveryv1.EndpointSlice, deny ...netip.Prefix) (item, []Rejection) {
	v := validation{deny: deny}
	it := item{key: keyOf(obj)}
	label, ok := obj.Labels[labelService]
	if !ok {
		return it, nil
	}
	namespace, name := strings.ToLower(obj.Namespace), strings.ToLower(label)
	if !broker.IsLabel(name) || !broker.IsLabel(namespace) {
		v.reject(BadServiceName, "service name", label, "want one RFC 1123 label")
		return it, v.rejected
	}
	spec := index.SliceSpec{Cluster: v.clusterID(obj), Zone: obj.Labels[labelZone], Region: obj.Labels[labelRegion],
		Hidden: isHidden(obj)}
	switch obj.AddressType {
	case discoveryv1.AddressTypeIPv4:
		spec.Family = index.V4
	case discoveryv1.AddressTypeIPv6:
		spec.Family = index.V6
	default:
		v.reject(BadAddressType, "address type", string(obj.AddressType), "want IPv4 or IPv6")
		return it, v.rejected
	}
	spec.Endpoints = v.endpoints(obj.Endpoints, spec.Family)
	spec.Ports = v.slicePorts(obj.Ports)
	it.slice, it.service = index.NewSlice(spec), name+"."+namespace
	return it, v.rejected
}

// isHidden reports whether our controller hides a slice, because its cluster is not selected
// (docs/spec/selection.md 4). In slices of others the label has other meanings.
func isHidden(obj *discoveryv1.EndpointSlice) bool {
	_, hidden := obj.Labels[corev1.IsHeadlessService]
	return hidden && obj.Labels[discoveryv1.LabelManagedBy] == broker.ManagedBy
}

// clusterID returns the id of the cluster that obj comes from, or "" if it is missing or rejected.
func (v *validation) clusterID(obj *discoveryv1.EndpointSlice) string {
	label, ok := obj.Labels[labelCluster]
	if !ok {
		return ""
	}
	id := strings.ToLower(label)
	if !broker.IsClusterID(id) {
		v.reject(BadClusterID, "source cluster", label, "want one RFC 1123 label, or two joined by one dot")
		return ""
	}
	return id
}

// maxAddresses is how many addresses of one endpoint can be kept. The API server permits 100.
const maxAddresses = 1<<16 - 1

// endpoints returns the ready ones with the addresses that count.
func (v *validation) endpoints(list []discoveryv1.Endpoint, family index.Family) []index.Endpoint {
	ready := make([]index.Endpoint, 0, len(list))
	for i := range list {
		ep := &list[i]
		if !broker.IsReady(ep.Conditions) {
			continue
		}
		var addrs []netip.Addr
		for _, s := range ep.Addresses[:min(len(ep.Addresses), maxAddresses)] {
			before := len(addrs)
			addrs = v.address(addrs, s)
			if len(addrs) > before && addrs[before].Is4() != (family == index.V4) {
				v.reject(BadAddress, "address", s, "want one of the slice's address type")
				addrs = addrs[:before]
			}
		}
		if len(addrs) > 0 {
			ready = append(ready, index.Endpoint{Host: v.hostname(ep.Hostname), Addrs: addrs})
		}
	}
	return ready
}

// hostname returns the host label of an endpoint, or "" if it is missing or rejected.
func (v *validation) hostname(given *string) string {
	if given == nil || *given == "" {
		return ""
	}
	host := strings.ToLower(*given)
	if !broker.IsLabel(host) {
		v.reject(BadHostname, "hostname", *given, "want one RFC 1123 label")
		return ""
	}
	return host
}

func (v *validation) slicePorts(list []discoveryv1.EndpointPort) index.Ports {
	ports := make([]index.Port, 0, len(list))
	for _, p := range list {
		var name string
		if p.Name != nil {
			name = *p.Name
		}
		if p.Port == nil {
			v.reject(BadPort, "port", name, "want a number")
			continue
		}
		var proto corev1.Protocol
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		ports = v.port(ports, name, proto, int64(*p.Port))
	}
	return index.NewPorts(ports)
}

// address adds the address in s to addrs, unless it is there already or must not be served.
func (v *validation) address(addrs []netip.Addr, s string) []netip.Addr {
	addr, err := broker.ParseAddress(s)
	switch {
	case err != nil:
		v.rejectFor(BadAddress, err)
	case v.denies(addr):
		v.reject(BadAddress, "address", s, "want one that is not denied")
	case !slices.Contains(addrs, addr):
		return append(addrs, addr)
	}
	return addrs
}

// denies reports whether an address, or the IPv4 address in it that a translator takes, is in a network that is denied.
func (v *validation) denies(addr netip.Addr) bool {
	inner, _ := broker.Embedded(addr) // no network contains the zero address
	return slices.ContainsFunc(v.deny, func(p netip.Prefix) bool { return p.Contains(addr) || p.Contains(inner) })
}

// maxPortName leaves room for the underscore before a port name in one label (RFC 2782).
const maxPortName = 62

// port adds a port. A port with a bad name stays as an unnamed one: it owns no SRV record.
func (v *validation) port(ports []index.Port, name string, protocol corev1.Protocol, number int64) []index.Port {
	var proto index.Proto
	switch protocol {
	case corev1.ProtocolTCP, "":
		proto = index.TCP
	case corev1.ProtocolUDP:
		proto = index.UDP
	case corev1.ProtocolSCTP:
		proto = index.SCTP
	default:
		v.reject(BadPort, "protocol", string(protocol), "want TCP, UDP or SCTP")
		return ports
	}
	if number < 1 || number > 65535 {
		v.reject(BadPort, "port", fmt.Sprint(number), "want 1 to 65535")
		return ports
	}
	label := strings.ToLower(name)
	if label != "" && (!broker.IsLabel(label) || len(label) > maxPortName) {
		v.reject(BadPortName, "port name", name, "want one RFC 1123 label of at most 62 octets")
		label = ""
	}
	return append(ports, index.Port{Name: label, Proto: proto, Number: uint16(number)})
}

// readProperty keeps the two properties that count. All others are ignored.
func readProperty(obj *customObject) (item, []Rejection) {
	var v validation
	it := item{key: keyOf(obj)}
	if obj.Name != propertyCluster && obj.Name != propertyClusterSet {
		return it, nil
	}
	var spec struct {
		Value string `json:"value"`
	}
	if err := json.Unmarshal(obj.Spec, &spec); err != nil {
		v.reject(BadObject, "spec", err.Error(), "want that of a ClusterProperty")
		return it, v.rejected
	}
	value := strings.ToLower(spec.Value)
	if obj.Name == propertyCluster && !broker.IsClusterID(value) {
		v.reject(BadProperty, "cluster id", spec.Value, "want one RFC 1123 label, or two joined by one dot")
		return it, v.rejected
	}
	if obj.Name == propertyClusterSet && !broker.IsSubdomain(value) {
		v.reject(BadProperty, "clusterset id", spec.Value, "want an RFC 1123 subdomain")
		return it, v.rejected
	}
	it.value = value
	return it, nil
}
