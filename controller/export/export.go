// Package export computes the export record and slices of a ServiceExport, its Service and its EndpointSlices
// (docs/spec/controller.md 2, docs/spec/controller.md 3).
//
//	ServiceExport ──┐            ┌─▶ Record: the export record, for the broker
//	Service ────────┼──▶ From ───┼─▶ Slices: the EndpointSlices, for the broker
//	EndpointSlices ─┘     ▲      ├─▶ Local: the slices for this cluster's own import
//	Options ──────────────┘      └─▶ Reason, Failed, Waits, Dropped: for the conditions of the ServiceExport
//
// An export is in one of three states. If it is not valid, there is no record and Reason is why: this cluster is not a
// member, the namespace is not allowed, there is no such Service, or its type cannot be exported. If it is valid but no
// valid record can be made of it, Failed is why. Otherwise it has a record; Dropped are the parts that were requested
// and are not exported.
//
// The package is pure: the same objects give the same export record and slices, and it never changes its input. Package
// exporter writes the results.
package export

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// The reasons of the condition Valid that the MCS API has no name for (docs/spec/controller.md 3.1).
const (
	ReasonNamespaceNotAllowed mcsv1beta1.ServiceExportConditionReason = "NamespaceNotAllowed"
	ReasonNotMember           mcsv1beta1.ServiceExportConditionReason = "NotMember"
)

// A Result is what one ServiceExport exports and reports. It shares no memory with the objects that it was computed
// from.
type Result struct {
	// Record is the export record; nil if the service is not exported: the exporter then removes a record that exists.
	Record *v1alpha1.ExportedService
	// Slices are those for the broker, sorted by name.
	Slices []*discoveryv1.EndpointSlice
	// Local are the same for this cluster's own import: their endpoints keep nodeName, and their addresses need not be
	// declared. With [LoadBalancer] they hold the Pods.
	Local []*discoveryv1.EndpointSlice
	// Reason and Message are those of the condition Valid, which is true if the reason is Valid.
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string
	// Failed is why a valid export has no record, or no endpoint for other clusters: the message of the condition Ready,
	// which is then False/Failed.
	Failed string
	// Waits is why the slices for the broker are still empty: the message of Ready, which is then False/Pending.
	Waits string
	// Ignored lists the annotation values of a valid export that have no effect, with the wanted form.
	Ignored []string
	// Dropped lists, sorted, the requested parts that are not exported, or that other clusters cannot use.
	Dropped []string
	// Undeclared is the number of addresses that are not exported because the cluster did not declare their network.
	Undeclared int
}

// Valid is the condition of the ServiceExport. Its LastTransitionTime is for the writer, which knows the earlier one.
func (r Result) Valid(generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: string(mcsv1beta1.ServiceExportConditionValid), Status: metav1.ConditionFalse, ObservedGeneration: generation,
		Reason: string(r.Reason), Message: r.Message,
	}
	if r.Reason == mcsv1beta1.ServiceExportReasonValid {
		c.Status = metav1.ConditionTrue
		if len(r.Ignored) > 0 {
			c.Reason, c.Message = wellknown.ReasonAnnotationIgnored, strings.Join(append([]string{r.Message}, r.Ignored...), " ")
		}
	}
	c.Message = reason.Say(reason.Valid, c.Reason, c.Message)
	return c
}

// From returns the result for exp. service is the Service of its name, or nil, and sources are the EndpointSlices of
// that Service.
//
// An export that is being deleted has no record, like one that is not valid.
func From(exp *mcsv1beta1.ServiceExport, service *corev1.Service, sources []*discoveryv1.EndpointSlice,
	o Options) Result {
	r := Result{}
	kind, annotated := exp.Annotations[broker.AnnotationEndpoints]
	known := slices.Contains(broker.EndpointKinds(), kind)
	if known {
		o.Endpoints = kind
	}
	r.Reason, r.Message = valid(exp, service, o)
	if r.Reason != mcsv1beta1.ServiceExportReasonValid || exp.DeletionTimestamp != nil {
		return r
	}
	x := &exporter{exp: exp, service: service, sources: ours(service, sources), o: o}
	if annotated && !known {
		x.ignore("Ignored: annotation %s: %.80q: want pod_ip, service_ip or load_balancer.", broker.AnnotationEndpoints, kind)
	}
	spec := x.spec()
	if known {
		spec.Endpoints = kind
	}
	if err := spec.Validate(); err != nil {
		r.Failed = fmt.Sprintf("The Service cannot be described to other clusters: %s.", err)
		return r
	}
	r.Record = x.record(spec)
	r.Local = x.slices()
	exported := r.Local
	if o.Endpoints == broker.LoadBalancer {
		exported = x.atOwnPorts(x.balancers())
		r.Failed, r.Waits = x.withoutAddress()
	}
	for _, s := range exported {
		onBroker := x.declared(trim(s))
		metav1.SetMetaDataAnnotation(&onBroker.ObjectMeta, broker.AnnotationExportUID, string(exp.UID))
		r.Slices = append(r.Slices, onBroker)
		r.Record.Spec.Slices = append(r.Record.Spec.Slices, broker.SliceHash(s.Name))
		if x.divided {
			s.Annotations = nil // it is the time of the last change of any slice: with each change, all of them would be written
		}
	}
	if n := len(r.Slices); n > broker.MaxSlices {
		return Result{Reason: r.Reason, Message: r.Message,
			Failed: fmt.Sprintf("The Service has %d EndpointSlices: at most %d can be exported.", n, broker.MaxSlices)}
	}
	r.Undeclared, r.Ignored = x.dropUndeclared(), x.ignored
	slices.Sort(x.dropped)
	r.Dropped = x.dropped
	return r
}

