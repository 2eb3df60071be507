package cause

import (
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Input is a question and all that was read to explain it.
type Input struct {
	Name string // as the user gave it
	Type uint16 // of DNS
	Zone string // "clusterset.local", without final dot

	Now       time.Time
	TTL       time.Duration // age at which a heartbeat, and the Lease of a leader, has expired
	Namespace string        // of the controller

	Here    Cluster
	Broker  Broker
	Servers []Server // DNS servers that were asked or were to be asked; may be empty
	Unasked string   // option by which the user asks no server
	Wiring  Read[Wiring]
}

// Wiring is what the resolvers that Pods ask do with the zone, by their configuration.
type Wiring struct {
	Resolvers []wiring.Resolver
	Wanted    []netip.Addr // of the Service of the DNS server of the clusterset; empty if it does not exist
	Problem   string       // of that Service, "" if it has a ready endpoint
	Unread    string       // what could not be read, "" if that is nothing
	Kubelet   wiring.Kubelet
}

// behindCache reports whether Pods ask a node cache in place of this resolver, and the zone goes past the resolver from
// there.
func (s *Wiring) behindCache(r *wiring.Resolver) bool {
	return r.Kind != wiring.NodeLocal && s.cacheHasZone()
}

// cacheHasZone reports whether Pods ask a node cache that has the zone.
func (s *Wiring) cacheHasZone() bool {
	return slices.ContainsFunc(s.Resolvers, func(c wiring.Resolver) bool {
		return c.Kind == wiring.NodeLocal && (c.Route == wiring.RouteWanted || c.Route == wiring.RouteOther)
	})
}

// ReadState is the result of one read.
type ReadState uint8

// The states. The zero value: the read was not tried.
const (
	NotAsked ReadState = iota
	Present
	Absent
	NotInstalled // the API server does not have the kind
	Unauthorized // 401
	Forbidden    // 403
	Unreachable  // no answer, or a failure of the server
)

// A Read is one thing that was read, or why it was not.
type Read[T any] struct {
	State ReadState
	Value T      // if Present
	Why   string // one line without credentials, unless Present or Absent
}

// Known reports whether it is certain that the thing exists or that it does not.
func (r Read[T]) Known() bool {
	return r.State == Present || r.State == Absent || r.State == NotInstalled
}

// Cluster is the cluster of the users that ask for the name.
type Cluster struct {
	UID        Read[types.UID] // of Namespace kube-system
	ClusterID  Read[Property]
	ClusterSet Read[Property]
	Namespace  Read[*corev1.Namespace]
	Import     Read[Import]
	Slices     Read[[]*discoveryv1.EndpointSlice] // of the service, by their label
	Export     Read[*mcsv1beta1.ServiceExport]
	Leader     Read[*coordinationv1.LeaseSpec]
	Frozen     []wellknown.Freeze        // that the Lease of the leader names
	Namespaces wellknown.NamespaceChoice // that the Lease of the leader names
	Credential Read[Credential]
}

// Property is a ClusterProperty.
type Property struct {
	Value       string
	Annotations map[string]string
}

// Import is a ServiceImport.
type Import struct {
	JSON        []byte // as the API server has it
	Object      *mcsv1beta1.ServiceImport
	Undecodable string // why Object is nil
}

// Credential is what may be shown of the Secret of the join.
type Credential struct {
	Expires time.Time
	Invalid string // why it cannot be used, "" if it can
}

// Broker is what the broker shows. Nothing is asked without a credential.
type Broker struct {
	UID         Read[types.UID]
	Namespaces  Read[[]corev1.Namespace] // those of members
	Members     Read[[]v1alpha1.Member]
	Records     Read[[]v1alpha1.ExportedService] // of the service
	Slices      Read[[]discoveryv1.EndpointSlice]
	Heartbeats  Read[map[string]*coordinationv1.LeaseSpec] // by broker namespace
	Undecodable []string                                   // "ExportedService <namespace>/<name>: <why>"
}

// Role is the role of a DNS server.
type Role string

// The roles.
const (
	Named         Role = ""           // the user named it
	ClusterDNS    Role = "cluster"    // Pods ask it
	ClusterSetDNS Role = "clusterset" // it serves the zone
)

// Server is one DNS server and its replies.
type Server struct {
	Name     string // "pod/<name>", "service/<name>" or the address
	Role     Role
	UDP, TCP Reply
	Without  bool   // it stands for a Service without a ready Pod
	Unread   string // reason for not asking it; "" if it was asked
}

// Reply is one reply of a server.
type Reply struct {
	Asked    bool
	Failure  string // no reply: why
	Rcode    int
	Extended []uint16    // extended errors (RFC 8914)
	Reason   reason.Code // that the server names in their texts, with explain_answers; "" if it names none
	Zone     string      // owner of the SOA record in the authority section, lower case without final dot
	Values   []string    // of the records of the type asked for, sorted: addresses, or "<port> <target>"
}
