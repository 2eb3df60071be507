// Package reason has the codes of causes: why a name of the clusterset does not resolve, or what else is wrong.
// Commands, EDE texts of DNS answers and documents name the same ones (docs/spec/explain.md 4).
package reason

import "strings"

// A Code names a cause. Codes are stable: they are added, and neither renamed nor used for something else.
type Code string

// The codes, in the order of the chain.
const (
	Resolves    Code = "resolves"
	ObjectsOK   Code = "objects-ok"
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
	ImportWebhook     Code = "import-webhook"

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
	Cause   string // more of it, for the table of docs/troubleshooting.md; may be empty
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
	{ObjectsOK, "the objects are as they should be, and no DNS server was asked", "",
		"Give the servers as --dns-server, or leave out --no-ask."},
	{NotReadable, "what was needed to find out could not be read", "",
		"Read the steps marked unknown: each names the missing right, or what did not answer."},
	{Unexplained, "there is no answer, and no cause was found", "", "Report it with the output of -o json."},

	{NameMalformed, "no service can have this name", "labels have letters, digits and hyphens", "Correct the name."},
	{NameTooLong, "the name or one of its labels is too long", "a name has at most 253 octets, a label 63",
		"Use a shorter name."},
	{NameWildcard, "there are no wildcards in a clusterset", "", "Ask for the name of a service."},
	{NameReverse, "a reverse name, which is answered only where a reverse zone is served", "",
		"Give the plugin a reverse zone, as in `clusterset clusterset.local 10.0.0.0/8`."},
	{NameOutsideZone, "the name is not in the zone of the clusterset", "",
		"Ask for SERVICE.NAMESPACE.svc.clusterset.local, or give the zone with --zone."},
	{NamePod, "a clusterset has no names of Pods", "",
		"Ask for HOST.CLUSTERID.SERVICE.NAMESPACE.svc.clusterset.local of a headless service."},
	{NameWithoutSVC, "the name has no label svc before the zone", "", "Ask for SERVICE.NAMESPACE.svc.clusterset.local."},
	{NameIncomplete, "the name has no service, or no namespace", "", "Ask for SERVICE.NAMESPACE.svc.clusterset.local."},
	{PortMalformed, "what stands before the service is no port and protocol", "",
		"Ask for _PORT._tcp.SERVICE.NAMESPACE.svc.clusterset.local, or _udp or _sctp, with type SRV."},
	{PortWantsSRV, "the name of a port has only SRV records", "", "Ask for type SRV."},
	{TypeNotServed, "the name has no records of this type", "", "Ask for A or AAAA, or SRV of a service and its ports."},

	{APIUnreachable, "the API server of the cluster does not answer", "",
		"Check the kubeconfig and its context with kubectl version."},
	{APIRejectsUser, "the API server of the cluster rejects the credential", "",
		"Log in again, or choose another context."},
	{CRDMissing, "the cluster does not have the kind ServiceImport", "", "Run clusterset join."},

	{NamespaceMissing, "the namespace does not exist in this cluster", "",
		"Run kubectl create namespace, or clusterset join with --create-namespaces. " +
			"If that fails, see the log and the Events in namespace default."},
	{NamespaceTerminating, "the namespace is being deleted", "",
		"Wait, and create it again; kubectl describe namespace shows what holds it."},
	{NamespaceExcluded, "the namespace takes no part in the clusterset",
		"those of controller and broker never do; kube-* and openshift-* only with clusterset-dns.io/allowed-source-clusters; " +
			"default only if import_namespaces selects it",
		"Use another namespace, or the directive import_namespaces for default."},

	{NotAMember, "the cluster is not a member of a clusterset", "no ClusterProperty clusterset.k8s.io",
		"Run clusterset join."},
	{MembershipDeleted, "ClusterProperty clusterset.k8s.io was deleted, and the broker has this cluster as a member", "",
		"Run clusterset join to restore it, or clusterset leave."},
	{Leaving, "the cluster is leaving the clusterset", "",
		"Run clusterset leave again to finish, or clusterset join to stay."},
	{ClusterIDMissing, "the cluster has no cluster ID", "no ClusterProperty cluster.clusterset.k8s.io",
		"Run clusterset join with --cluster-id and the ID that the cluster had."},

	{ControllerNeverRan, "no controller has run in this cluster", "not installed, in another namespace, or without rights",
		"Run clusterset join to install it, or give --controller-namespace; look at the log of its Pod."},
	{ControllerStopped, "no controller runs in this cluster", "its Lease is not renewed",
		"Look at the Pods and the log of the controller."},

	{CredentialMissing, "the Secret with the broker credential does not exist", "", "Run clusterset join again."},
	{CredentialInvalid, "the Secret with the broker credential cannot be used", "", "Run clusterset join again."},
	{CredentialExpired, "the broker credential has expired", "the controller was off for too long",
		"Run clusterset join again."},
	{CredentialRejected, "the broker rejects the credential of this cluster", "it was revoked, or another broker answers",
		"Run clusterset join again if this cluster should be a member."},
	{BrokerUnreachable, "the broker does not answer", "",
		"Check network, address and certificate of the broker. Nothing is removed meanwhile."},
	{BrokerReplaced, "another broker answers than the one that the cluster joined", "",
		"Bring the right broker back, or run clusterset join --replace-broker."},
	{BrokerUnprepared, "the broker does not have the kinds of clusterset", "", "Run clusterset broker init."},
	{ClusterIDTaken, "the cluster ID belongs to another cluster on the broker", "",
		"Leave with one of the two and join with another ID."},
	{MemberMissing, "the broker does not have this cluster as a member", "it was removed, or the broker was restored",
		"Run clusterset join again."},
	{OwnHeartbeatExpired, "the controller runs and does not renew its heartbeat on the broker", "",
		"Look at the log of the controller."},
	{ClusterCloned, "this cluster may be a copy of another one", "it was cloned with its etcd, or its etcd was restored",
		"Make a clone anew. A restored cluster goes on after five TTLs, or with clusterset join."},
	{ControllerFrozen, "the controller of this cluster has suspended operations", "",
		"Look up the reason under Exports and imports in docs/troubleshooting.md."},

	{NotExported, "no cluster exports the service", "no ServiceExport, or it is not on the broker",
		"Run clusterset export in the cluster that has the service; check name and namespace."},
	{ExportNoService, "a ServiceExport has no Service", "",
		"Create the Service, or correct the name of the ServiceExport."},
	{ExportInvalidType, "the Service cannot be exported",
		"type ExternalName; made by clusterset; headless with the annotation clusterset-dns.io/cluster-selectors; or not of type LoadBalancer with endpoints load_balancer",
		"Correct the fault that the condition Valid names, or export another Service."},
	{ExportSelectors, "an annotation of a ServiceExport that selects clusters is malformed", "",
		"Correct clusterset-dns.io/cluster-selectors or clusterset-dns.io/to-clusters, as the condition Valid says."},
	{ExportNamespace, "the namespace of the ServiceExport takes no part", "",
		"Export from another namespace, or change import_namespaces."},
	{ExportNotMember, "the exporting cluster is not a member", "", "Run clusterset join there."},
	{ExportNotReconciled, "no controller has looked at the ServiceExport", "", "Look at the log of the controller."},
	{ExportPending, "the ServiceExport waits", "", "Do what the condition Ready says."},
	{ExportRejected, "the export, or its clusterset IP, cannot be had as it is",
		"a policy, quota or bound of the broker, or no free address", "Do what the condition Ready says."},
	{ExportUndeclared, "addresses of the service are not exported", "they are outside of the declared networks",
		"Run clusterset join again with all networks in --pod-cidr or --load-balancer-cidr."},
	{ExportAnnotation, "a value of an annotation of the ServiceExport is ignored", "",
		"Correct or remove the annotation: the condition Valid names it."},
	{RecordMissing, "the broker does not have the export, though its conditions say so", "",
		"Look at the log of the controller, which writes it again when it is not frozen."},
	{RecordInvalid, "a record on the broker is not accepted", "",
		"Update the controller of that cluster, or delete the record."},
	{SourceNotAllowed, "the namespace does not accept the exporting cluster", "",
		"Add the cluster ID to its annotation clusterset-dns.io/allowed-source-clusters."},
	{NotExportedHere, "the service is exported to other clusters, and not to this one", "",
		"In the exporting cluster, change the annotation clusterset-dns.io/to-clusters."},
	{ConflictType, "exports of the service have different types", "the oldest decides whether it is headless",
		"Make the Services alike."},
	{ConflictPorts, "exports of the service have different ports", "a cluster without a port does not serve it",
		"Make the ports of the Services alike."},
	{ConflictFamilies, "exports of the service have different IP families", "the oldest decides",
		"Make the families of the Services alike."},
	{ConflictProperties, "exports of the service differ",
		"session affinity, traffic policy, preferred clusters, labels or annotations",
		"Make the Services and ServiceExports alike."},
	{ConflictWithheld, "the exports of the service conflict, and this cluster withholds it until they agree", "",
		"Make the Services agree in what the step names, or give all members \"merge kep\"."},

	{ExporterNeverRan, "an exporting cluster has no heartbeat", "", "Look at the controller there."},
	{ExporterExpired, "the heartbeat of an exporting cluster has expired", "",
		"Look at the controller there, and at its way to the broker."},

	{ImportMissing, "the cluster has no ServiceImport of the service", "", "Look at the log of the controller."},
	{ImportLimit, "the cluster imports no more of another cluster",
		"a limit of services, endpoints or namespaces, which the message has", "Export less there."},
	{ImportTerminating, "the ServiceImport is being deleted", "", "Remove the finalizer that holds it."},
	{ImportForeign, "the ServiceImport is not that of the controller", "", "Delete it, or its creator."},
	{ImportInvalid, "the ServiceImport is rejected", "an invalid type, name or spec",
		"Delete it: the controller writes it again."},
	{ImportPending, "the ServiceImport is not ready", "", "Do what the condition Ready says."},
	{ImportFamilies, "the service has no IP family of this cluster", "", "Make the Services dual-stack."},
	{ImportAddresses, "an address in spec.ips is rejected", "loopback, link-local, multicast, or in a denied network",
		"Correct spec.ips of the ServiceImport."},
	{ImportLacks, "the ServiceImport lacks a cluster that exports the service", "",
		"Look at the log of the controller of this cluster."},
	{ImportWebhook, "the API server cannot call an admission webhook", "",
		"Repair the webhook that the step names, or its ValidatingWebhookConfiguration or MutatingWebhookConfiguration."},

	{EndpointsNone, "a cluster exports the service without endpoints", "",
		"Check the Pods and the selector of the Service there, and its ServiceExport."},
	{EndpointsNotReady, "no endpoint of a cluster is ready", "", "Look at the Pods and their readiness probes there."},
	{EndpointsUndeclared, "endpoints are outside of the networks that their cluster declared",
		"new nodes, or Pods in the network of the host", "Run clusterset join there again with all networks in --pod-cidr."},
	{EndpointsOverlap, "endpoints of another cluster are in networks of this one", "",
		"Give the clusters different networks, or export load balancers."},
	{EndpointsBehind, "endpoints on the broker are not in this cluster", "",
		"Look at the log of the controller of this cluster."},
	{EndpointsNotLocal, "connections to the address of the service fail in this cluster",
		"internalTrafficPolicy is Local, and no node of this cluster has an endpoint",
		"Set internalTrafficPolicy of the oldest exported Service to Cluster, or run and export the service on each node that uses it."},
	{EndpointsRejected, "addresses of endpoints are rejected", "loopback, link-local, multicast, or IPv4 in IPv6",
		"Correct the EndpointSlice."},
	{SliceAddressType, "a slice holds names and not addresses", "", "Use slices of type IPv4 or IPv6."},
	{SliceClusterID, "a slice has no valid cluster ID", "",
		"Correct the label multicluster.kubernetes.io/source-cluster."},

	{ClusterUnknown, "the cluster in the name does not export the service", "",
		"Use one of the cluster IDs that the step names."},
	{HostNeedsHeadless, "the service is not headless and has no names of hosts", "",
		"Ask for the service, or make it headless (clusterIP: None)."},
	{HostWithoutCluster, "the name of a host lacks the cluster ID", "", "Add the cluster ID that the step names."},
	{HostNotReady, "the host is not ready", "", "Look at the Pod."},
	{HostUnknown, "no endpoint has this hostname", "Pods without hostname are named after their address",
		"Use one of the names that the step shows."},
	{PortUnnamed, "the ports of the service have no names", "", "Name the ports of the Service."},
	{PortProtocol, "the port has another protocol", "", "Ask with the protocol that the step names."},
	{PortUnknown, "the service has no port of this name", "", "Use one of the ports that the step names."},
	{FamilyMissing, "the service has no address of this family", "",
		"Ask for the other type, or make the Services dual-stack."},
	{ClusterNotSelected, "only clusters that do not answer for the service have an address of this family",
		"annotations or the directive policy prefer others",
		"Ask for the other type or for one cluster, or make the preferred Service dual-stack."},

	{DNSUnreachable, "a DNS server does not reply", "", "Check that the server runs, and UDP and TCP port 53 to it."},
	{DNSWithoutUDP, "a DNS server replies over TCP and not over UDP", "",
		"Open UDP port 53 in Service, network policies and firewalls."},
	{DNSWithoutTCP, "a DNS server replies over UDP and not over TCP", "large answers fail",
		"Open TCP port 53 in Service, network policies and firewalls."},
	{DNSRefused, "a DNS server refuses the question", "", "Check zones and access lists in the Corefile."},
	{DNSNotReady, "a DNS server has no state yet", "EDE 14",
		"Look at the log of the DNS server: rights, CRDs, API server."},
	{DNSFailure, "a DNS server fails", "SERVFAIL of a resolver or of a forwarder",
		"Ask the server of the clusterset itself; look at the log of this one."},
	{DNSNotWired, "a DNS server does not know the zone", "",
		"Forward the zone to the DNS server of the clusterset (clusterset dns apply)."},
	{DNSWiredElsewhere, "the DNS server of the cluster forwards the zone to addresses that the clusterset no longer has",
		"", "Run clusterset dns apply."},
	{DNSNoEndpoint, "the Service of the DNS server of the clusterset has no ready endpoint", "",
		"Look at its Pods and their logs."},
	{DNSLacksName, "a DNS server denies a name that the objects have",
		"it reads another cluster, or a directive leaves the name out", "Check the Corefile of the server."},
	{DNSOldAnswer, "a DNS server has an answer that the objects do not have", "a cache, or a server that is behind",
		"Ask again after the TTL, and the server of the clusterset itself."},
	{DNSOtherAnswer, "a DNS server answers with records that the objects do not have",
		"a cache, or a server that is behind", "Ask again after the TTL, and the server of the clusterset itself."},
	{DNSReplicasDiffer, "replicas of the DNS server answer differently", "one is behind or has another configuration",
		"Restart the one that the step names; look at its log."},
	{DNSStale, "a DNS server says that its state is old", "EDE 3 or 19, after it lost its API server",
		"Look at the log of the DNS server."},

	{DNSLeftOut, "the DNS server does not serve such a name", "it does not exist, or a directive leaves it out",
		"Check the Corefile of the server."},
	{DNSNamespaceEmpty, "the DNS server serves no service of the namespace", "",
		"Check the namespace with kubectl get serviceimports."},
	{DNSLacksEndpoint, "the DNS server knows no ready endpoint of this name", "",
		"Run clusterset explain with the name, and check the directive topology."},
	{DNSLacksAddress, "the service has no address that the DNS server can serve", "",
		"Look at the condition Ready and at spec.ips of the ServiceImport."},

	{Verified, "what clusterset verify checked works", "", "Nothing."},
	{Unverified, "clusterset verify could not check everything", "", "Read the skipped checks: each names the reason."},
	{PodsNotRunning, "a Pod of clusterset verify does not run", "",
		"Do what the evidence says; --image names another image, and --no-pods checks what needs no Pod."},
	{NetworkTCP, "DNS answers, and TCP does not reach the address", "",
		"Check routes, firewalls and NetworkPolicies from the Nodes of the importing cluster to the Pods of the exporting one, and kube-proxy."},
	{NetworkUDP, "DNS answers, and UDP does not reach the address", "",
		"Check firewalls for UDP between the clusters, and kube-proxy."},
	{NetworkOtherCluster, "something else answers at the address", "networks of clusters overlap",
		"Compare the networks of the members: clusterset status -o wide."},
	{ImportNotWithdrawn, "a ServiceImport stays after the last export is gone", "",
		"Look at clusterset status, and at the logs of both controllers."},
	{DNSNotWithdrawn, "DNS answers for a service that is no longer imported", "",
		"Look at the caches on the way, and at the log of the DNS server."},
}
