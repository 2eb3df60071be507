package desired

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The fields of a spec that are ours, set or not. Of a Service the API server allocates the others.
var (
	importFields = []string{
		"type", "ports", "ips", "ipFamilies", "sessionAffinity", "sessionAffinityConfig", "internalTrafficPolicy",
		"trafficDistribution",
	}
	serviceFields = []string{
		"type", "ports", "selector", "ipFamilies", "ipFamilyPolicy", "sessionAffinity", "sessionAffinityConfig",
		"internalTrafficPolicy", "trafficDistribution", "externalIPs", "loadBalancerClass", "allocateLoadBalancerNodePorts",
		"externalTrafficPolicy", "loadBalancerSourceRanges", "loadBalancerIP", "publishNotReadyAddresses", "externalName",
	}
)

// Patch returns the JSON merge patch that sets our fields of existing as in update, and leaves all others alone. update
// is one of [Changes], and existing the object that it was compared with; a status is no part of it.
//
// It has the UID and the resource version of update, so it fails where the object is no longer the one that was
// compared. Unlike server-side apply it takes away what someone else has put into our fields.
func Patch(update, existing metav1.Object) []byte {
	metadata := map[string]any{"uid": update.GetUID(), "resourceVersion": update.GetResourceVersion()}
	patch := map[string]any{"metadata": metadata}
	switch u := update.(type) {
	case *mcsv1beta1.ServiceImport:
		patch["spec"] = fields(u.Spec, importFields)
	case *corev1.Service:
		patch["spec"] = fields(u.Spec, serviceFields)
	case *discoveryv1.EndpointSlice:
		patch["ports"], patch["endpoints"] = u.Ports, append([]discoveryv1.Endpoint{}, u.Endpoints...)
	default:
		panic("desired: Patch wants an import, a Service or a slice")
	}
	for key, changed := range metaChanges(update, existing) {
		metadata[key] = changed
	}
	return encode(patch)
}

// fields returns those fields of a spec, with null for one that is not set.
func fields(spec any, names []string) map[string]json.RawMessage {
	var set map[string]json.RawMessage
	if err := json.Unmarshal(encode(spec), &set); err != nil {
		panic("desired: a spec is no JSON object: " + err.Error())
	}
	all := make(map[string]json.RawMessage, len(names))
	for _, name := range names {
		all[name] = set[name]
	}
	return all
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // a time of a year that RFC 3339 cannot say
	}
	return text
}
