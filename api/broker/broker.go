// Package broker names what all that is written to a broker, or made from it, agrees on: the API group, object names,
// labels, bounds, and which texts are valid in it.
//
// The functions are pure. The CRDs of the group reject what these functions reject, where a schema can say it.
package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// GroupName is the API group of ExportedService and Member.
const GroupName = "broker.clusterset-dns.io"

// The labels of objects on the broker.
const (
	// LabelClusterID is on the broker namespace of a member and holds its cluster id. Only this label tells the owner
	// of the objects in that namespace.
	LabelClusterID = GroupName + "/cluster-id"

	// LabelSourceNamespace is on export records and their slices and holds the namespace of the exported service.
	LabelSourceNamespace = GroupName + "/source-namespace"
)

// Importers compare these annotations of slices on the broker (docs/spec/controller.md 2.6). Members have
// [AnnotationStamp], too.
const (
	AnnotationStamp     = GroupName + "/stamp"      // as spec.stamp of an export record, in decimal digits
	AnnotationExportUID = GroupName + "/export-uid" // as spec.exportUID
)

// The notes in an importing cluster about the sources of an import, for the next process.
const (
	// AnnotationSources on a ServiceImport describes the export record of each cluster.
	AnnotationSources = GroupName + "/sources"
	// AnnotationSource on an imported slice describes its source: hash in the name, UID of the export, lowest stamp that
	// counts, own stamp.
	AnnotationSource = GroupName + "/source"
)

// Protocol is the newest version of what members write on the broker that this code knows
// (docs/spec/controller.md 2.1).
const Protocol = 1

// InventoryParts is how many parts the inventory of a member has.
const InventoryParts = 64

// InventoryPart is the name of the part that an export belongs to.
func InventoryPart(namespace, name string) string {
	sum := sha256.Sum256([]byte(RecordName(namespace, name)))
	return InventoryPartName(int(sum[0] % InventoryParts))
}

// InventoryPartName is the name of the n-th part, from 0.
func InventoryPartName(n int) string { return hex.EncodeToString([]byte{byte(n)}) }

// ManagedBy marks objects as ours: it is the value of app.kubernetes.io/managed-by or, on an EndpointSlice, of
// endpointslice.kubernetes.io/managed-by.
const ManagedBy = "controller.clusterset-dns.io"

// LabelManagedBy is the label of every object but EndpointSlices that holds [ManagedBy].
const LabelManagedBy = "app.kubernetes.io/managed-by"

// HeartbeatName is the name of the Lease in the broker namespace of a member.
const HeartbeatName = "heartbeat"

// Objects of a join (docs/spec/controller.md 2.4, docs/spec/controller.md 7.2). The kubeconfig in the Secret names its
// token file as "token": mounted as a folder, the Secret is complete.
const (
	// SecretName is the Secret in the controller's namespace of a member that holds its broker credential.
	SecretName = "clusterset-broker"
	// KeyKubeconfig and KeyToken are the keys of that Secret.
	KeyKubeconfig = "kubeconfig"
	KeyToken      = "token"

	// ServiceAccount is the account of a member in its broker namespace. Its user name is that of no other member.
	ServiceAccount = "member"

	// AnnotationBrokerUID on the ClusterProperty clusterset.k8s.io is the UID of the broker's namespace kube-system as the
	// join saw it.
	AnnotationBrokerUID = "clusterset-dns.io/broker-uid"
	// AnnotationLeaving on the same ClusterProperty, with any value, takes the cluster out of the clusterset: its
	// controller withdraws everything.
	AnnotationLeaving = "clusterset-dns.io/leaving"

	// AnnotationClusterSet on a Member is the name of the clusterset as the cluster knows it, in its ClusterProperty
	// clusterset.k8s.io. All members of one broker have the same.
	AnnotationClusterSet = "clusterset-dns.io/clusterset"

	// AnnotationVIP on the CRD of Member is the option "vip" that the members of the clusterset shall have, as in the
	// Corefile; empty or absent: nothing is said.
	AnnotationVIP = "clusterset-dns.io/vip"

	// AnnotationMerge beside it is the option "merge"; empty or absent: kep.
	AnnotationMerge = "clusterset-dns.io/merge"

	// AnnotationRemoved on a broker namespace is the time, in RFC 3339, when its cluster left or was removed. The
	// namespace then also has [AnnotationBrokerUID]. A removed cluster may read this namespace and nothing else.
	AnnotationRemoved = "clusterset-dns.io/removed"

	// AnnotationJoined on a broker namespace distinguishes this join from earlier ones in the same namespace. Marks of
	// earlier joins do not apply to it.
	AnnotationJoined = "clusterset-dns.io/joined"

	// AnnotationComplete on a heartbeat is the stamp at which the member began its last pass over all exports.
	AnnotationComplete = "clusterset-dns.io/complete"
	// AnnotationBlind on a heartbeat names a kind of its own cluster that the member cannot read, or an inventory that it
	// cannot write.
	AnnotationBlind = "clusterset-dns.io/blind"

	// AnnotationVersion on a CRD, policy or role that a join or the initialisation of a broker wrote is the version of the
	// set that it belongs to, a whole number.
	AnnotationVersion = "clusterset-dns.io/version"
)

