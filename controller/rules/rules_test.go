package rules

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// docs/spec/controller.md 3.9: a rule makes exports, keeps and ends them; those of users stay; a Service may opt out; a
// rule that cannot be read changes nothing.
func TestRules(t *testing.T) {
	e := memberenv.New(t)
	web, db, own, out := memberenv.Service("web"), memberenv.Service("db"), memberenv.Service("own"), memberenv.Service("out")
	theirs := memberenv.Service("theirs")
	for _, svc := range []struct {
		name   string
		labels map[string]string
	}{{"web", map[string]string{"tier": "front"}}, {"db", map[string]string{"tier": "back"}},
		{"own", map[string]string{"tier": "front"}}, {"out", map[string]string{"tier": "front"}},
		{"theirs", map[string]string{"tier": "front"}}} {
		s := memberenv.NewService(memberenv.Service(svc.name))
		s.Labels = svc.labels
		switch svc.name {
		case "out":
			s.Annotations = map[string]string{broker.AnnotationExport: "false"}
		case "theirs":
			s.Labels[mcsv1beta1.LabelServiceName] = "web"
		}
		e.Create(s)
	}
	e.Create(memberenv.NewExport(own))
	i := e.Start()
	var rejected []string
	goesOn := false
	r := &Rules{Member: i.Member, Policy: member.Policy{},
		GoesOn:  func(types.NamespacedName) bool { return goesOn },
		Ignored: func(_ *corev1.Namespace, detail string) { rejected = append(rejected, detail) }}
	namespace := func(change func(*corev1.Namespace)) {
		t.Helper()
		ns := &corev1.Namespace{}
		if err := e.Admin.Get(t.Context(), ns, "", web.Namespace); err != nil {
			t.Fatal(err)
		}
		change(ns)
		e.Update(ns)
		i.Await("the namespace", func() bool { return i.Member.Namespace(ns.Name).ResourceVersion == ns.ResourceVersion })
	}
	reconcile := func(what string, want ...string) {
		t.Helper()
		i.Writes.Take()
		for range 2 { // the second time nothing is left to do
			for _, svc := range []types.NamespacedName{web, db, own, out, theirs} {
				if err := r.Reconcile(t.Context(), svc); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		i.Expect(what, i.Writes.Take(), want...)
	}
	reconcile("no rule")
	namespace(func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{broker.AnnotationExportSelector: "tier=front"}
	})
	goesOn = true
	reconcile("exports that may go on without their ServiceExports")
	goesOn = false
	reconcile("a rule", "POST "+web.Namespace+"/serviceexports")
	namespace(func(ns *corev1.Namespace) { ns.Annotations[broker.AnnotationExportSelector] = "tier in (" })
	reconcile("a rule that cannot be read")
	if len(rejected) != 1 {
		t.Errorf("rejected %q, want the rule, once", rejected)
	}
	namespace(func(ns *corev1.Namespace) { ns.Annotations[broker.AnnotationExportSelector] = "tier=back" })
	reconcile("another rule", "DELETE "+web.Namespace+"/serviceexports/web", "POST "+web.Namespace+"/serviceexports")
	made := &mcsv1beta1.ServiceExport{}
	if err := e.Admin.Get(t.Context(), made, db.Namespace, db.Name); err != nil {
		t.Fatal(err)
	}
	made.Annotations = map[string]string{broker.AnnotationToClusters: "west"}
	e.Update(made)
	i.Await("the change of a user", func() bool { return i.Member.Export(db).Annotations[broker.AnnotationToClusters] != "" })
	namespace(func(ns *corev1.Namespace) { ns.Annotations[broker.AnnotationExportSelector] = "tier=front" })
	reconcile("one that a user has changed", "POST "+web.Namespace+"/serviceexports")
	namespace(func(ns *corev1.Namespace) { delete(ns.Annotations, broker.AnnotationExportSelector) })
	reconcile("no rule any more", "DELETE "+web.Namespace+"/serviceexports/web")
	if i.Member.Export(db) == nil {
		t.Error("the export that a user has changed is gone")
	}
	if i.Member.Export(own) == nil {
		t.Error("the export of a user is gone")
	}
}