// valid returns reason and message of the condition Valid. The reasons that the owner of the export cannot remove come
// first.
func valid(exp *mcsv1beta1.ServiceExport, service *corev1.Service, o Options) (mcsv1beta1.ServiceExportConditionReason,
	string) {
	switch {
	case !broker.IsClusterID(o.ClusterID):
		return ReasonNotMember, "This cluster is not a member of a clusterset: join it first."
	case o.Namespace == Terminating:
		return ReasonNamespaceNotAllowed, fmt.Sprintf("Namespace %q is being deleted.", exp.Namespace)
	case o.Namespace != Allowed:
		return ReasonNamespaceNotAllowed, fmt.Sprintf(
			"Services of namespace %q may not be exported: move the service, or have import_namespaces allow it.", exp.Namespace)
	case service == nil || service.DeletionTimestamp != nil:
		return mcsv1beta1.ServiceExportReasonNoService, fmt.Sprintf(
			"There is no Service %q in namespace %q: create it, or delete the export.", exp.Name, exp.Namespace)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"A Service of type ExternalName cannot be exported: create one in each cluster instead."
	case service.Labels[broker.LabelManagedBy] == broker.ManagedBy:
		return mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"This Service is derived from an import: export the Services that the import stands for."
	case o.Endpoints == broker.LoadBalancer && isHeadless(service):
		return mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"A headless Service has no load balancer: want a Service of type LoadBalancer."
	case o.Endpoints == broker.LoadBalancer && service.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return mcsv1beta1.ServiceExportReasonInvalidServiceType, fmt.Sprintf(
			"The addresses of its load balancer are to be exported, and the Service is of type %s: want LoadBalancer.",
			cmp.Or(service.Spec.Type, corev1.ServiceTypeClusterIP))
	}
	return validSelectors(exp, service)
}

// validSelectors returns reason and message of the condition Valid of an export that is valid but for its selectors
// (KEP-5939) and the clusters that it is to reach.
func validSelectors(exp *mcsv1beta1.ServiceExport, service *corev1.Service) (mcsv1beta1.ServiceExportConditionReason,
	string) {
	selectors, _, err := selection.FromAnnotations(preferences(exp))
	_, list := exp.Annotations[broker.AnnotationSelectors]
	_, errTo := selection.ToClusters(exp.Annotations)
	switch {
	case errTo != nil:
		return wellknown.ReasonInvalidToClusters, fmt.Sprintf("It cannot be read which clusters the export is to reach: %s.",
			errTo)
	case err != nil && !errors.Is(err, selection.ErrAffinity) && !errors.As(err, new(v1alpha1.BoundError)):
		return wellknown.ReasonInvalidClusterSelector, fmt.Sprintf("The cluster selectors are malformed: %s.", err)
	case len(selectors) > 0 && isHeadless(service) && list:
		return mcsv1beta1.ServiceExportReasonInvalidServiceType,
			fmt.Sprintf(
				"Clusters cannot be selected for a headless Service: remove annotation %s, or give the Service a cluster IP.",
				broker.AnnotationSelectors)
	}
	return mcsv1beta1.ServiceExportReasonValid, "The Service can be exported."
}

// preferences returns the annotations of an export that name clusters: those of the object, and Cilium's among those
// that travel with the service, where the manual of Cilium puts it.
func preferences(exp *mcsv1beta1.ServiceExport) map[string]string {
	value, given := exp.Spec.ExportedAnnotations[broker.AnnotationCiliumAffinity]
	if _, own := exp.Annotations[broker.AnnotationCiliumAffinity]; own || !given {
		return exp.Annotations
	}
	all := map[string]string{broker.AnnotationCiliumAffinity: value}
	maps.Copy(all, exp.Annotations)
	return all
}

// selectors returns the selectors of the export: an unknown affinity, and a list beyond the bounds, have none.
func (x *exporter) selectors() []v1alpha1.ClusterSelector {
	selectors, _, err := selection.FromAnnotations(preferences(x.exp))
	switch {
	case err != nil:
		x.ignore("Ignored: %s.", err)
	case len(selectors) > 0 && x.headless():
		x.ignore("Ignored: an affinity of a headless Service: want one that has a cluster IP.")
		return nil
	}
	return selectors.Record()
}

