package cache

import (
	"time"

	"github.com/clusterset-dns/clusterset/api/reason"
)

// A Kind is one of the API kinds that input comes from.
type Kind uint8

// The kinds, in the order in which statistics show them.
const (
	ServiceImport Kind = iota
	EndpointSlice
	Namespace
	ClusterProperty
	kinds
)

// String is the name of the kind, as in the API.
func (k Kind) String() string {
	return [...]string{"ServiceImport", "EndpointSlice", "Namespace", "ClusterProperty"}[k]
}

// A Watch is one watch: of one namespace, or of all if that is "".
type Watch struct {
	Kind      Kind
	Namespace string
}

// The two cluster properties that count (KEP-2149).
const (
	propertyCluster    = "cluster.clusterset.k8s.io"
	propertyClusterSet = "clusterset.k8s.io"
)

// A Reason is why an object, or a part of it, was rejected. It is the label of a metric.
type Reason uint8

// The reasons.
const (
	BadObject      Reason = iota // spec cannot be decoded
	BadName                      // name or namespace is no label
	BadType                      // unknown spec.type of an import
	BadAddress                   // not an address, or one that a name here must not point at
	BadAddressType               // an EndpointSlice of neither IPv4 nor IPv6
	BadHostname                  // hostname is no label
	BadClusterID                 // source-cluster is no cluster id
	BadServiceName               // the label service-name is no label
	BadPort                      // port outside 1..65535, nil, or of an unknown protocol
	BadPortName                  // port name is no label
	BadProperty                  // value of a ClusterProperty is no id
	BadWeights                   // an annotation with weights of clusters that is malformed
	Panicked                     // a fault of this program: its earlier state stays
	reasons
)

// String is the reason as a metric label.
func (r Reason) String() string {
	return [...]string{
		"object", "name", "type", "address", "address_type", "hostname", "cluster_id", "service_name", "port",
		"port_name", "property", "weights", "panic",
	}[r]
}

// CodeOf returns the code of "clusterset explain" for a rejection of an object of a kind, "" if it has no code.
func CodeOf(k Kind, r Reason) reason.Code {
	switch k {
	case ServiceImport:
		return reason.Of(reason.RejectedImport, r.String())
	case EndpointSlice:
		return reason.Of(reason.RejectedSlice, r.String())
	}
	return ""
}

// A Rejection is one reason why an object, or a part of it, does not count.
type Rejection struct {
	Reason Reason
	Detail string // the bad value and the wanted form; for the log
}

// written is the time of the last write of an object; zero if unknown.
type written = time.Time
