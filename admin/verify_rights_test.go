package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/verify"
)

// forbidding is an API server that grants its user nothing, and says so as kube-apiserver does.
func forbidding(w http.ResponseWriter, r *http.Request) {
	verb := map[string]string{http.MethodPost: "create", http.MethodDelete: "delete", http.MethodGet: "get"}[r.Method]
	path := regexp.MustCompile(`^/apis?/(?:([^/]+\.[^/]+|apps)/)?v[^/]+/(?:namespaces/[^/]+/)?([a-z]+)(/[^/]+)?(/log)?$`).FindStringSubmatch(r.URL.Path)
	if verb == "get" && path[3] == "" {
		verb = "list"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
		Message: fmt.Sprintf("%s is forbidden: User \"verifier\" cannot %s resource \"%s\" in API group \"%s\"", path[2], verb, path[2]+path[4], path[1]),
	})
}

// TestVerifyNamesRights: what verify says of a right that is missing, in an error, in the evidence of a check and of what is left, has its verb, its
// resource and the manifest.
func TestVerifyNamesRights(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(forbidding))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	o := VerifyDefaults()
	o.Timeout, o.Progress = 100*time.Millisecond, func(string) {}
	newMember := func() *verifiedMember {
		return &verifiedMember{VerifyCluster: VerifyCluster{Name: "east", Config: config}, index: 1}
	}
	opened := newMember()
	properties := opened.open(t.Context(), o)
	opened.core, opened.clusterID = core, "east"
	v := &verifier{options: o, namespace: "ns", members: []*verifiedMember{opened}}
	_, image := opened.installedImage(t.Context(), "system")
	_, imported := v.imported(t.Context(), opened, opened, verify.ClusterSetIP)
	_, endpoints := opened.endpoints(t.Context(), "ns", opened, verify.Headless)
	_, cleaned := VerifyClean(t.Context(), []VerifyCluster{opened.VerifyCluster}, o)
	var left []string
	v.removeOrNote(t.Context(), opened, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, &left)
	_, listed := v.removeLeftovers(t.Context(), true)
	for _, tt := range []struct{ name, got, verb, resource string }{
		{"properties", properties.Error(), "get", "clusterproperties"},
		{"image", grantedBy(image).Error(), "get", "deployments"},
		{"export", opened.exported(t.Context(), "ns", verify.Headless).Error(), "get", "serviceexports"},
		{"import", imported.Error(), "get", "serviceimports"},
		{"endpoints", endpoints.Error(), "list", "endpointslices"},
		{"cleanup", cleaned.Error(), "get", "clusterproperties"},
		{"what is left", strings.Join(left, "; "), "list", "serviceexports"},
		{"what earlier runs left", grantedBy(listed).Error(), "list", "namespaces"},
		{"prepare", grantedBy(v.prepare(t.Context())).Error(), "create", "namespaces"},
	} {
		if !regexp.MustCompile(tt.verb+`( resource)? "?`+tt.resource).MatchString(tt.got) || strings.Count(tt.got, grantsVerify) != 1 {
			t.Errorf("%s: %q, want %s, %s and once %s", tt.name, tt.got, tt.verb, tt.resource, grantsVerify)
		}
	}
}
