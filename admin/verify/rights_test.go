package verify

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// TestVerifyNamesRights: verify names a missing right, in an error, in the evidence of a check and in the rest, by its
// verb, its resource and the manifest.
func TestVerifyNamesRights(t *testing.T) {
	kubeconfig, err := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}}).UserKubeconfig("verifier")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.Progress = func(string) {}
	newMember := func() *verifiedMember {
		return &verifiedMember{Member: Member{Name: "east", Config: config}, index: 1}
	}
	opened := newMember()
	properties := opened.open(t.Context(), o)
	opened.clusterID = "east"
	v := &verifier{options: o, namespace: "ns", members: []*verifiedMember{opened}}
	_, image := opened.installedImage(t.Context(), "system")
	_, imported := v.importedAddresses(t.Context(), opened, opened, plan.ClusterSetIP)
	_, endpoints := opened.endpoints(t.Context(), "ns", opened, plan.Headless)
	_, cleaned := Clean(t.Context(), []Member{opened.Member}, o)
	var left []string
	v.removeOrNote(t.Context(), opened, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, &left)
	_, listed := v.removeLeftovers(t.Context(), true)
	for _, tt := range []struct{ name, got, verb, resource string }{
		{"properties", properties.Error(), "get", "clusterproperties"},
		{"image", grantedBy(image).Error(), "get", "deployments"},
		{"export", opened.checkExported(t.Context(), "ns", plan.Headless).Error(), "get", "serviceexports"},
		{"import", imported.Error(), "get", "serviceimports"},
		{"endpoints", endpoints.Error(), "list", "endpointslices"},
		{"cleanup", cleaned.Error(), "get", "clusterproperties"},
		{"what is left", strings.Join(left, "; "), "list", "serviceexports"},
		{"what earlier runs left", grantedBy(listed).Error(), "list", "namespaces"},
		{"prepare", grantedBy(v.createObjects(t.Context())).Error(), "create", "namespaces"},
	} {
		if !regexp.MustCompile(tt.verb+`( resource)? "?`+tt.resource).MatchString(tt.got) || strings.Count(tt.got, grantsVerify) != 1 {
			t.Errorf("%s: %q, want %s, %s and once %s", tt.name, tt.got, tt.verb, tt.resource, grantsVerify)
		}
	}
}
