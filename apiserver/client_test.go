package apiserver_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

func TestClient(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	c, err := apiserver.NewClient(cp.Config())
	must(t, err)
	t.Cleanup(c.Close)
	must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))

	t.Run("create, get, update, delete", func(t *testing.T) { testWrite(t, c) })
	t.Run("apply", func(t *testing.T) { testApply(t, c) })
	t.Run("apply status", func(t *testing.T) { testStatus(t, c) })
	t.Run("list", func(t *testing.T) { testList(t, c) })
	t.Run("questions", func(t *testing.T) { testQuestions(t, c) })
}

func testWrite(t *testing.T, c *apiserver.Client) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"},
		Data: map[string][]byte{"a": []byte("1"), "b": nil}}
	must(t, c.Create(t.Context(), s))
	if s.UID == "" || s.ResourceVersion == "" {
		t.Error("created object is not filled")
	}
	if err := c.Create(t.Context(), s); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create again: %v, want that it exists", err)
	}
	got := &corev1.Secret{Data: map[string][]byte{"stale": nil}}
	must(t, c.Get(t.Context(), got, "shop", "s"))
	if _, stale := got.Data["stale"]; stale || string(got.Data["a"]) != "1" {
		t.Errorf("got %v, want what is stored and nothing else", got.Data)
	}
	got.Data["a"] = []byte("2")
	must(t, c.Update(t.Context(), got))
	if err := c.Update(t.Context(), s); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v, want a conflict", err)
	}
	other := got.DeepCopy()
	other.UID = "another"
	if err := c.Delete(t.Context(), other); !apierrors.IsConflict(err) {
		t.Errorf("delete with another UID: %v, want a conflict", err)
	}
	must(t, c.Delete(t.Context(), got))
	must(t, c.Delete(t.Context(), got))
	if err := c.Get(t.Context(), got, "shop", "s"); !apierrors.IsNotFound(err) ||
		!strings.HasPrefix(err.Error(), "get Secret shop/s: ") {
		t.Errorf("get: %v, want that it is gone, and what was asked for", err)
	}
}

// The result of desired.Diff can be applied; a change since then is a conflict.
func testApply(t *testing.T, c *apiserver.Client) {
	desired := func() *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "e", Labels: map[string]string{"a": "1", "b": "2"}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
	}
	first := desired()
	must(t, c.Apply(t.Context(), first, "tester"))
	second := desired()
	delete(second.Labels, "b")
	second.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}
	second.UID, second.ResourceVersion = first.UID, first.ResourceVersion
	must(t, c.Apply(t.Context(), second, "tester"))
	if _, left := second.Labels["b"]; left || len(second.Endpoints) != 1 {
		t.Errorf("got %+v, want one endpoint and no label b", second)
	}
	if len(second.ManagedFields) != 1 || second.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managed fields = %+v, want those of one apply", second.ManagedFields)
	}
	// An object as it was read can be applied: what the server wrote into it is not sent.
	again := second.DeepCopy()
	must(t, c.Apply(t.Context(), again, "tester"))
	if again.ResourceVersion != second.ResourceVersion {
		t.Error("an equal apply made a new version")
	}
	stale := desired()
	stale.UID, stale.ResourceVersion = first.UID, first.ResourceVersion
	if err := c.Apply(t.Context(), stale, "tester"); !apierrors.IsConflict(err) {
		t.Errorf("apply of an old version: %v, want a conflict", err)
	}
	must(t, c.Delete(t.Context(), second))
	if err := c.Apply(t.Context(), stale, "tester"); !apierrors.IsConflict(err) {
		t.Errorf("apply over what is gone: %v, want a conflict", err)
	}
}

func testStatus(t *testing.T, c *apiserver.Client) {
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
		Status: mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "east"}}},
	}
	status := imp.DeepCopy()
	must(t, c.Apply(t.Context(), imp, "tester"))
	if len(imp.Status.Clusters) > 0 {
		t.Error("an apply without a subresource wrote the status")
	}
	status.Spec.Type, status.Labels = mcsv1beta1.Headless, map[string]string{"a": "1"}
	must(t, c.Apply(t.Context(), status, "tester", "status"))
	if len(status.Status.Clusters) != 1 || status.Spec.Type != mcsv1beta1.ClusterSetIP || len(status.Labels) > 0 {
		t.Errorf("got %+v, want the status alone written", status)
	}
	must(t, c.Apply(t.Context(), &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: imp.Spec,
	}, "tester"))
	must(t, c.Get(t.Context(), imp, "shop", "db"))
	if len(imp.Status.Clusters) != 1 {
		t.Error("the spec's apply took the status away")
	}
}

func testList(t *testing.T, c *apiserver.Client) {
	for name, tier := range map[string]string{"no": "silver", "yes": "gold"} {
		must(t, c.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"tier": tier}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}))
	}
	list := &corev1.ServiceList{}
	must(t, c.List(t.Context(), &corev1.Service{}, list, "", "tier=gold"))
	if len(list.Items) != 1 || list.Items[0].Name != "yes" {
		t.Errorf("listed %+v, want service yes", list.Items)
	}
}

func testQuestions(t *testing.T, c *apiserver.Client) {
	for _, tt := range []struct {
		example apiserver.Object
		want    bool
	}{{&corev1.Node{}, true}, {&aboutv1beta1.ClusterProperty{}, true}, {&v1alpha1.Member{}, false}} {
		if got, err := c.Serves(t.Context(), tt.example); err != nil || got != tt.want {
			t.Errorf("Serves(%T) = %t, %v, want %t", tt.example, got, err, tt.want)
		}
	}
	system := &corev1.Namespace{}
	must(t, c.Get(t.Context(), system, "", metav1.NamespaceSystem))
	if uid, err := c.SystemUID(t.Context()); err != nil || uid != system.UID {
		t.Errorf("SystemUID = %s, %v, want %s", uid, err, system.UID)
	}
	must(t, c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
		Name: "member"}}))
	token, expires, err := c.Token(t.Context(), "shop", "member", time.Hour)
	if err != nil || token == "" || time.Until(expires) < 30*time.Minute {
		t.Errorf("Token = %d octets until %s, %v, want one for an hour", len(token), expires, err)
	}
	u, err := c.Definition(t.Context(), "serviceimports.multicluster.x-k8s.io")
	if err != nil || u.GetName() != "serviceimports.multicluster.x-k8s.io" {
		t.Errorf("Definition = %v, %v, want that of ServiceImport", u, err)
	}
	if c.Dials() == 0 {
		t.Error("no connection was counted")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
