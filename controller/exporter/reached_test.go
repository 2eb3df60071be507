package exporter

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 3.8: the record has the clusters that the export is for, and the ServiceExport the members
// among them.
func TestToClusters(t *testing.T) {
	b := newEnv(t)
	b.AddMember("west")
	north := b.AddMember("north")
	a := b.start(func(*Config) {})
	const exportWrite = "PATCH shop/serviceexports/db"
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.0.1"))
	a.Expect("to all", a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1 &&
			len(a.Broker.Members.All()) == 3
	}), sliceWrite("PATCH", "db-1"), recordWrite, statusWrite)

	for _, tt := range []struct {
		name, value string // no annotation without a value
		writes      []string
		conditions  string
		reaches     string
	}{
		{"to one", "west, later", []string{recordWrite, exportWrite}, "Ready=True/Exported Valid=True/Valid", "east,west"},
		{"in another order", "later,west,west", nil, "Ready=True/Exported Valid=True/Valid", "east,west"},
		{"to a tier", `[{"propertySelector":{"matchProperties":{"tier":"gold"}}}]`, []string{recordWrite, exportWrite}, "Ready=True/Exported Valid=True/Valid", "east"},
		{"malformed", "west;north",
			[]string{statusWrite, exportWrite, "DELETE broker/exportedservices/db.shop", sliceWrite("DELETE", "db-1")},
			"Ready=False/Pending Valid=False/InvalidToClusters", ""},
		{"corrected", "west", []string{sliceWrite("PATCH", "db-1"), recordWrite, statusWrite, exportWrite},
			"Ready=True/Exported Valid=True/Valid", "east,west"},
		{"to all again", "", []string{recordWrite, exportWrite}, "Ready=True/Exported Valid=True/Valid", ""},
	} {
		b.toClusters(a, tt.value)
		a.Expect(tt.name, a.do(db, tt.name, func() bool { return true }), tt.writes...)
		a.Expect(tt.name+", again", a.do(db, tt.name, func() bool { return true }))
		if got := a.ConditionsOf(db); got != tt.conditions {
			t.Errorf("%s: conditions = %s, want %s", tt.name, got, tt.conditions)
		}
		b.exportedTo(a, tt.name, tt.reaches)
	}
	b.changedProperty(a, north)
	b.outdatedBroker(a)
}

// docs/spec/controller.md 3.8: each export has the members that it reaches in status.clusters, where the CRD has that
// field.
func TestStatusClusters(t *testing.T) {
	b := newEnv(t)
	b.AddMember("west")
	b.serveClusters()
	b.Kinds.ExportClusters = true
	a := b.start(func(*Config) {})
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.0.1"))
	a.Expect("to all", a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1 &&
			len(a.Broker.Members.All()) == 2
	}), sliceWrite("PATCH", "db-1"), recordWrite, statusWrite)
	b.statusClusters("to all", "east,west")
	b.AddMember("north")
	a.Expect("a new member", a.do(db, "it is seen", func() bool { return len(a.Broker.Members.All()) == 3 }), statusWrite)
	b.statusClusters("a new member", "east,north,west")
	b.toClusters(a, "north")
	a.Expect("to one", a.do(db, "", func() bool { return true }), recordWrite, statusWrite,
		"PATCH shop/serviceexports/db")
	b.statusClusters("to one", "east,north")
	a.End()
	a = b.start(func(*Config) {})
	a.Expect("a restart", a.do(db, "", func() bool { return true }))
	b.toClusters(a, "west;north")
	a.do(db, "malformed", func() bool { return true })
	b.statusClusters("malformed", "")
}

// serveClusters serves ServiceExports with status.clusters.
func (b *env) serveClusters() {
	b.Helper()
	crd := controlplane.WithStatus(mcscrd.ServiceExportCRD, "clusters", map[string]any{
		"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"cluster"},
		"items": map[string]any{"type": "object", "required": []any{"cluster"},
			"properties": map[string]any{"cluster": map[string]any{"type": "string"}}},
	})
	if err := b.Server.InstallCRDs(b.Context(), crd); err != nil {
		b.Fatal(err)
	}
	kinds, err := member.CheckKinds(b.Context(), b.Admin)
	if err != nil || !kinds.ExportClusters {
		b.Fatalf("%+v, %v; want status.clusters of ServiceExport", kinds, err)
	}
}

