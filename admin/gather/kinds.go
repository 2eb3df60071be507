package gather

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// exportedServices are the services with a ServiceExport that was read before.
type exportedServices map[types.NamespacedName]bool

// A gathering is a list of objects that "clusterset gather" reads.
type gathering struct {
	group, resource string
	version         string // or else the first of v1, v1beta1, v1alpha1 that the API server has
	namespace       string // "" for all, or for a resource without namespaces
	selector        string
	keep            func(exportedServices, *unstructured.Unstructured) bool // nil keeps all
	optional        bool                                                    // only some kinds of clusters have it
}

// gatherings returns the reads of a cluster, in this order: controller and dns are the namespaces of the controller and
// of the cluster's DNS server.
func gatherings(role read.Role, controller, dns string) []gathering {
	if role == read.RoleBroker {
		return slices.Concat(brokerGatherings, bothGatherings)
	}
	all := slices.Concat(memberGatherings, bothGatherings)
	if dns != controller { // everything in the namespace of the controller is read below
		for _, x := range dnsGatherings {
			x.namespace = dns
			all = append(all, x)
		}
	}
	for _, x := range [][]string{
		{"", "pods", "services", "configmaps", "secrets", "serviceaccounts", "events", "resourcequotas"},
		{"apps", "deployments", "replicasets", "daemonsets", "statefulsets"},
		{rbacv1.GroupName, "roles", "rolebindings"},
		{coordinationv1.GroupName, "leases"},
		{"networking.k8s.io", "networkpolicies"},
		{"policy", "poddisruptionbudgets"},
	} {
		for _, resource := range x[1:] {
			all = append(all, gathering{group: x[0], resource: resource, version: "v1", namespace: controller})
		}
	}
	return all
}

// dnsPods selects the usual DNS servers of a cluster, in their namespace.
const dnsPods = "k8s-app in (kube-dns, node-local-dns, coredns)"

var memberGatherings = []gathering{
	{group: mcsv1beta1.GroupName, resource: "serviceexports", version: "v1beta1"},
	{resource: "services", version: "v1", keep: isExportedOrOurs},
	{group: about.GroupName, resource: "clusterproperties", version: "v1beta1"},
	{resource: "nodes", version: "v1"},
	{group: "networking.k8s.io", resource: "servicecidrs", version: "v1", optional: true},
	{group: read.OpenShiftDNS.Group, resource: "dnses", version: "v1", optional: true},
}

// dnsGatherings are read in the namespace of the cluster's DNS server.
var dnsGatherings = []gathering{
	{group: "apps", resource: "deployments", version: "v1", selector: dnsPods},
	{group: "apps", resource: "daemonsets", version: "v1", selector: dnsPods},
	{resource: "configmaps", version: "v1", keep: isDNSConfig},
	{resource: "services", version: "v1", keep: isDNSService},
	{resource: "pods", version: "v1", selector: dnsPods},
}

var brokerGatherings = []gathering{
	{group: broker.GroupName, resource: "members", version: "v1alpha1"},
	{group: broker.GroupName, resource: "exportedservices", version: "v1alpha1"},
	{group: broker.GroupName, resource: "inventories", version: "v1alpha1"},
	{group: coordinationv1.GroupName, resource: "leases", version: "v1", keep: isHeartbeat},
	{resource: "resourcequotas", version: "v1", keep: isOurs},
	{group: flowcontrolv1.GroupName, resource: "flowschemas", version: "v1", keep: isNamedAfterUs},
	{group: flowcontrolv1.GroupName, resource: "prioritylevelconfigurations", version: "v1", keep: isNamedAfterUs},
}

// bothGatherings are the objects that members and brokers have.
var bothGatherings = []gathering{
	{resource: "namespaces", version: "v1"},
	{group: mcsv1beta1.GroupName, resource: "serviceimports", version: "v1beta1", optional: true},
	{group: discoveryv1.GroupName, resource: "endpointslices", version: "v1", keep: isSliceOfExportOrImport},
	{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", version: "v1", keep: isUsedCRD},
	{group: admissionv1.GroupName, resource: "validatingadmissionpolicies", version: "v1", keep: isNamedAfterUs},
	{group: admissionv1.GroupName, resource: "validatingadmissionpolicybindings", version: "v1", keep: isNamedAfterUs},
	{group: rbacv1.GroupName, resource: "clusterroles", version: "v1", keep: isNamedAfterUs},
	{group: rbacv1.GroupName, resource: "clusterrolebindings", version: "v1", keep: isNamedAfterUs},
}

func isNamedAfterUs(_ exportedServices, o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetName(), "clusterset")
}

func isOurs(_ exportedServices, o *unstructured.Unstructured) bool { return read.IsManaged(o) }

func isHeartbeat(_ exportedServices, o *unstructured.Unstructured) bool {
	return o.GetName() == broker.HeartbeatName
}

func isUsedCRD(_ exportedServices, o *unstructured.Unstructured) bool {
	groups := []string{mcsv1beta1.GroupName, about.GroupName, broker.GroupName}
	return slices.Contains(groups, read.StringAt(o, "spec", "group"))
}

func isDNSConfig(_ exportedServices, o *unstructured.Unstructured) bool {
	return slices.Contains([]string{"coredns", "coredns-custom", "kube-dns", "node-local-dns"}, o.GetName())
}

// isDNSService keeps every Service that Pods could ask: its name depends on how the DNS server was installed.
func isDNSService(_ exportedServices, o *unstructured.Unstructured) bool {
	ports, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports") // Pods ask no Service without ports
	return slices.ContainsFunc(ports, func(p any) bool {
		port, _ := p.(map[string]any)
		return port["port"] == int64(53)
	})
}

func isExportedOrOurs(exported exportedServices, o *unstructured.Unstructured) bool {
	return read.IsManaged(o) || exported[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}]
}

func isSliceOfExportOrImport(exported exportedServices, o *unstructured.Unstructured) bool {
	_, imported := o.GetLabels()[mcsv1beta1.LabelServiceName]
	service := o.GetLabels()[discoveryv1.LabelServiceName]
	return imported || exported[types.NamespacedName{Namespace: o.GetNamespace(), Name: service}]
}
