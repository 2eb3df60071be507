package wiring

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// OpenShiftNamespace has the Service of OpenShift's DNS server.
const OpenShiftNamespace = "openshift-dns"

// openShiftServer is the name of our entry.
const openShiftServer = "clusterset-dns"

// findOpenShift reads dns.operator.openshift.io/default. Its operator writes the Corefile, so nothing else lasts
// (docs/spec/dns-wiring.md 5).
func findOpenShift(o *unstructured.Unstructured, w Desired) Resolver {
	r := Resolver{Kind: OpenShift, Workload: "daemonset/dns-default",
		Evidence: []string{"dns.operator.openshift.io/default exists"}}
	if ip, _, _ := unstructured.NestedString(o.Object, "status", "clusterIP"); ip != "" {
		r.Addresses = []string{ip}
	}
	if state, _, _ := unstructured.NestedString(o.Object, "spec", "managementState"); state == "Unmanaged" {
		r.Warnings = append(
			r.Warnings, "dns.operator.openshift.io/default is Unmanaged: its operator writes no Corefile until that is changed")
	}
	servers, _, err := unstructured.NestedSlice(o.Object, "spec", "servers")
	if err != nil {
		r.setManual(RouteUnknown, "spec.servers of dns.operator.openshift.io/default is not a list", serverText(w))
		return r
	}
	var others []any
	var ours map[string]any
	for _, s := range servers {
		server, _ := s.(map[string]any)
		zones, _, _ := unstructured.NestedStringSlice(server, "zones")
		to, _, _ := unstructured.NestedStringSlice(server, "forwardPlugin", "upstreams")
		if server["name"] == openShiftServer && len(zones) == 1 {
			ours = server
			continue
		}
		if others = append(others, s); slices.ContainsFunc(zones, func(z string) bool { return sameName(z, w.Zone) }) {
			r.setTaken(serving{
				what:   fmt.Sprintf("its server %v forwards the zone to %s", server["name"], strings.Join(to, ", ")),
				wanted: sameAddresses(to, w),
			})
		}
	}
	if ours != nil {
		r.Undo = serversEdit(o, servers, others)
	}
	if r.State != "" {
		return r
	}
	wanted := w.server()
	zones, _, _ := unstructured.NestedStringSlice(ours, "zones")
	to, _, _ := unstructured.NestedStringSlice(ours, "forwardPlugin", "upstreams")
	switch {
	case ours == nil:
		r.State, r.Route = Missing, RouteNone
	case slices.Equal(zones, []string{w.Zone}) && slices.Equal(to, w.addresses()):
		r.State, r.Route = Wired, RouteWanted
		return r
	default:
		r.State, r.Route = Outdated, w.route(slices.Equal(zones, []string{w.Zone}), to)
	}
	if len(w.Addresses) > 0 {
		r.Apply = serversEdit(o, servers, append(others, wanted))
	}
	return r
}

func (w Desired) server() map[string]any {
	var to []any
	for _, a := range w.addresses() {
		to = append(to, a)
	}
	return map[string]any{"name": openShiftServer, "zones": []any{w.Zone},
		"forwardPlugin": map[string]any{"upstreams": to}}
}

func serverText(w Desired) string { return yamlText([]any{w.server()}) }

func yamlText(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		panic("wiring: values of an object are YAML: " + err.Error())
	}
	return string(text)
}

func serversEdit(o *unstructured.Unstructured, before, after []any) *Edit {
	e := &Edit{Before: o, After: o.DeepCopy(), Field: "spec.servers"}
	if len(before) > 0 {
		e.Old = yamlText(before)
	}
	if len(after) == 0 {
		unstructured.RemoveNestedField(e.After.Object, "spec", "servers")
		return e
	}
	e.New = yamlText(after)
	if err := unstructured.SetNestedSlice(e.After.Object, runtime.DeepCopyJSONValue(after).([]any), "spec",
		"servers"); err != nil {
		panic("wiring: the spec of a DNS is an object: " + err.Error())
	}
	return e
}