// ignoreOfImporters reports the annotations that only the Namespace of an importing cluster has.
func (x *exporter) ignoreOfImporters() {
	for _, key := range []string{broker.AnnotationTrafficDistribution, broker.AnnotationWeights} {
		if _, given := x.exp.Annotations[key]; given {
			x.ignore("Ignored: annotation %s of a ServiceExport: want it on the Namespace of an importing cluster.", key)
		}
	}
}

// ignoreLeftOut reports the properties in selectors that this cluster has and does not publish.
func (x *exporter) ignoreLeftOut(selectors []v1alpha1.ClusterSelector) {
	named := make(map[string]bool)
	for _, s := range selectors {
		for _, p := range s.MatchProperties {
			named[p.Name] = true
		}
		for _, e := range s.MatchExpressions {
			named[e.Key] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if why, leftOut := x.o.LeftOut[name]; leftOut {
			x.ignore("Ignored by selectors: %s.", why)
		}
	}
}

// toClusters returns the selectors of the clusters that the export is to reach, nil for all. The export is valid.
func (x *exporter) toClusters() []v1alpha1.ClusterSelector {
	to, err := selection.ToClusters(x.exp.Annotations)
	if err != nil {
		panic("export: a valid export does not say which clusters it is to reach: " + err.Error())
	}
	return to.Record()
}

// ours returns the slices that are the service's and not made from an import, sorted by name.
func ours(service *corev1.Service, sources []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var own []*discoveryv1.EndpointSlice
	for _, s := range sources {
		if s != nil && s.Namespace == service.Namespace && s.Labels[discoveryv1.LabelServiceName] == service.Name &&
			s.Labels[discoveryv1.LabelManagedBy] != broker.ManagedBy {
			own = append(own, s)
		}
	}
	slices.SortFunc(own, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return own
}

func (x *exporter) record(spec v1alpha1.ExportedServiceSpec) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExportedService"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.o.BrokerNamespace, Name: broker.RecordName(spec.Namespace, spec.Name), Labels: x.labels(),
		},
		Spec: spec,
	}
}

// spec returns the spec of the record.
func (x *exporter) spec() v1alpha1.ExportedServiceSpec {
	from := &x.service.Spec
	spec := v1alpha1.ExportedServiceSpec{
		Namespace:                x.service.Namespace,
		Name:                     x.service.Name,
		Type:                     v1alpha1.ClusterSetIP,
		Ports:                    x.ports(),
		SessionAffinity:          cmp.Or(from.SessionAffinity, corev1.ServiceAffinityNone),
		SessionAffinityConfig:    from.SessionAffinityConfig.DeepCopy(),
		InternalTrafficPolicy:    clone(from.InternalTrafficPolicy),
		TrafficDistribution:      clone(from.TrafficDistribution),
		ClusterSelectors:         x.selectors(),
		ToClusters:               x.toClusters(),
		Labels:                   x.exportedLabels(),
		Annotations:              x.exportedAnnotations(),
		IPFamilies:               x.families(),
		PublishNotReadyAddresses: from.PublishNotReadyAddresses,
		ExportCreated:            x.exp.CreationTimestamp,
		ExportGeneration:         x.exp.Generation,
		ExportUID:                string(x.exp.UID),
		VIP:                      x.vip(),
	}
	x.ignoreOfImporters()
	x.ignoreLeftOut(slices.Concat(spec.ClusterSelectors, spec.ToClusters))
	if x.headless() {
		spec.Type = v1alpha1.Headless
		return spec
	}
	if policy := from.InternalTrafficPolicy; policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal {
		x.drop("A cluster without endpoints of its own cannot reach the service by a cluster IP, as its internalTrafficPolicy is Local.")
	}
	for _, addr := range x.clusterIPs() {
		spec.ClusterIPs = append(spec.ClusterIPs, addr.String())
	}
	return spec
}

func (x *exporter) ports() []v1alpha1.ServicePort {
	var ports []v1alpha1.ServicePort
	for _, p := range x.service.Spec.Ports {
		ports = append(ports, v1alpha1.ServicePort{
			Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), AppProtocol: clone(p.AppProtocol), Port: p.Port,
		})
	}
	return ports
}

// vip returns the clusterset IP setting of the record: the annotation of the export overrides the flag of the cluster
// (second Lighthouse document, "Creating ServiceExport").
func (x *exporter) vip() *v1alpha1.VIP {
	if x.o.WantsVIP == nil || x.headless() {
		return nil
	}
	v := &v1alpha1.VIP{Wanted: *x.o.WantsVIP}
	if text, annotated := x.exp.Annotations[broker.AnnotationUseVIP]; annotated {
		wanted, err := strconv.ParseBool(text)
		if err == nil {
			v.Wanted = wanted
		} else {
			x.ignore("Ignored: annotation %s: %.80q: want true or false.", broker.AnnotationUseVIP, text)
		}
	}
	return v
}
