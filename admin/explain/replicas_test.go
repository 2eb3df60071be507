package explain

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
)

// docs/spec/explain.md 1: the state of replicas is read from their metrics, through the API server. An API server of a
// test reaches no Pod, so this one is a handler.
func TestReadReplicas(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset-system", Name: name}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "dns", ContainerPort: 53},
				{Name: "metrics", ContainerPort: 9153}}}}},
		}
	}
	pods := []corev1.Pod{pod("a", corev1.PodRunning), pod("b", corev1.PodRunning), pod("waits", corev1.PodPending)}
	service := corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "dns"}}}
	hashes, forbidden := map[string]string{}, false
	const path = "/api/v1/namespaces/clusterset-system/"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		rest := strings.TrimPrefix(r.URL.Path, path)
		name := strings.TrimSuffix(strings.TrimPrefix(rest, "pods/http:"), ":9153/proxy/metrics")
		var answer any
		switch {
		case rest == "services/clusterset-dns":
			answer = service
		case rest == "pods" && r.URL.Query().Get("labelSelector") == "app=dns":
			answer = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods}
		case hashes[name] != "" && !forbidden:
			fmt.Fprintf(w, "coredns_clusterset_state_hash{zone=\"\"} %s\n", hashes[name])
			return
		case hashes[name] != "":
			w.WriteHeader(http.StatusForbidden)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
				Reason: metav1.StatusReasonForbidden,
				Code:   http.StatusForbidden}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	o := Defaults()
	read := func() cause.Read[cause.Replicas] {
		c, err := read.OpenWithin(config, o.Timeout, grantsMember)
		if err != nil {
			t.Fatal(err)
		}
		return readReplicas(t.Context(), c, o)
	}
	for _, tt := range []struct {
		a, b   string
		differ bool
	}{{"1", "1", false}, {"1", "2", true}} {
		hashes["a"], hashes["b"] = tt.a, tt.b
		got := read()
		if got.State != cause.Present || len(got.Value.All) != 2 || got.Value.Differ() != tt.differ || got.Value.Changed {
			t.Errorf("hashes %s and %s: read %+v, want two replicas that differ: %t", tt.a, tt.b, got, tt.differ)
		}
	}
	forbidden = true
	const why = "the right to get pods/proxy in namespace clusterset-system is missing; deploy/explain/member.yaml has it"
	if got := read(); got.State != cause.Forbidden || got.Why != why {
		t.Errorf("without a right: %+v, want %q", got, why)
	}
	service.Spec.Selector = nil
	if got := read(); got.State != cause.Absent {
		t.Errorf("without a selector: %+v, want nothing to compare", got)
	}
	o.DNSNamespace = ""
	if got := read(); got.State != cause.NotAsked {
		t.Errorf("without a namespace of the DNS server: %+v, want nothing asked", got)
	}
}
