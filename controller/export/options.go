package export

import (
	"net/netip"
)

// Options say how, and whether, the cluster exports.
type Options struct {
	// ClusterID is that of the cluster; "" while it is no member of a clusterset.
	ClusterID string
	// BrokerNamespace is the namespace of the member on the broker.
	BrokerNamespace string
	// Namespace sets whether services of the namespace of the export may leave the cluster.
	Namespace NamespacePolicy
	// Networks are those that the cluster declared at its join: addresses outside of them are left out. While they are not
	// known they are nil, and no address is left out.
	Networks []netip.Prefix
	// LeftOut maps unpublished ClusterProperties to the reason: no selector matches them.
	LeftOut map[string]string
	// Endpoints is the kind of endpoints of exports without the annotation, see [broker.EndpointKinds].
	Endpoints string
	// ByZone: the endpoints of the export are now divided by zone on the broker. It counts for the strategy PreferZone
	// alone.
	ByZone bool
	// WantsVIP applies to exports without the annotation. If it is nil, the record has no VIP.
	WantsVIP *bool
}

// NamespacePolicy sets whether services of a namespace may be exported. The zero value allows no export.
type NamespacePolicy uint8

// The policies for a namespace.
const (
	NotAllowed  NamespacePolicy = iota // by import_namespaces and the names that are denied by default
	Allowed                            //
	Terminating                        // it is being deleted
)