// AnnotationAllowedSources on a Namespace of an importing cluster lists the only clusters with imported exports there,
// with commas between their ids (docs/spec/controller.md 9.2).
const AnnotationAllowedSources = "clusterset-dns.io/allowed-source-clusters"

// The rule of a namespace for exports (docs/spec/controller.md 3.9).
const (
	// AnnotationExportSelector on a Namespace is a label selector: the Services that it matches are exported.
	AnnotationExportSelector = "clusterset-dns.io/export-selector"
	// AnnotationExport on a Service is "false" if no rule exports it.
	AnnotationExport = "clusterset-dns.io/export"
)

// The annotations of a ServiceExport that say which clusters it reaches (docs/spec/controller.md 3.8).
const (
	// AnnotationToClusters holds ids of clusters with commas between them, or a list of selectors, the JSON of
	// spec.clusterSelectors of KEP-5939.
	AnnotationToClusters = "clusterset-dns.io/to-clusters"
	// AnnotationExportedTo has the ids of the members that such an export reaches. The controller writes it.
	AnnotationExportedTo = "clusterset-dns.io/exported-to"
)

// The annotations that say which clusters traffic goes to (docs/spec/selection.md). On a Namespace they are those of
// the importing cluster, on a ServiceExport those of an exporting one.
const (
	// AnnotationSelectors holds a list of selectors, the JSON of spec.clusterSelectors of KEP-5939. The controller writes
	// it, and AnnotationResults, to ServiceImports.
	AnnotationSelectors = "clusterset-dns.io/cluster-selectors"
	// AnnotationResults on a ServiceImport holds the clusters that each selector matches, as status.clusterSelectorResults
	// of KEP-5939.
	AnnotationResults = "clusterset-dns.io/cluster-selector-results"
	// AnnotationAffinity is a short form: local, region, remote or none.
	AnnotationAffinity = "clusterset-dns.io/affinity"
	// AnnotationCiliumAffinity is the same for users of Cilium's global services.
	AnnotationCiliumAffinity = "service.cilium.io/affinity"
	// AnnotationWeights on a Namespace holds the [Weights] of clusters. The controller writes it to ServiceImports.
	AnnotationWeights = "clusterset-dns.io/weights"
	// AnnotationTrafficDistribution on a Namespace replaces the traffic distribution of the exports: a value of
	// spec.trafficDistribution of Services, or none.
	AnnotationTrafficDistribution = "clusterset-dns.io/traffic-distribution"
)

// AnnotationDerivedService on a ServiceImport is the name of the Service that is derived from it. Implementations of
// the Gateway API that route to Services, such as that of Cilium, find the Service of an import by it.
const AnnotationDerivedService = "multicluster.kubernetes.io/derived-service"

// AnnotationSliceStrategy on a ServiceExport divides its endpoints into slices: Original, PreferZone or RequireZone
// (KEP-2030; docs/spec/controller.md 3.7).
const AnnotationSliceStrategy = "clusterset-dns.io/slice-strategy"

// AnnotationEndpoints on a ServiceExport replaces the option "endpoints" of the controller
// (docs/spec/controller.md 3.4).
const AnnotationEndpoints = "clusterset-dns.io/endpoints"

// VIPClass is the class of the load balancers that carry clusterset IPs ("vip cidr"): kube-proxy, or its replacement.
// No other controller takes a Service of this class.
const VIPClass = "clusterset-dns.io/vip"

// AnnotationVIPs on a ServiceImport notes its clusterset IPs, and by which inventories it has them
// (docs/spec/controller.md 5.7).
const AnnotationVIPs = "clusterset-dns.io/clusterset-ips"

// The annotations of the second Lighthouse document ("VIP CIDR and allocation", "Annotations for ServiceExport").
const (
	// AnnotationUseVIP on a ServiceExport is "true" or "false" and overrides the flag of its cluster. On an import it
	// is the result: the service has clusterset IPs, or will have them.
	AnnotationUseVIP = "lighthouse.submariner.io/use-clusterset-ip"

	// AnnotationAllocatedBy on a ServiceImport is the id of the cluster that allocated its clusterset IP.
	AnnotationAllocatedBy = "lighthouse.submariner.io/clusterset-ip-allocated-by"
)

