//go:build traffic && linux

package traffic

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// share makes exactly these members export the service, which each of them offers and of which the first has the say. Every
// member imports it.
//
// Nobody does that yet: the test writes what an importer has to write.
func (c *clusterset) share(t *testing.T, s service, exporters ...*member) {
	t.Helper()
	ports := map[string]int32{}
	for _, from := range exporters {
		for _, p := range from.get(t, s.name).Spec.Ports {
			ports[p.Name] = p.Port
		}
	}
	for _, to := range c.members() {
		to.imports(t, service{name: s.name, headless: s.headless, ports: ports}, exporters)
	}
}

func (m *member) get(t *testing.T, name string) *corev1.Service {
	t.Helper()
	u, err := m.Dynamic().Resource(services).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	var s corev1.Service
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s))
	return &s
}

// imports writes the import, the Service that is derived from it, and the slices of all exporters.
func (m *member) imports(t *testing.T, s service, exporters []*member) {
	t.Helper()
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: namespace},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{}},
	}
	for _, name := range slices.Sorted(maps.Keys(s.ports)) {
		port := mcsv1beta1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: s.ports[name]}
		imp.Spec.Ports = append(imp.Spec.Ports, port)
	}
	derived := ""
	if !s.headless {
		derived = "derived-" + s.name
		object := service{name: derived, ports: s.ports}.object()
		object.Spec.Selector = nil
		must(t, m.Apply(t.Context(), object))
		imp.Spec.Type, imp.Spec.IPs = mcsv1beta1.ClusterSetIP, m.get(t, derived).Spec.ClusterIPs
	}
	must(t, m.Apply(t.Context(), imp))
	wanted := map[string]bool{}
	for _, from := range exporters {
		for _, source := range from.slicesOf(t, discoveryv1.LabelServiceName, s.name) {
			imported := importedSlice(from.id, s.name, derived, &source)
			must(t, m.Apply(t.Context(), imported))
			wanted[imported.Name] = true
		}
	}
	for _, old := range m.slicesOf(t, mcsv1beta1.LabelServiceName, s.name) {
		if !wanted[old.Name] {
			must(t, m.Delete(t.Context(), &old))
		}
	}
}

func importedSlice(cluster, name, derived string, source *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	imported := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "imported-" + cluster + "-" + source.Name, Namespace: namespace,
			Labels: map[string]string{
				mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: cluster, discoveryv1.LabelManagedBy: "hand",
			},
		},
		AddressType: source.AddressType, Ports: source.Ports,
	}
	if derived == "" {
		imported.Labels[corev1.IsHeadlessService] = ""
	} else {
		imported.Labels[discoveryv1.LabelServiceName] = derived
	}
	for _, e := range source.Endpoints {
		imported.Endpoints = append(imported.Endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname,
		})
	}
	return imported
}
