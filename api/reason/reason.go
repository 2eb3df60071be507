// Package reason has the codes of causes: why a name of the clusterset does not resolve, or what else is wrong.
// Commands, EDE texts of DNS answers and documents name the same ones (docs/spec/explain.md 4).
package reason

import "strings"

// A Code names a cause. Codes are stable: they are added, and neither renamed nor used for something else.
type Code string

// The codes, in the order of the chain.
const (
	Resolves    Code = "resolves"
	NotReadable Code = "not-readable"
	Unexplained Code = "unexplained"

	NameMalformed   Code = "name-malformed"
	NameTooLong     Code = "name-too-long"
	NameWildcard    Code = "name-wildcard"
	NameReverse     Code = "name-reverse"
	NameOutsideZone Code = "name-outside-zone"
	NamePod         Code = "name-pod"
	NameWithoutSVC  Code = "name-without-svc"
	NameIncomplete  Code = "name-incomplete"
	PortMalformed   Code = "port-malformed"
	PortWantsSRV    Code = "port-wants-srv"
	TypeNotServed   Code = "type-not-served"

	APIUnreachable Code = "api-unreachable"
	APIRejectsUser Code = "api-rejects-user"
	CRDMissing     Code = "crd-missing"

	NamespaceMissing     Code = "namespace-missing"
	NamespaceTerminating Code = "namespace-terminating"
	NamespaceExcluded    Code = "namespace-excluded"

	NotAMember        Code = "not-a-member"
	MembershipDeleted Code = "membership-deleted"
	Leaving           Code = "leaving"
	ClusterIDMissing  Code = "cluster-id-missing"

	ControllerNeverRan Code = "controller-never-ran"
	ControllerStopped  Code = "controller-stopped"

	CredentialMissing   Code = "credential-missing"
	CredentialInvalid   Code = "credential-invalid"
	CredentialExpired   Code = "credential-expired"
	CredentialRejected  Code = "credential-rejected"
	BrokerUnreachable   Code = "broker-unreachable"
	BrokerReplaced      Code = "broker-replaced"
	BrokerUnprepared    Code = "broker-unprepared"
	ClusterIDTaken      Code = "cluster-id-taken"
	MemberMissing       Code = "member-missing"
	OwnHeartbeatExpired Code = "own-heartbeat-expired"
	ClusterCloned       Code = "cluster-cloned"
	ControllerFrozen    Code = "controller-frozen"

	NotExported         Code = "not-exported"
	ExportNoService     Code = "export-no-service"
	ExportInvalidType   Code = "export-invalid-type"
	ExportSelectors     Code = "export-selectors"
	ExportNamespace     Code = "export-namespace"
	ExportNotMember     Code = "export-not-member"
	ExportNotReconciled Code = "export-not-reconciled"
	ExportPending       Code = "export-pending"
	ExportRejected      Code = "export-rejected"
	ExportUndeclared    Code = "export-undeclared"
	ExportAnnotation    Code = "export-annotation"
	RecordMissing       Code = "record-missing"
	RecordInvalid       Code = "record-invalid"
	SourceNotAllowed    Code = "source-not-allowed"
	NotExportedHere     Code = "not-exported-here"
	ConflictType        Code = "conflict-type"
	ConflictPorts       Code = "conflict-ports"
	ConflictFamilies    Code = "conflict-families"
	ConflictProperties  Code = "conflict-properties"
	ConflictWithheld    Code = "conflict-withheld"

	ExporterNeverRan Code = "exporter-never-ran"
	ExporterExpired  Code = "exporter-expired"

	ImportMissing     Code = "import-missing"
	ImportLimit       Code = "import-limit"
	ImportTerminating Code = "import-terminating"
	ImportForeign     Code = "import-foreign"
	ImportInvalid     Code = "import-invalid"
	ImportPending     Code = "import-pending"
	ImportFamilies    Code = "import-families"
	ImportAddresses   Code = "import-addresses"
	ImportLacks       Code = "import-lacks-cluster"

	EndpointsNone       Code = "endpoints-none"
	EndpointsNotReady   Code = "endpoints-not-ready"
	EndpointsUndeclared Code = "endpoints-undeclared"
	EndpointsOverlap    Code = "endpoints-overlap"
	EndpointsBehind     Code = "endpoints-behind"
	EndpointsNotLocal   Code = "endpoints-not-local"
	EndpointsRejected   Code = "endpoints-rejected"
	SliceAddressType    Code = "slice-address-type"
	SliceClusterID      Code = "slice-cluster-id"

	ClusterUnknown     Code = "cluster-unknown"
	HostNeedsHeadless  Code = "host-needs-headless"
	HostWithoutCluster Code = "host-without-cluster"
	HostNotReady       Code = "host-not-ready"
	HostUnknown        Code = "host-unknown"
	PortUnnamed        Code = "port-unnamed"
	PortProtocol       Code = "port-protocol"
	PortUnknown        Code = "port-unknown"
	FamilyMissing      Code = "family-missing"
	ClusterNotSelected Code = "cluster-not-selected"

	DNSUnreachable    Code = "dns-unreachable"
	DNSWithoutUDP     Code = "dns-without-udp"
	DNSWithoutTCP     Code = "dns-without-tcp"
	DNSRefused        Code = "dns-refused"
	DNSNotReady       Code = "dns-not-ready"
	DNSFailure        Code = "dns-failure"
	DNSNotWired       Code = "dns-not-wired"
	DNSWiredElsewhere Code = "dns-wired-elsewhere"
	DNSNoEndpoint     Code = "dns-no-endpoint"
	DNSLacksName      Code = "dns-lacks-name"
	DNSOldAnswer      Code = "dns-old-answer"
	DNSOtherAnswer    Code = "dns-other-answer"
	DNSReplicasDiffer Code = "dns-replicas-differ"
	DNSStale          Code = "dns-stale"

	// Codes of the extended errors of answers alone: a DNS server sees ServiceImports and ready endpoints, as far as
	// its directives select them.
	DNSLeftOut        Code = "dns-left-out"
	DNSNamespaceEmpty Code = "dns-namespace-empty"
	DNSLacksEndpoint  Code = "dns-lacks-endpoint"
	DNSLacksAddress   Code = "dns-lacks-address"

	// Codes of "clusterset verify" alone.
	Verified            Code = "verified"
	Unverified          Code = "not-verified"
	PodsNotRunning      Code = "pods-not-running"
	NetworkTCP          Code = "network-tcp"
	NetworkUDP          Code = "network-udp"
	NetworkOtherCluster Code = "network-other-cluster"
	ImportNotWithdrawn  Code = "import-not-withdrawn"
	DNSNotWithdrawn     Code = "dns-not-withdrawn"
)

