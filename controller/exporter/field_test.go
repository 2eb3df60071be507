package exporter

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/selection.md 1.1: where the CRD has the field, it counts before annotations, is read from lists, events and responses, and is never
// written as the annotation that it is in memory.
func TestSelectorsInTheSpec(t *testing.T) {
	b := newEnv(t)
	b.AddFields(mcscrd.ServiceExportCRD, map[string]map[string]any{"spec.clusterSelectors": {
		"type": "array", "items": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}})
	exp := memberenv.NewExport(db)
	exp.Annotations = map[string]string{apibroker.AnnotationAffinity: "remote"}
	b.Create(exp, memberenv.NewService(db))
	exports := b.Server.Dynamic().Resource(schema.GroupVersion(mcsv1beta1.GroupVersion).WithResource("serviceexports")).Namespace(db.Namespace)
	set := func(field string) {
		t.Helper()
		b.Await("the API server keeps "+field, func() bool {
			got, err := exports.Patch(t.Context(), db.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"clusterSelectors":%s}}`, field), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, found, _ := unstructured.NestedFieldNoCopy(got.Object, "spec", "clusterSelectors")
			return found == (field != "null")
		})
	}
	const gold, empty = `[{"propertySelector":{"matchProperties":{"tier":"gold"}}}]`, `[{"propertySelector":{}}]`
	const remote = `[{"matchExpressions":[{"key":"cluster.clusterset.k8s.io","operator":"NotIn","values":["@SameAsImporter@"]}]}]`
	set(gold)
	x := b.start(func(*Config) {})
	check := func(field, condition, selectors string) {
		t.Helper()
		x.do(db, field, func() bool {
			seen := x.Member.Export(db)
			return seen != nil && seen.Annotations[apibroker.FieldSelectors] == field && x.Member.Service(db) != nil
		})
		if got := x.Member.Export(db).Annotations[apibroker.FieldSelectors]; got != field {
			t.Errorf("%s: after the response to a write it is %q", field, got)
		}
		if conditions := x.ConditionsOf(db); !strings.Contains(conditions, condition) {
			t.Errorf("%s: conditions %s, want %s", field, conditions, condition)
		}
		got := ""
		if r := x.exported(db).Record; r != nil {
			text, err := json.Marshal(r.Spec.ClusterSelectors)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if got != selectors {
			t.Errorf("%s: selectors = %s, want %s", field, got, selectors)
		}
	}
	check(gold, "Valid=True/Valid", `[{"matchProperties":[{"name":"tier","value":"gold"}]}]`)
	set(empty)
	check(empty, "Valid=False/InvalidClusterSelector", "")
	set("null")
	check("", "Valid=True/Valid", remote)

	stored, err := exports.Get(t.Context(), db.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, found := stored.GetAnnotations()[apibroker.FieldSelectors]; found {
		t.Errorf("annotations = %v, want that of users alone", stored.GetAnnotations())
	}
}
