package importer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// hasCluster reports whether imp is an import of ours that has the cluster.
func hasCluster(imp *mcsv1beta1.ServiceImport, cluster string) bool {
	return member.IsOurs(imp) && slices.Contains(imp.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: cluster})
}

// contributionOf returns the slices that the cluster with the record spec contributes to an unchanged import, and the
// rejections. derived, the derived Service, may be nil.
func contributionOf(
	src desired.Source, spec v1alpha1.ExportedServiceSpec, imp *mcsv1beta1.ServiceImport, derived *corev1.Service,
	o merge.Options,
) ([]*discoveryv1.EndpointSlice, []merge.Rejection) {
	merged := merge.Merge(member.KeyOf(imp), []merge.Record{{Cluster: src.Cluster, Spec: spec}}, o)
	wanted, rejected := desired.ObjectsOf(ownContribution(imp, derived, merged), desired.ImportingCluster{
		Sources: []desired.Source{src},
	})
	return wanted.Slices, rejected
}

// ownContribution returns r, which was merged from the record of one cluster alone, with the spec of the import and
// with the names that its ports have there. derived may be nil.
func ownContribution(imp *mcsv1beta1.ServiceImport, derived *corev1.Service, r merge.Result) merge.Result {
	if r.Import == nil || len(r.Members) != 1 {
		return merge.Result{}
	}
	served := r.Import.Spec.Ports
	r.Import.Spec = *imp.Spec.DeepCopy()
	mapped := make([]merge.PortMapping, 0, len(served))
	for _, p := range served {
		at := portOf(imp.Spec.Ports, p)
		if at < 0 {
			continue
		}
		to := imp.Spec.Ports[at]
		m := merge.PortMapping{From: p.Name, To: to.Name, Protocol: to.Protocol, AppProtocol: to.AppProtocol}
		if derived != nil {
			for _, d := range derived.Spec.Ports {
				if d.Protocol == to.Protocol && d.Port == to.Port {
					m.To = d.Name
				}
			}
		}
		mapped = append(mapped, m)
	}
	r.Members[0].Ports = mapped
	if len(mapped) == 0 && len(imp.Spec.Ports) > 0 {
		r.Members[0].LeftOut = merge.LeftOutPorts
	}
	return r
}

// portOf returns the index of p among the ports of an import, -1 if it is not there: by name first, then by protocol
// and number (docs/spec/controller.md 4).
func portOf(ports []mcsv1beta1.ServicePort, p mcsv1beta1.ServicePort) int {
	same := func(q mcsv1beta1.ServicePort) bool { return q.Protocol == p.Protocol && q.Port == p.Port }
	if at := slices.IndexFunc(ports, func(q mcsv1beta1.ServicePort) bool { return q.Name == p.Name }); at >= 0 {
		if !same(ports[at]) {
			return -1
		}
		return at
	}
	return slices.IndexFunc(ports, same)
}
