package write

import (
	"encoding/json"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// responses remembers the objects that the API server keeps different from the request, because its admission changes
// or rejects them. Such a write is repeated only after a change of the request or of the object. Several goroutines may
// call the methods.
type responses struct {
	mu   sync.Mutex
	last map[types.NamespacedName]map[string]response // by service and object
}

// A response is what existed after a write that asked for something else. Both are fingerprints.
type response struct{ asked, found string }

func newResponses() *responses {
	return &responses{last: make(map[types.NamespacedName]map[string]response)}
}

// get returns the last response for an object of the service.
func (rs *responses) get(svc types.NamespacedName, object string) (response, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, ok := rs.last[svc][object]
	return r, ok
}

func (rs *responses) set(svc types.NamespacedName, object string, r response) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.last[svc] == nil {
		rs.last[svc] = make(map[string]response)
	}
	rs.last[svc][object] = r
}

// remove drops all responses of a service that is no longer imported.
func (rs *responses) remove(svc types.NamespacedName) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.last, svc)
}

// nameOf names an object among those of its service.
func nameOf(o apiserver.Object) string {
	switch o.(type) {
	case *mcsv1beta1.ServiceImport:
		return "ServiceImport"
	case *corev1.Service:
		return "derived Service"
	}
	return "EndpointSlice " + o.GetName()
}

// fingerprint is a hash of the part of an object that we decide on, "" for nil.
func fingerprint(o apiserver.Object) string {
	if o == nil {
		return ""
	}
	ours := []any{o.GetLabels(), o.GetAnnotations()}
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		ours = append(ours, o.Spec)
	case *corev1.Service:
		ours = append(ours, o.Spec)
	case *discoveryv1.EndpointSlice:
		ours = append(ours, o.Endpoints, o.Ports)
	}
	return digest(ours)
}

// statusFingerprint is a hash of the status of an import without its transition times, which are those of writing it.
func statusFingerprint(imp *mcsv1beta1.ServiceImport) string {
	status := imp.Status.DeepCopy()
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return digest(status)
}

func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // a time in a year that RFC 3339 cannot express
	}
	return apibroker.Hash(32, string(text))
}