// An Entry describes a code.
type Entry struct {
	Code    Code
	Meaning string // as a part of a sentence
	Cause   string
	Remedy  string // what to do, as sentences
}

// Codes returns all codes, in the order of the chain. docs/troubleshooting.md has the same table.
func Codes() []Entry { return table }

// Describe returns the description of one of the codes.
func Describe(code Code) Entry {
	for _, e := range table {
		if e.Code == code {
			return e
		}
	}
	panic("reason: code without an entry: " + string(code))
}

// Text is a code as a server shows it to clients: the code and its meaning. It has no name and no number, so it tells
// no more than the code.
func Text(code Code) string { return string(code) + ": " + Describe(code).Meaning }

// FromText returns the code of a text that [Text] made, else "".
func FromText(text string) Code {
	code, _, _ := strings.Cut(text, ":")
	for _, e := range table {
		if string(e.Code) == code {
			return e.Code
		}
	}
	return ""
}

var table = []Entry{
	{Resolves, "nothing is wrong", "", "Nothing."},
	{NotReadable, "what was needed to find out could not be read",
		"missing rights, or an API server that does not answer",
		"Read the steps marked unknown: each says which right is missing, or what did not answer."},
	{Unexplained, "there is no answer, and no cause was found", "a case that the command does not know",
		"Report it with the output of -o json."},

	{NameMalformed, "no service can have this name",
		"an empty label, or characters other than letters, digits and hyphens", "Correct the name."},
	{NameTooLong, "the name or one of its labels is too long", "a name has at most 253 octets, a label 63",
		"Use a shorter name of service, namespace, host or cluster."},
	{NameWildcard, "there are no wildcards in a clusterset", "", "Ask for the name of a service."},
	{NameReverse, "a reverse name, which is answered only where a reverse zone is served", "",
		"Give the plugin a reverse zone, as in `clusterset clusterset.local 10.0.0.0/8`; the cluster's own addresses have names in the DNS of the cluster."},
	{NameOutsideZone, "the name is not in the zone of the clusterset",
		"a short name, or one of another zone such as cluster.local",
		"Ask for SERVICE.NAMESPACE.svc.clusterset.local. If the zone has another name, give it with --zone."},
	{NamePod, "a clusterset has no names of Pods", "only services are exported",
		"Ask for HOST.CLUSTERID.SERVICE.NAMESPACE.svc.clusterset.local of a headless service."},
	{NameWithoutSVC, "the name has no label svc before the zone", "", "Ask for SERVICE.NAMESPACE.svc.clusterset.local."},
	{NameIncomplete, "the name has no service, or no namespace", "", "Ask for SERVICE.NAMESPACE.svc.clusterset.local."},
	{PortMalformed, "what stands before the service is no port and protocol",
		"both begin with an underscore, and the protocol is _tcp, _udp or _sctp",
		"Ask for _PORT._tcp.SERVICE.NAMESPACE.svc.clusterset.local with type SRV."},
	{PortWantsSRV, "the name of a port has only SRV records", "", "Ask for type SRV."},
	{TypeNotServed, "the name has no records of this type", "", "Ask for A or AAAA, or SRV of a service and its ports."},

	{APIUnreachable, "the API server of the cluster does not answer", "network, address or certificate in the kubeconfig",
		"Check the kubeconfig and its context with kubectl version."},
	{APIRejectsUser, "the API server of the cluster rejects the credential",
		"an expired or foreign credential in the kubeconfig", "Log in again, or choose another context."},
	{CRDMissing, "the cluster does not have the kind ServiceImport", "the CRDs were never installed, or were removed",
		"Run clusterset join, which installs them."},

	{NamespaceMissing, "the namespace does not exist in this cluster",
		"a service is imported only where its namespace exists",
		"Create the namespace, or have the controller do it: import_namespaces create. If that fails, its log and the Events in namespace default say why."},
	{NamespaceTerminating, "the namespace is being deleted", "",
		"Wait until it is gone and create it again; kubectl describe namespace shows what holds it."},
	{NamespaceExcluded, "the namespace takes no part in the clusterset",
		"kube-*, openshift-*, that of the controller and those of a broker never do; default only if import_namespaces names it or its selector matches it", "Use another namespace, or import_namespaces for default."},

	{NotAMember, "the cluster is not a member of a clusterset", "ClusterProperty clusterset.k8s.io does not exist",
		"Run clusterset join."},
	{MembershipDeleted, "ClusterProperty clusterset.k8s.io was deleted, and the broker has this cluster as a member",
		"it was deleted by hand", "Run clusterset join to restore it, or clusterset leave."},
	{Leaving, "the cluster is leaving the clusterset", "clusterset leave was begun and has not ended",
		"Run clusterset leave again to finish, or clusterset join to stay."},
	{ClusterIDMissing, "the cluster has no cluster ID", "ClusterProperty cluster.clusterset.k8s.io does not exist",
		"Run clusterset join with --cluster-id and the ID that the cluster had."},

	{ControllerNeverRan, "no controller has run in this cluster",
		"its Lease does not exist: it is not installed, runs in another namespace, or lacks rights",
		"Install the controller, or give --controller-namespace; look at the log of its Pod."},
	{ControllerStopped, "no controller runs in this cluster", "its Lease is not renewed",
		"Look at the Pods and the log of the controller."},

	{CredentialMissing, "the Secret with the broker credential does not exist",
		"the cluster did not join, or the Secret was deleted", "Run clusterset join again."},
	{CredentialInvalid, "the Secret with the broker credential cannot be used", "it was edited",
		"Run clusterset join again."},
	{CredentialExpired, "the broker credential has expired", "the controller was off for longer than a token lives",
		"Run clusterset join again."},
	{CredentialRejected, "the broker rejects the credential of this cluster",
		"it was revoked, or another broker answers at the address",
		"Run clusterset join again if this cluster should be a member."},
	{BrokerUnreachable, "the broker does not answer", "network, address or certificate; nothing is removed meanwhile",
		"Check the way from this cluster to the API server of the broker."},
	{BrokerReplaced, "another broker answers than the one that the cluster joined",
		"a restored or new API server at its address",
		"Bring the right broker back, or run clusterset join --replace-broker."},
	{BrokerUnprepared, "the broker does not have the kinds of clusterset", "its CRDs were removed",
		"Run clusterset broker init."},
	{ClusterIDTaken, "the cluster ID belongs to another cluster on the broker",
		"a cluster was copied, or two were given one ID", "Leave with one of the two and join with another ID."},
	{MemberMissing, "the broker does not have this cluster as a member",
		"an administrator removed it, or the broker was restored", "Run clusterset join again."},
	{OwnHeartbeatExpired, "the controller runs and does not renew its heartbeat on the broker",
		"it cannot reach the broker, or may not write there",
		"Look at the log of the controller, and at its metric coredns_clusterset_controller_frozen."},
	{ClusterCloned, "this cluster may be a copy of another one",
		"it was cloned with its etcd; or its own etcd was restored",
		"Make a clone anew. A restored cluster goes on after five TTLs, or with clusterset join."},
	{ControllerFrozen, "the controller of this cluster has suspended operations",
		"it does not trust what it sees of the broker; the reason says why",
		"Look up the reason under Exports and imports in docs/troubleshooting.md."},

	{NotExported, "no cluster exports the service",
		"there is no ServiceExport, or its controller has not written it to the broker",
		"Run clusterset export in the cluster that has the service; check name and namespace."},
	{ExportNoService, "a ServiceExport has no Service", "the Service does not exist, or has another name",
		"Create the Service, or correct the name of the ServiceExport."},
	{ExportInvalidType, "the Service cannot be exported",
		"it is of type ExternalName, or made by clusterset; or it is headless, and the annotation clusterset-dns.io/cluster-selectors of its ServiceExport selects clusters", "Export a Service with endpoints of its own. For a headless one, remove the annotation."},
	{ExportSelectors, "the cluster selectors of a ServiceExport, or the clusters that it is to reach, are malformed",
		"the annotation clusterset-dns.io/cluster-selectors or clusterset-dns.io/to-clusters",
		"Correct the annotation: the condition Valid says what is wanted."},
	{ExportNamespace, "the namespace of the ServiceExport takes no part", "import_namespaces leaves it out",
		"Export from another namespace, or change import_namespaces."},
	{ExportNotMember, "the exporting cluster is not a member", "it has not joined, or has left",
		"Run clusterset join there."},
	{ExportNotReconciled, "no controller has looked at the ServiceExport",
		"it does not run, or does not see the namespace", "Look at the log of the controller."},
	{ExportPending, "the ServiceExport waits", "its condition Ready says for what", "Do what the condition Ready says."},
	{ExportRejected, "the export, or its clusterset IP, cannot be had as it is",
		"a policy, a quota or a bound of the broker, or no free address; the condition Ready says which",
		"Do what the condition Ready says."},
	{ExportUndeclared, "addresses of the service are not exported",
		"they are outside of the networks that the cluster declared",
		"Run clusterset join again with all networks in --pod-cidr."},
	{ExportAnnotation, "a value of an annotation of the ServiceExport is ignored",
		"an unknown affinity or slice strategy; an affinity of a headless Service; a slice strategy where the cluster exports cluster IPs; or a value that is neither true nor false", "Correct or remove the annotation: the condition Valid names it."},
	{RecordMissing, "the broker does not have the export, though its conditions say so",
		"the broker was restored, or the record was deleted by hand",
		"Look at the log of the controller, which writes it again when it is not frozen."},
	{RecordInvalid, "a record on the broker is not accepted", "it was written by hand or by another version",
		"Update the controller of that cluster, or delete the record."},
	{SourceNotAllowed, "the namespace does not accept the exporting cluster",
		"its annotation clusterset-dns.io/allowed-source-clusters", "Add the cluster ID to the annotation."},
	{NotExportedHere, "the service is exported to other clusters, and not to this one",
		"the annotation clusterset-dns.io/to-clusters of the ServiceExport",
		"In the exporting cluster, have the annotation name or select this cluster; clusterset-dns.io/exported-to there has the clusters that it reaches."},
	{ConflictType, "exports of the service have different types",
		"headless in one cluster and not in another: the oldest decides", "Make the Services alike."},
	{ConflictPorts, "exports of the service have different ports",
		"the oldest decides; a cluster without the port does not serve it", "Make the ports of the Services alike."},
	{ConflictFamilies, "exports of the service have different IP families", "the oldest decides",
		"Make the families of the Services alike."},
	{ConflictProperties, "exports of the service differ",
		"session affinity, traffic policy, preferred clusters, labels or annotations: the oldest decides",
		"Make the Services and ServiceExports alike."},
	{
		ConflictWithheld, "the exports of the service conflict, and this cluster withholds it until they agree",
		"its controllers have \"merge first\"",
		"Make the Services agree in what the step names, or give all members \"merge kep\".",
	},

	{ExporterNeverRan, "an exporting cluster has no heartbeat", "its controller has never run, or may not write",
		"Look at the controller there."},
	{ExporterExpired, "the heartbeat of an exporting cluster has expired",
		"its controller is stopped or cut off; its endpoints are used only where no other cluster has ready ones",
		"Look at the controller there, and at its way to the broker."},

	{ImportMissing, "the cluster has no ServiceImport of the service",
		"it was never written, was deleted by hand, or is beyond a limit of what is imported",
		"Look at the log of the controller."},
	{
		ImportLimit, "the cluster imports no more of another cluster",
		"the limits of what one cluster and all clusters together may bring are reached: services, endpoints or namespaces",
		"Read the message: it has the limit. Export less there, or ask the administrator of the exporting cluster.",
	},
	{ImportTerminating, "the ServiceImport is being deleted", "a finalizer holds it", "Remove the finalizer."},
	{ImportForeign, "the ServiceImport is not that of the controller", "somebody else created it; it is left alone",
		"Delete it, or its creator."},
	{ImportInvalid, "the ServiceImport is rejected", "a type, name or spec that is not valid",
		"Delete it: the controller writes it again."},
	{ImportPending, "the ServiceImport is not ready", "its condition Ready says for what it waits",
		"Do what the condition Ready says."},
	{ImportFamilies, "the service has no IP family of this cluster", "all exports are of the other family",
		"Make the Services dual-stack."},
	{ImportAddresses, "an address in spec.ips is rejected",
		"loopback, link-local, multicast, or in a network that no service may point at",
		"Correct spec.ips of the ServiceImport."},
	{ImportLacks, "the ServiceImport lacks a cluster that exports the service", "the import is behind, or frozen",
		"Look at the log of the controller of this cluster."},

	{EndpointsNone, "a cluster exports the service without endpoints", "its Service selects no Pod",
		"Check the selector of the Service there."},
	{EndpointsNotReady, "no endpoint of a cluster is ready", "its Pods are not ready",
		"Look at the Pods and their readiness probes there."},
	{EndpointsUndeclared, "endpoints are outside of the networks that their cluster declared",
		"new nodes, or Pods in the network of the host", "Run clusterset join there again with all networks in --pod-cidr."},
	{EndpointsOverlap, "endpoints of another cluster are in networks of this one",
		"both clusters use the same network: traffic would go to a Pod here", "Give the clusters different networks."},
	{EndpointsBehind, "endpoints on the broker are not in this cluster", "the import is behind, or frozen",
		"Look at the log of the controller of this cluster, and at its metric coredns_clusterset_controller_frozen."},
	{EndpointsNotLocal, "connections to the address of the service fail in this cluster",
		"internalTrafficPolicy of the oldest export is Local: proxies use the endpoints of their own node alone, and no node of this cluster has one", "Set internalTrafficPolicy of the exported Service to Cluster, or run and export the service in this cluster, too, on each node that uses it."},
	{EndpointsRejected, "addresses of endpoints are rejected",
		"loopback, link-local, multicast, or such an IPv4 address in IPv6", "Correct the EndpointSlice."},
	{SliceAddressType, "a slice holds names and not addresses", "addressType FQDN", "Use slices of type IPv4 or IPv6."},
	{SliceClusterID, "a slice has no valid cluster ID",
		"the label multicluster.kubernetes.io/source-cluster is missing or invalid", "Correct the label."},

	{ClusterUnknown, "the cluster in the name does not export the service",
		"another ID, or a host name without a cluster", "Use one of the cluster IDs that the step names."},
	{HostNeedsHeadless, "the service is not headless and has no names of hosts", "",
		"Ask for the service, or make it headless (clusterIP: None)."},
	{HostWithoutCluster, "the name of a host lacks the cluster ID", "in a clusterset a host is HOST.CLUSTERID.SERVICE",
		"Add the cluster ID that the step names."},
	{HostNotReady, "the host is not ready", "its Pod is not ready", "Look at the Pod."},
	{HostUnknown, "no endpoint has this hostname", "Pods without hostname and subdomain are named after their address",
		"Use one of the names that the step shows."},
	{PortUnnamed, "the ports of the service have no names", "only named ports have SRV records",
		"Name the ports of the Service."},
	{PortProtocol, "the port has another protocol", "", "Ask with the protocol that the step names."},
	{PortUnknown, "the service has no port of this name", "", "Use one of the ports that the step names."},
	{FamilyMissing, "the service has no address of this family", "",
		"Ask for the other type, or make the Services dual-stack."},
	{
		ClusterNotSelected, "only clusters that do not answer for the service have an address of this family",
		"annotations that select clusters, or the directive policy with its default local_first, prefer another cluster",
		"Ask for the other type, make the Service of the preferred cluster dual-stack, or ask for the name of one cluster.",
	},

	{DNSUnreachable, "a DNS server does not reply", "its Pod does not run, or a network policy or firewall is in the way",
		"Check that the server runs, and UDP and TCP port 53 to it."},
	{DNSWithoutUDP, "a DNS server replies over TCP and not over UDP",
		"a network policy, firewall or Service lacks the UDP port", "Open UDP port 53."},
	{DNSWithoutTCP, "a DNS server replies over UDP and not over TCP",
		"a network policy, firewall or Service lacks the TCP port: large answers fail", "Open TCP port 53."},
	{DNSRefused, "a DNS server refuses the question", "no server block has the zone, or an access list",
		"Check the zones in the Corefile."},
	{DNSNotReady, "a DNS server has no state yet", "extended error 14: it cannot list the objects",
		"Look at the log of the DNS server: rights, CRDs, API server."},
	{DNSFailure, "a DNS server fails", "SERVFAIL of a resolver or of a forwarder",
		"Ask the server of the clusterset itself; look at the log of this one."},
	{DNSNotWired, "a DNS server does not know the zone",
		"its configuration does not forward the zone, or the negative answer is of another zone",
		"Forward the zone to the DNS server of the clusterset (clusterset dns apply)."},
	{DNSWiredElsewhere,
		"the DNS server of the cluster forwards the zone to other addresses than those of the DNS server of the clusterset",
		"the Service of the DNS server was made anew", "Run clusterset dns apply."},
	{DNSNoEndpoint, "the Service of the DNS server of the clusterset has no ready endpoint",
		"its Pods do not run, or have not synced", "Look at its Pods and their logs."},
	{DNSLacksName, "a DNS server denies a name that the objects have",
		"the directives namespaces, namespace_labels or labels leave it out, or the server reads another cluster",
		"Check the Corefile of the server."},
	{DNSOldAnswer, "a DNS server has an answer that the objects do not have",
		"a cache, a server that is behind, or one of another cluster",
		"Ask again after the TTL, and the server of the clusterset itself."},
	{DNSOtherAnswer, "a DNS server answers with records that the objects do not have",
		"a cache, a server that is behind, or one of another cluster",
		"Ask again after the TTL, and the server of the clusterset itself."},
	{DNSReplicasDiffer, "replicas of the DNS server answer differently",
		"one of them is behind or has another configuration", "Restart the one that the step names; look at its log."},
	{DNSStale, "a DNS server says that its state is old", "extended error 3 or 19: it lost its API server",
		"Look at the log of the DNS server."},

	{DNSLeftOut, "the DNS server does not serve such a name",
		"its directives namespaces, namespace_labels, labels, noendpoints, cluster_names or policy leave it out, or it does not exist", "Check the Corefile of the server."},
	{DNSNamespaceEmpty, "the DNS server serves no service of the namespace",
		"a misspelled namespace, or one without imports",
		"Check the namespace; kubectl get serviceimports lists what is imported."},
	{DNSLacksEndpoint, "the DNS server knows no ready endpoint of this name",
		"no endpoint is ready, another cluster ID or host name, or the directive topology",
		"Run clusterset explain with the name: it sees endpoints that are not ready, too."},
	{DNSLacksAddress, "the service has no address that the DNS server can serve",
		"the import waits for its address, or all addresses of spec.ips are rejected",
		"Look at the condition Ready and at spec.ips of the ServiceImport."},

	{Verified, "what clusterset verify checked works", "", "Nothing."},
	{Unverified, "clusterset verify could check nothing", "no pair of members came to a check",
		"Read the checks: each says why it was skipped."},
	{PodsNotRunning, "a Pod of clusterset verify does not run",
		"no Node, no room, an image that cannot be pulled or is too old, or an admission policy",
		"Do what the evidence says; --image names another image, and --no-pods checks what needs no Pod."},
	{NetworkTCP, "DNS answers, and TCP does not reach the address",
		"no route between the networks of the clusters, a NetworkPolicy or firewall, or kube-proxy",
		"Check routes and firewalls from the Nodes of the importing cluster to the Pods of the exporting one."},
	{NetworkUDP, "DNS answers, and UDP does not reach the address",
		"no route, a firewall that lets only TCP pass, or kube-proxy", "Check firewalls for UDP between the clusters."},
	{NetworkOtherCluster, "something else answers at the address", "networks of clusters overlap",
		"Compare the networks of the members: clusterset status -o wide."},
	{ImportNotWithdrawn, "a ServiceImport stays after the last export is gone",
		"the controller of one of the two clusters does not run, or is frozen",
		"Look at clusterset status, and at the logs of both controllers."},
	{DNSNotWithdrawn, "DNS answers for a service that is no longer imported",
		"a cache on the way, or a server that does not follow the API server",
		"Look at the caches between Pods and the DNS server of the clusterset, and at its log."},
}
