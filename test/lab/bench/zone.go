package main

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const (
	zone = "clusterset.local."
	ttl  = 5

	// A slice of Kubernetes' own controller holds as many endpoints at most.
	sliceSize = 100

	portName, portNumber = "http", 80

	masterTargets = 100 // see writeMaster
)

// clusters share the endpoints of every headless service.
var clusters = []string{"east", "north", "west"}

// A service is what one import and its slices say.
type service struct {
	namespace, name string
	ip              netip.Addr // the zero value means Headless
	first           int        // the number of the first endpoint; no two services share one
	endpoints       int
}

func (s service) headless() bool { return !s.ip.IsValid() }

func (s service) owner() string { return s.name + "." + s.namespace + ".svc." + zone }

func (s service) srvOwner() string { return "_" + portName + "._tcp." + s.owner() }

// start returns the first endpoint of the cluster with that index.
func (s service) start(cluster int) int { return cluster * s.endpoints / len(clusters) }

func hostname(endpoint int) string { return fmt.Sprintf("pod-%d", endpoint) }

// host returns the owner name of one endpoint.
func (s service) host(cluster, endpoint int) string {
	return hostname(endpoint) + "." + clusters[cluster] + "." + s.owner()
}

// hosts yields the owner name and the address of each endpoint.
func (s service) hosts() iter.Seq2[string, netip.Addr] {
	return func(yield func(string, netip.Addr) bool) {
		for c := range clusters {
			for i := s.start(c); i < s.start(c+1); i++ {
				if !yield(s.host(c, i), endpointAddr(s.first+i)) {
					return
				}
			}
		}
	}
}

// targets returns the owner names of all endpoints.
func (s service) targets() []string {
	var all []string
	for host := range s.hosts() {
		all = append(all, host)
	}
	return all
}

// endpointAddr returns an address for each number below 2^24.
func endpointAddr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// vip returns an address for each number below 2^22.
func vip(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{100, 64 + byte(n>>16), byte(n >> 8), byte(n)})
}

// vips returns n services of type ClusterSetIP, a hundred to a namespace.
func vips(n int) []service {
	all := make([]service, n)
	for i := range all {
		all[i] = service{namespace: fmt.Sprintf("vip-%d", i/100), name: fmt.Sprintf("svc-%d", i%100), ip: vip(i)}
	}
	return all
}

// headless returns n services of so many endpoints each, a hundred to a namespace. first is the number of the first
// endpoint.
func headless(namespace string, n, endpoints, first int) []service {
	all := make([]service, n)
	for i := range all {
		all[i] = service{
			namespace: fmt.Sprintf("%s-%d", namespace, i/100), name: fmt.Sprintf("svc-%d", i%100),
			first: first + i*endpoints, endpoints: endpoints,
		}
	}
	return all
}

func (s service) serviceImport() *mcsv1beta1.ServiceImport {
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type:  mcsv1beta1.Headless,
			Ports: []mcsv1beta1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: portNumber}},
		},
	}
	if !s.headless() {
		imp.Spec.Type, imp.Spec.IPs = mcsv1beta1.ClusterSetIP, []string{s.ip.String()}
	}
	return imp
}

// slices yields the EndpointSlices of a headless service. The caller may keep and change them.
func (s service) slices() iter.Seq[*discoveryv1.EndpointSlice] {
	return func(yield func(*discoveryv1.EndpointSlice) bool) {
		for c := range clusters {
			for lo := s.start(c); lo < s.start(c+1); lo += sliceSize {
				if !yield(s.slice(clusters[c], lo, min(lo+sliceSize, s.start(c+1)))) {
					return
				}
			}
		}
	}
}

// slice returns the endpoints from lo up to, without, hi.
func (s service) slice(cluster string, lo, hi int) *discoveryv1.EndpointSlice {
	name, protocol, port, ready := portName, corev1.ProtocolTCP, int32(portNumber), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: fmt.Sprintf("%s-%s-%d", s.name, cluster, lo),
			Labels: map[string]string{
				mcsv1beta1.LabelServiceName: s.name, mcsv1beta1.LabelSourceCluster: cluster,
				discoveryv1.LabelManagedBy: "bench.clusterset-dns",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	for i := lo; i < hi; i++ {
		host := hostname(i)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{endpointAddr(s.first + i).String()}, Hostname: &host,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return slice
}

// writeMaster writes what the services own as a master file (RFC 1035 section 5), but no SRV RRsets of headless
// services with more than masterTargets endpoints, for which no query asks.
func writeMaster(w io.Writer, services []service) error {
	b := bufio.NewWriter(w)
	_, _ = fmt.Fprintf(b, "%s %d IN SOA ns.dns.%s hostmaster.%s 1 7200 1800 86400 %d\n", zone, ttl, zone, zone, ttl)
	for _, s := range services {
		if !s.headless() {
			_, _ = fmt.Fprintf(b, "%s %d IN A %s\n", s.owner(), ttl, s.ip)
			_, _ = fmt.Fprintf(b, "%s %d IN SRV 0 100 %d %s\n", s.srvOwner(), ttl, portNumber, s.owner())
		}
		for host, addr := range s.hosts() {
			_, _ = fmt.Fprintf(b, "%s %d IN A %s\n", s.owner(), ttl, addr)
			_, _ = fmt.Fprintf(b, "%s %d IN A %s\n", host, ttl, addr)
			if s.endpoints <= masterTargets {
				_, _ = fmt.Fprintf(b, "%s %d IN SRV 0 1 %d %s\n", s.srvOwner(), ttl, portNumber, host)
			}
		}
	}
	return b.Flush()
}
