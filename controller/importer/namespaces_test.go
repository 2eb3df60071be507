package importer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// recordIn is the record of db in any namespace.
func (p partner) recordIn(namespace string) *v1alpha1.ExportedService {
	r := p.record()
	r.Name, r.Spec.Namespace, r.Labels[apibroker.LabelSourceNamespace] = apibroker.RecordName(namespace, "db"), namespace,
		namespace
	return r
}

func createdNamespace(name, cluster string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{apibroker.LabelManagedBy: apibroker.ManagedBy},
		Annotations: map[string]string{apibroker.AnnotationCreatedFor: cluster},
	}}
}

const newNamespaceWrite = "POST /api/v1/namespaces"

// docs/spec/controller.md 5.9: missing namespaces are created if the option is set, once, and within limits for each
// member.
func TestCreatesNamespaces(t *testing.T) {
	e := newEnv(t)
	west, north := e.partner("west"), e.partner("north")
	in := func(namespace string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: "db"}
	}
	e.Create(west.recordIn("bank"), west.recordIn("kube-x"), west.recordIn("mill"), north.recordIn("farm"))
	off := e.start(func(c *Config) { c.Merge.VIP = merge.NoVIP })
	off.Await("records", func() bool {
		return !slices.ContainsFunc([]string{"bank", "farm", "kube-x", "mill"},
			func(ns string) bool { return len(off.Broker.Records(in(ns))) != 1 })
	})
	reconcile := func(i importing, what, namespace string, want ...string) {
		t.Helper()
		i.Writes.Take()
		if err := i.Reconcile(t.Context(), in(namespace)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		i.Expect(what, i.Writes.Take(), want...)
	}
	reconcile(off, "off", "bank")
	var retried []string
	i := off.with(func(c *Config) {
		c.Policy = member.Policy{Create: true}
		c.Retry = func(svc types.NamespacedName, _ time.Duration) { retried = append(retried, svc.Namespace) }
	})
	reconcile(i, "on", "bank", newNamespaceWrite)
	reconcile(i, "a protected name", "kube-x")
	got := &corev1.Namespace{}
	if err := i.Admin.Get(t.Context(), got, "", "bank"); err != nil ||
		got.Labels[apibroker.LabelManagedBy] != apibroker.ManagedBy ||
		got.Annotations[apibroker.AnnotationCreatedFor] != "west" {
		t.Errorf("namespace %v %v, error %v, want our label, and the cluster that it is for", got.Labels, got.Annotations, err)
	}
	reconcile(i, "it exists", "bank", "POST bank/serviceimports", "PATCH bank/serviceimports/db/status")

	for n := range apibroker.MaxCreatedNamespaces/2 - 1 {
		i.Member.Wrote(createdNamespace(fmt.Sprintf("w-%d", n), "west"))
	}
	reconcile(i, "the limit of one member", "mill")
	if n := i.Log.Count(`rejected of cluster "west": Namespace mill (limit): not created: 250 namespaces were created, 250 for this cluster: want at most 500`); n != 1 {
		t.Errorf("log: %v, want the limit once", i.Log)
	}
	if !slices.Equal(retried, []string{"mill"}) {
		t.Errorf("retried %q, want mill", retried)
	}
	reconcile(i, "another member", "farm", newNamespaceWrite)
	i.Member.Deleted(createdNamespace("w-0", "west"))
	reconcile(i, "room again", "mill", newNamespaceWrite)
}
