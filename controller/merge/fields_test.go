package merge

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// docs/spec/selection.md 1: the fields that are annotations in memory are compared by their values, and patched as fields.
func TestSelectorFields(t *testing.T) {
	const selectors, sorted = `[{"propertySelector":{"b":1,"a":2}}]`, `[{"propertySelector":{"a":2,"b":1}}]`
	imp := func(annotations ...string) *mcsv1beta1.ServiceImport {
		o := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy}}}
		for i := 0; i < len(annotations); i += 2 {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, annotations[i], annotations[i+1])
		}
		return o
	}
	for _, tt := range []struct {
		name              string
		desired, existing *mcsv1beta1.ServiceImport
		patched           string // spec.clusterSelectors of the patch, "" for no patch
		status            bool
	}{
		{"neither", imp(), imp(), "", false},
		{"the keys of objects in another order", imp(broker.FieldSelectors, selectors), imp(broker.FieldSelectors, sorted), "", false},
		{"other selectors", imp(broker.FieldSelectors, selectors), imp(broker.FieldSelectors, `[]`), selectors, false},
		{"new selectors", imp(broker.FieldSelectors, selectors), imp(), selectors, false},
		{"no selectors any more", imp(), imp(broker.FieldSelectors, selectors), "null", false},
		{"other results", imp(broker.FieldResults, `[{"clusters":["a"]}]`), imp(broker.FieldResults, `[{"clusters":[]}]`), "", true},
		{"no results any more", imp(), imp(broker.FieldResults, `[]`), "", true},
	} {
		c := Diff(Objects{Import: tt.desired}, Objects{Import: tt.existing})
		if got := c.Status != nil; got != tt.status {
			t.Errorf("%s: status is written: %t, want %t", tt.name, got, tt.status)
		}
		got := ""
		if c.Update.Import != nil {
			var patch struct {
				Metadata struct{ Annotations map[string]string }
				Spec     map[string]json.RawMessage
			}
			if err := json.Unmarshal(Patch(c.Update.Import, tt.existing), &patch); err != nil {
				t.Fatal(err)
			}
			if got = string(patch.Spec["clusterSelectors"]); len(patch.Metadata.Annotations) > 0 {
				t.Errorf("%s: annotations %v, want none", tt.name, patch.Metadata.Annotations)
			}
		}
		if got != tt.patched {
			t.Errorf("%s: patched selectors %s, want %s", tt.name, got, tt.patched)
		}
	}
}
