package export

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// An exporter makes the objects of one export.
type exporter struct {
	exp     *mcsv1beta1.ServiceExport
	service *corev1.Service
	sources []*discoveryv1.EndpointSlice // of the Service
	o       Options
	dropped []string
	ignored []string
	divided bool // the slices are not copies of the source slices
	// undeclared are addresses outside of the networks of the cluster.
	undeclared []string
}

func (x *exporter) drop(format string, args ...any) {
	x.dropped = append(x.dropped, fmt.Sprintf(format, args...))
}

// ignore reports a value of an annotation that does not count.
func (x *exporter) ignore(format string, args ...any) {
	x.ignored = append(x.ignored, fmt.Sprintf(format, args...))
}

func (x *exporter) headless() bool { return isHeadless(x.service) }

func isHeadless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// labels are for the selectors of broker watches, and for the admission policies that check the writer.
func (x *exporter) labels() map[string]string {
	return map[string]string{
		mcsv1beta1.LabelServiceName:   x.service.Name,
		mcsv1beta1.LabelSourceCluster: x.o.ClusterID,
		broker.LabelSourceNamespace:   x.service.Namespace,
	}
}

// clusterIPs returns the addresses of the Service, at most one for each family.
func (x *exporter) clusterIPs() []netip.Addr {
	given := x.service.Spec.ClusterIPs
	if len(given) == 0 {
		given = []string{x.service.Spec.ClusterIP}
	}
	var addrs []netip.Addr
	for _, s := range given {
		addr, err := broker.ParseAddress(s)
		if err != nil || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			continue
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func (x *exporter) newSlice(source string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.o.BrokerNamespace,
			Name:      broker.SliceName(x.service.Namespace, x.service.Name, source),
			Labels:    x.labels(),
		},
		AddressType: family,
	}
	s.Labels[discoveryv1.LabelManagedBy] = broker.ManagedBy
	return s
}

func isReady(e discoveryv1.Endpoint) bool { return broker.IsReady(e.Conditions) }