// Bounds of what an export record and its slices may hold. Whatever is beyond them is rejected whole.
const (
	MaxExports   = 5000 // of one member
	MaxInventory = 500  // exports in one part of an inventory
	MaxSlices    = 1000 // of one export record
	MaxPorts     = 100  // of one export record, and of one slice
	MaxEndpoints = 1000 // of one slice
	MaxAddresses = 100  // of one endpoint
	MaxMetadata  = 64   // exported labels, and likewise exported annotations, of one export record
	MaxValue     = 4096 // characters of the value of an annotation
	MaxCIDRs     = 64   // pod CIDRs, and likewise service CIDRs, of one member
	MaxTrigger   = 64   // octets of the time of the last change in a slice

	MaxProperties    = 32      // ClusterProperties that a member publishes
	MaxPropertyValue = 256     // characters of the value of one
	MaxPropertySize  = 8 << 10 // octets of the names and values of all

	MaxRejected        = 64  // rejected exports that a member publishes
	MaxRejectedReason  = 64  // characters of the reason of one
	MaxRejectedMessage = 200 // characters of its message

	MaxSelectors      = 16      // of one export record
	MaxRequirements   = 16      // of one selector
	MaxSelectorValues = 32      // of one requirement
	MaxSelectorSize   = 8 << 10 // characters of the names and values in the selectors of one record
	MaxValues         = 512     // of all requirements in these: each takes memory of its own in every controller

	MaxExportedTo = 4 << 10 // octets of the ids in [AnnotationExportedTo]

	// MaxAnnotations is the most octets of the keys and values of the exported annotations of one service. The rest is
	// left out. Every controller holds the records of all members in memory.
	MaxAnnotations = 32 << 10
)

// AnnotationCreatedFor on a Namespace that the controller created has the id of the first exporting cluster.
const AnnotationCreatedFor = "clusterset-dns.io/created-for"

// The most that a cluster imports of all other members together (docs/spec/controller.md 9.6).
const (
	MaxCreatedNamespaces = 500     // that the controller has created
	MaxImports           = 20_000  // services
	MaxImportedEndpoints = 500_000 // of all services
	MaxServiceEndpoints  = 100_000 // of one service
)

// MaxHeartbeatTTL bounds the TTL that a member may ask of the others. It is also what a member with "lease 0" asks for,
// which renews its heartbeat so seldom that others should not drop it while it lives (docs/spec/controller.md 8.2).
const MaxHeartbeatTTL = time.Hour

// HeartbeatTTL returns the TTL of a heartbeat for a cluster with the TTL own: the larger of it and the one in the
// Lease, which counts up to MaxHeartbeatTTL.
func HeartbeatTTL(lease *coordinationv1.LeaseSpec, own time.Duration) time.Duration {
	if lease.LeaseDurationSeconds == nil {
		return own
	}
	return max(own, min(time.Duration(*lease.LeaseDurationSeconds)*time.Second, MaxHeartbeatTTL))
}

// HeartbeatExpired reports whether the heartbeat of a member has expired, so that the member is silent for a cluster
// with the TTL own (docs/spec/controller.md 8.2). It has been renewed at least once.
func HeartbeatExpired(lease *coordinationv1.LeaseSpec, own time.Duration, now time.Time) bool {
	return now.Sub(lease.RenewTime.Time) >= HeartbeatTTL(lease, own)
}

// maxPrefix is how many octets of a prefix count in [NamespaceName]: with "-" and 16 digits it stays one label.
const maxPrefix = 40

// RecordName is the name of the export record of a service: "<name>.<namespace>". It is unambiguous, as neither part
// contains a dot.
func RecordName(namespace, name string) string { return name + "." + namespace }

// SliceName is the name on the broker of the slice that stands for source: "<name>.<namespace>.<hash>" of the service,
// where the hash is 16 hex digits of SHA-256.
//
// source is the name of a slice in the exporting cluster, or what [ServiceIPSource] returns.
func SliceName(namespace, name, source string) string {
	return RecordName(namespace, name) + "." + Hash(16, source)
}

// SliceHash returns the hash in the name of a slice on the broker.
func SliceHash(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// IsSliceHash reports whether s is 16 hexadecimal digits, as in the names that [SliceName] and [NamespaceName] return.
func IsSliceHash(s string) bool { return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == "" }

// ServiceIPSource is the source for [SliceName] of the slice that holds addresses of the Service, of one family. No
// slice has such a name, since it contains a slash.
func ServiceIPSource(family string) string { return "service-ip/" + family }

// NamespaceName is the name of the broker namespace of a member: the first 40 octets of prefix, "-" and 16 hex digits
// of the SHA-256 of its cluster id. A cluster id may contain a dot and be as long as a label, so it cannot be part of
// it.
func NamespaceName(prefix, clusterID string) string {
	return prefix[:min(len(prefix), maxPrefix)] + "-" + Hash(16, clusterID)
}

// IsNamespaceName reports whether a name has the form that [NamespaceName] returns.
func IsNamespaceName(name string) bool {
	hash := name[strings.LastIndexByte(name, '-')+1:]
	return len(hash) < len(name) && IsSliceHash(hash)
}

// Hash returns the first digits, at most 64, of the hexadecimal SHA-256 of parts. Equal digits mean equal parts, also
// where one part ends and the next begins: no valid name contains the NUL octet that stands between them.
func Hash(digits int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:digits]
}
