package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestProbes requests the pages that the probes of the shipped Deployment request.
func TestProbes(t *testing.T) {
	manifest, err := os.ReadFile("../../deploy/controller/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var age time.Duration
	served := httpPages("metrics", "health", prometheus.NewRegistry(), func() time.Duration { return age })
	asked := 0
	for document := range strings.SplitSeq(string(manifest), "\n---") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &d); err != nil || d.Kind != "Deployment" {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil {
					t.Fatalf("container %s: want a liveness probe and a readiness probe, both over HTTP", c.Name)
				}
				asked++
				for reviewed, want := range map[time.Duration]int{0: http.StatusOK, stuckAfter: http.StatusOK,
					stuckAfter + 1: http.StatusServiceUnavailable} {
					age = reviewed
					answer := httptest.NewRecorder()
					served[probe.HTTPGet.Port.String()].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, probe.HTTPGet.Path, nil))
					if answer.Code != want {
						t.Errorf("GET %s on port %s, %s after the last review: %d, want %d",
							probe.HTTPGet.Path, probe.HTTPGet.Port.String(), reviewed, answer.Code, want)
					}
				}
			}
		}
	}
	if asked == 0 {
		t.Error("no Deployment with probes")
	}
}
