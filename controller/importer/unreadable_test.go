package importer

import (
	"bytes"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/controller/selection"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 3.8, docs/spec/controller.md 7.1: what an export reaches by a ClusterProperty stays imported,
// and what this cluster selects by it stays selected, while that property does not decode, also over a restart, and
// while its CRD is away.
func TestReachByPropertyThatIsAway(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	record := west.record()
	record.Spec.ToClusters = toProperty("tier", "gold")
	b.Create(record, west.slice("a", "10.2.0.1"), &aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: "tier"}, Spec: aboutv1beta1.ClusterPropertySpec{Value: "gold"},
	})
	i := b.start(func(*Config) {})
	// It matches every cluster without the property, if this cluster has it.
	const others = `[{"propertySelector":{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["` + selection.SameAsImporter + `"]}]}}]`
	i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, apibroker.AnnotationSelectors, others))
	i.do("record and selectors", func() bool {
		return i.addressOf("west") != "" && i.Member.Namespace("shop").Annotations[apibroker.AnnotationSelectors] != ""
	})
	stays := func(what string) {
		t.Helper()
		i.Expect(what, i.do("", func() bool { return true }))
		if got := clustersOfImport(i); got != "west" {
			t.Errorf("%s: clusters of the import = %q, want west", what, got)
		}
		if got, want := i.read().Import.Annotations[apibroker.AnnotationResults], `[["west"]]`; got != want {
			t.Errorf("%s: results = %s, want %s", what, got, want)
		}
	}
	stays("before")

	i.laxProperties()
	i.setTier("7")
	i.Await("a property that does not decode", func() bool {
		return i.Member.UnreadableProperty("tier") && i.Member.Property("tier") == nil
	})
	stays("it does not decode")
	i.publish(v1alpha1.Property{Name: "tier", Value: "gold"})
	i.End()
	i = b.start(func(*Config) {})
	i.Await("a property that does not decode", func() bool { return i.Member.UnreadableProperty("tier") })
	stays("restart")

	i.setTier(`"gold"`)
	i.Await("it decodes again", func() bool { return i.Member.Property("tier") != nil })
	definitions := i.Server.Dynamic().Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	if err := definitions.Delete(t.Context(), "clusterproperties."+about.GroupName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	i.Await("its CRD is gone", func() bool {
		return i.Member.Property(about.ClusterIDName) == nil && i.Member.Property("tier") == nil
	})
	stays("its CRD is gone")
}

// docs/spec/controller.md 7.1: a ClusterProperty that somebody deletes ends what reaches the cluster by it.
func TestReachByPropertyThatIsDeleted(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	record := west.record()
	record.Spec.ToClusters = toProperty("tier", "gold")
	tier := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "tier"},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "gold"}}
	b.Create(record, west.slice("a", "10.2.0.1"), tier)
	i := b.start(func(*Config) {})
	i.do("record", func() bool { return i.addressOf("west") != "" })
	b.Delete(tier)
	i.do("the property counts no longer", func() bool {
		return i.reader.published(i.Broker.Members.Get(memberenv.ID))["tier"] == ""
	})
	if got := clustersOfImport(i); got != "" {
		t.Errorf("clusters of the import = %q, want none", got)
	}
}

// laxProperties lets ClusterProperties have values that do not decode.
func (i importing) laxProperties() {
	i.Helper()
	lax := bytes.ReplaceAll(crd.ClusterProperties, []byte("minLength: 1\n                type: string"),
		[]byte("x-kubernetes-int-or-string: true"))
	if bytes.Equal(lax, crd.ClusterProperties) {
		i.Fatal("the CRD has another form")
	}
	if err := i.Server.ApplyYAML(i.Context(), lax); err != nil {
		i.Fatal(err)
	}
}

// setTier sets the property to a value, in JSON, once the API server takes it.
func (i importing) setTier(value string) {
	i.Helper()
	text := `{"spec":{"value":` + value + `}}`
	properties := i.Server.Dynamic().Resource(aboutv1beta1.Resource)
	i.Await("a value that the API server takes", func() bool {
		_, err := properties.Patch(i.Context(), "tier", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err == nil
	})
}

// publish writes what this cluster publishes to its Member, as its heartbeat does.
func (i importing) publish(all ...v1alpha1.Property) {
	i.Helper()
	status := v1alpha1.MemberStatus{Version: "test", Properties: all}
	if err := i.Broker.Members.SetStatus(i.Context(), status); err != nil {
		i.Fatal(err)
	}
	i.Await("the properties on the broker", func() bool {
		m := i.Broker.Members.Get(memberenv.ID)
		return m != nil && equality.Semantic.DeepEqual(m.Status.Properties, all)
	})
}