// statusClusters compares status.clusters of the export.
func (b *env) statusClusters(what, want string) {
	b.Helper()
	o, err := b.Server.Dynamic().Resource(mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")).
		Namespace(db.Namespace).Get(b.Context(), db.Name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	items, _, _ := unstructured.NestedSlice(o.Object, "status", "clusters")
	var ids []string
	for _, item := range items {
		ids = append(ids, fmt.Sprint(item.(map[string]any)["cluster"]))
	}
	if got := strings.Join(ids, ","); got != want {
		b.Errorf("%s: status.clusters = %q, want %q", what, got, want)
	}
}

// toClusters annotates the export, and waits until the caches show it.
func (b *env) toClusters(a *exporting, value string) {
	b.Helper()
	exports := b.Server.Dynamic().Resource(mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")).Namespace(
		db.Namespace)
	to := &value
	if value == "" {
		to = nil
	}
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"annotations": map[string]*string{apibroker.AnnotationToClusters: to}}})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := exports.Patch(b.Context(), db.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	a.Await("annotation seen", func() bool {
		return a.Member.Export(db).Annotations[apibroker.AnnotationToClusters] == value
	})
}

// exportedTo compares the reached clusters in the ServiceExport.
func (b *env) exportedTo(a *exporting, what, want string) {
	b.Helper()
	if got := a.Member.Export(db).Annotations[apibroker.AnnotationExportedTo]; got != want {
		b.Errorf("%s: exported to %q, want %q", what, got, want)
	}
}

// changedProperty has a member publish the property that the export selects: the record stays.
func (b *env) changedProperty(a *exporting, namespace string) {
	b.Helper()
	b.toClusters(a, `[{"propertySelector":{"matchProperties":{"tier":"gold"}}}]`)
	a.do(db, "to a tier", func() bool { return true })
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "north"}, Status: v1alpha1.MemberStatus{
		Properties: []v1alpha1.Property{{Name: "tier", Value: "gold"}},
	}}
	if err := a.Admin.Apply(b.Context(), m, "north", "status"); err != nil {
		b.Fatal(err)
	}
	got := a.do(db, "property of "+namespace, func() bool {
		return len(a.Broker.Members.Get("north").Status.Properties) == 1
	})
	a.Expect("another cluster of the tier", got, "PATCH shop/serviceexports/db")
	b.exportedTo(a, "another cluster of the tier", "east,north")
	b.toClusters(a, "")
	a.do(db, "to all", func() bool { return true })
}

// outdatedBroker has a CRD without the field: nothing of the record is written, and Ready has the remedy
// (docs/spec/controller.md 3.6).
func (b *env) outdatedBroker(a *exporting) {
	b.Helper()
	b.DropFields(crd.ExportedServices, ".spec.toClusters")
	b.toClusters(a, "west")
	b.Await("the older CRD", func() bool { return apiserver.IsUnknownField(a.Reconcile(b.Context(), db)) })
	const want = `The CRDs of the broker are older than this controller: update them with clusterset broker init. [export-rejected]`
	b.Await(want, func() bool {
		ready := meta.FindStatusCondition(a.Member.Export(db).Status.Conditions, "Ready")
		return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == "Failed" && ready.Message == want
	})

	late := memberenv.Service("late")
	exp := memberenv.NewExport(late)
	exp.Annotations = map[string]string{apibroker.AnnotationToClusters: "west"}
	b.Create(exp, memberenv.NewService(late), memberenv.NewSourceSlice(late, "late-1", "10.1.0.2"))
	// The API server ends the watch of a kind with another CRD: without it nothing is exported for a moment.
	a.Await("export seen, and records followed again", func() bool {
		return a.Member.Export(late) != nil && a.Member.Service(late) != nil && len(a.Member.SourceSlices(late)) == 1 &&
			a.Broker.MayExport() == nil
	})
	if err := a.Reconcile(b.Context(), late); !apiserver.IsUnknownField(err) {
		b.Errorf("a new export: %v, want that a field is unknown", err)
	}
	if record, slices := a.Broker.Own.Objects(late); record != nil || len(slices) > 0 {
		b.Errorf("a new export: %v and slices %v are on the broker, want neither", record, slices)
	}
}

// The ids are bounded, whole, and the rest is counted.
func TestIDText(t *testing.T) {
	var ids []string
	for i := range 500 {
		ids = append(ids, fmt.Sprintf("cluster-%03d", i))
	}
	got := idText(ids)
	shown, more, _ := strings.Cut(got, ",+")
	if n := strings.Count(shown, ",") + 1; len(shown) > apibroker.MaxExportedTo || more != fmt.Sprint(500-n) ||
		!strings.HasSuffix(shown, fmt.Sprintf("cluster-%03d", n-1)) {
		t.Errorf("%d ids shown in %d octets, then %q", n, len(shown), more)
	}
	if got, want := idText(ids[:2]), "cluster-000,cluster-001"; got != want {
		t.Errorf("ids = %q, want %q", got, want)
	}
}
