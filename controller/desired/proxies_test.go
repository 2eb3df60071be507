package desired

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// docs/spec/controller.md 5.6: with internal traffic policy Local a cluster without endpoints of its own does not reach
// the service.
func TestLacksLocal(t *testing.T) {
	from := func(cluster string, node *string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}},
			Endpoints:  []discoveryv1.Endpoint{{NodeName: node}},
		}
	}
	node := new("node-1")
	hidden := from("here", node)
	Hide(hidden)
	for _, tt := range []struct {
		name     string
		change   func(*mcsv1beta1.ServiceImport)
		imported []*discoveryv1.EndpointSlice
		want     bool
	}{
		{name: "no slice", want: true},
		{name: "of another cluster alone", imported: []*discoveryv1.EndpointSlice{from("there", node)}, want: true},
		{name: "an endpoint here", imported: []*discoveryv1.EndpointSlice{from("there", nil), from("here", node)}},
		{name: "an endpoint here on no node", imported: []*discoveryv1.EndpointSlice{from("here", nil)}, want: true},
		{name: "this cluster is not selected", imported: []*discoveryv1.EndpointSlice{hidden}, want: true},
		{name: "policy Cluster", change: func(i *mcsv1beta1.ServiceImport) {
			*i.Spec.InternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyCluster
		}},
		{name: "no policy", change: func(i *mcsv1beta1.ServiceImport) { i.Spec.InternalTrafficPolicy = nil }},
		{name: "no address", change: func(i *mcsv1beta1.ServiceImport) { i.Spec.IPs = nil }},
		{name: "a clusterset IP", change: func(i *mcsv1beta1.ServiceImport) {
			i.Annotations = map[string]string{broker.AnnotationAllocatedBy: "there"}
		}},
	} {
		imp := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.96.0.9"},
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal)}}
		if tt.change != nil {
			tt.change(imp)
		}
		if got := LacksLocal(imp, tt.imported, "here"); got != tt.want {
			t.Errorf("%s: lacks local endpoints: %t, want %t", tt.name, got, tt.want)
		}
	}
}
