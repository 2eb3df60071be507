package importer

import (
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// portsGrace is how long the slices of a cluster may lack the ports of its record. Kubernetes changes the slices of a
// Service a moment after the Service, and record and slices come by watches of their own.
const portsGrace = 2 * time.Second

// lackPorts returns the clusters with imported endpoints whose slices serve no port of their record. The plan would
// remove these endpoints.
func lackPorts(in inputs, p plan) (clusters []string) {
	for _, src := range p.cluster.Sources {
		spec := p.specOf(src.Cluster)
		if spec != nil && hasCluster(in.imported, src.Cluster) && servesNoPort(spec.Ports, src.Slices) &&
			slices.ContainsFunc(in.slices, func(e *discoveryv1.EndpointSlice) bool {
				return e.Labels[mcsv1beta1.LabelSourceCluster] == src.Cluster && len(e.Endpoints) > 0
			}) {
			clusters = append(clusters, src.Cluster)
		}
	}
	return clusters
}

// servesNoPort reports whether no slice with endpoints has one of these ports. A slice without any port serves a
// Headless service.
func servesNoPort(ports []v1alpha1.ServicePort, all []*discoveryv1.EndpointSlice) bool {
	filled := false
	for _, e := range all {
		if len(e.Endpoints) == 0 {
			continue
		}
		filled = true
		if len(e.Ports) == 0 || slices.ContainsFunc(ports, func(p v1alpha1.ServicePort) bool {
			return desired.HasPort(e, desired.Port{Name: p.Name, Protocol: p.Protocol, Family: e.AddressType})
		}) {
			return false
		}
	}
	return filled && len(ports) > 0
}

// unserved are the services with clusters that lack ports (docs/spec/controller.md 4.3), and since when.
type unserved struct{ byService[time.Time] }

// wait returns how much longer to wait for the slices of a service, 0 or less if they lack no ports, or did so for
// [portsGrace]. One goroutine at a time asks for a service.
func (u *unserved) wait(svc types.NamespacedName, lacking bool, now time.Time) time.Duration {
	since := u.get(svc)
	if since.IsZero() {
		since = now
	}
	if u.set(svc, since, lacking); !lacking {
		return 0
	}
	return since.Add(portsGrace).Sub(now)
}
