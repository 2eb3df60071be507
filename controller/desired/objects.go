// Package desired turns the merged import of a service into the objects that an importing cluster should have, and
// compares them with those that it has (docs/spec/controller.md 5, docs/spec/controller.md 10.2).
//
//	merge.Result      slices of all members      objects in this cluster
//	     │                      │                          │
//	     └─────▶ ObjectsOf ◀────┘                          │
//	                 │ ServiceImport, derived Service, slices
//	                 └──────────────▶ Diff ◀───────────────┘
//	                                   │ Changes: create, update, delete, foreign
//	                                   ▼
//	                                 Patch, for each update
//
// It is pure and total, as package merge is.
package desired

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// Objects are what stands for one imported service in an importing cluster.
type Objects struct {
	Import  *mcsv1beta1.ServiceImport
	Service *corev1.Service // derived from the import; nil if it does not exist
	Slices  []*discoveryv1.EndpointSlice
}

// An ImportingCluster is what the objects of an imported service depend on besides the exports.
type ImportingCluster struct {
	Sources []Source
	// Families are those in which the cluster has addresses for Services.
	Families []corev1.IPFamily
	// ClusterIPs are those of the derived Service, empty while it does not exist.
	ClusterIPs []string
	// Unrouted is whether the import has these, and keeps them under "vip cidr": the derived Service does not carry the
	// clusterset IPs yet.
	Unrouted bool
}

// Local returns the cluster itself, "" if it does not export the service.
func (c ImportingCluster) Local() string {
	for _, s := range c.Sources {
		if s.Local {
			return s.Cluster
		}
	}
	return ""
}

// ObjectsOf returns what should be in the importing cluster, sharing no memory with r and c, and what of the sources is
// rejected. The import has no conditions.
func ObjectsOf(r merge.Result, c ImportingCluster) (Objects, []merge.Rejection) {
	if r.Import == nil {
		return Objects{}, nil
	}
	o := Objects{Import: r.Import.DeepCopy(), Service: service(r, c)}
	if o.Service != nil && len(c.ClusterIPs) > 0 { // else its name may be taken by a Service that is not ours
		if !r.Routed() || c.Unrouted {
			merge.SetIPs(o.Import, c.ClusterIPs)
			delete(o.Import.Annotations, broker.AnnotationAllocatedBy)
		}
		metav1.SetMetaDataAnnotation(&o.Import.ObjectMeta, broker.AnnotationDerivedService, o.Service.Name)
	}
	var rejected []merge.Rejection
	for _, src := range c.Sources {
		imported, no := Slices(r, src)
		o.Slices, rejected = append(o.Slices, imported...), append(rejected, no...)
	}
	o.Slices = LastResort(c.Sources, o.Slices, nil)
	if o.Service != nil {
		SetHints(r.Import.Spec.TrafficDistribution, o.Slices)
	}
	o.Import.Status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsAbsent
	if len(o.Slices) > 0 {
		o.Import.Status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
	}
	return o, rejected
}

// service returns the Service that gives the import its addresses in this cluster (KEP-1645, "ClusterSet Service
// Behavior Expectations"). It has no selector: its endpoints are the imported slices.
func service(r merge.Result, c ImportingCluster) *corev1.Service {
	families := r.Families(c.Families)
	if !r.HasService() || len(families) == 0 {
		return nil
	}
	spec := r.Import.Spec.DeepCopy()
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Import.Namespace, Name: DerivedName(r.Import.Namespace, r.Import.Name),
			Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy, mcsv1beta1.LabelServiceName: r.Import.Name},
		},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeClusterIP,
			IPFamilies:            families,
			IPFamilyPolicy:        policyOf(families),
			SessionAffinity:       spec.SessionAffinity,
			SessionAffinityConfig: spec.SessionAffinityConfig,
			InternalTrafficPolicy: spec.InternalTrafficPolicy,
			TrafficDistribution:   spec.TrafficDistribution,
		},
	}
	for i, p := range spec.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: r.PortNames[i], Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port,
		})
	}
	if r.Routed() {
		route(s, spec.IPs)
	}
	return s
}

// route makes a Service carry clusterset IPs as addresses of a load balancer, which proxies answer for on every node.
// No controller of a cloud takes it, as it is of our class, and it needs no ports of nodes.
func route(s *corev1.Service, ips []string) {
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new(broker.VIPClass)
	s.Spec.AllocateLoadBalancerNodePorts = new(false)
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	for _, ip := range ips {
		if addr, err := netip.ParseAddr(ip); err == nil && slices.Contains(s.Spec.IPFamilies, broker.FamilyOf(addr)) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: ip, IPMode: new(corev1.LoadBalancerIPModeVIP)})
		}
	}
}

// UnroutedService returns a derived Service as it is without clusterset IPs.
func UnroutedService(s *corev1.Service) *corev1.Service {
	s = s.DeepCopy()
	s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, nil, nil
	s.Spec.ExternalTrafficPolicy, s.Status = "", corev1.ServiceStatus{}
	return s
}

func policyOf(families []corev1.IPFamily) *corev1.IPFamilyPolicy {
	if len(families) > 1 {
		return new(corev1.IPFamilyPolicyRequireDualStack)
	}
	return new(corev1.IPFamilyPolicySingleStack)
}
