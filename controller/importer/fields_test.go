package importer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// newerFields are the fields of KEP-5939 in a CRD of ServiceImport. Each takes a list with so many items at most.
func newerFields(items int64) map[string]map[string]any {
	text := map[string]any{"type": "string"}
	list := func(item map[string]any) map[string]any { return map[string]any{"type": "array", "items": item} }
	object := func(fields map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": fields}
	}
	bounded := func(list map[string]any) map[string]any {
		list["maxItems"], list["x-kubernetes-list-type"] = items, "atomic"
		return list
	}
	selector := object(map[string]any{
		"matchProperties":  map[string]any{"type": "object", "additionalProperties": text},
		"matchExpressions": list(object(map[string]any{"key": text, "operator": text, "values": list(text)})),
	})
	return map[string]map[string]any{
		"spec.clusterSelectors":         bounded(list(object(map[string]any{"propertySelector": selector}))),
		"status.clusterSelectorResults": bounded(list(object(map[string]any{"clusters": list(text)}))),
	}
}

// follows returns an Importer for the CRD of ServiceImport that the API server has now.
func (i importing) follows(fields int) importing {
	i.Helper()
	kinds, err := member.CheckKinds(i.Context(), i.Admin)
	if err != nil || len(kinds.ImportNewer) != fields || len(kinds.Warnings) > 0 {
		i.Fatalf("kinds = %+v, %v; want %d newer fields and no warning", kinds, err, fields)
	}
	return i.with(func(c *Config) { c.ImportNewer = kinds.ImportNewer })
}

// checkFields compares the fields of the import at the API server, "" for one that is not there, and the annotation of the results.
func (i importing) checkFields(what, selectors, results, annotation string) {
	i.Helper()
	imports := i.Server.Dynamic().Resource(schema.GroupVersion(mcsv1beta1.GroupVersion).WithResource("serviceimports")).Namespace(db.Namespace)
	stored, err := imports.Get(i.Context(), db.Name, metav1.GetOptions{})
	if err != nil {
		i.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		at   []string
	}{{selectors, []string{"spec", "clusterSelectors"}}, {results, []string{"status", "clusterSelectorResults"}}} {
		got, found, _ := unstructured.NestedFieldNoCopy(stored.Object, tt.at...)
		var want any
		if tt.text != "" {
			if err := json.Unmarshal([]byte(tt.text), &want); err != nil {
				i.Fatal(err)
			}
		}
		if found != (tt.text != "") || !reflect.DeepEqual(got, want) {
			i.Errorf("%s: %v is %v, want %v", what, tt.at, got, want)
		}
	}
	annotations := stored.GetAnnotations()
	if got := annotations[apibroker.AnnotationResults]; got != annotation {
		i.Errorf("%s: results %q, want %q", what, got, annotation)
	}
	for _, key := range []string{apibroker.FieldSelectors, apibroker.FieldResults} {
		if _, has := annotations[key]; has {
			i.Errorf("%s: annotations %v, want them without %s", what, annotations, key)
		}
	}
}

// idle expects that nothing is written, also after a restart.
func (i importing) idle(what string) {
	i.Helper()
	version := i.read().Import.ResourceVersion
	i.Expect(what+", again", i.do("", always))
	i.Expect(what+", after a restart", i.with(func(*Config) {}).do("", always))
	if now := i.read().Import.ResourceVersion; now != version {
		i.Errorf("%s: resource version %s, was %s", what, now, version)
	}
}

// docs/spec/selection.md 1: where the CRD of ServiceImport has the fields of KEP-5939, they say what the annotations say.
func TestSelectorFields(t *testing.T) {
	b := newEnv(t)
	b.AddFields(mcscrd.ServiceImportCRD, newerFields(16))
	west := b.partner("west")
	b.Create(west.record(), west.slice("a", "10.2.0.1"))
	i := b.start(func(*Config) {}).follows(2)
	const selectors = `[{"propertySelector":{"matchProperties":{"tier":"<gold>"},"matchExpressions":[{"key":"tier","operator":"Exists"}]}},` +
		`{"propertySelector":{"matchProperties":{"cluster.clusterset.k8s.io":"@SameAsImporter@"}}}]`
	selectBy := func(text string) {
		t.Helper()
		i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, apibroker.AnnotationSelectors, text))
		i.Await("selectors", func() bool { return i.Member.Namespace("shop").Annotations[apibroker.AnnotationSelectors] == text })
	}
	selectBy(selectors)
	i.do("record", func() bool { return i.addressOf("west") != "" })
	i.checkFields("a new import", selectors, `[{"clusters":[]},{"clusters":[]}]`, `[[],[]]`)
	i.idle("a new import")

	m := &v1alpha1.Member{
		ObjectMeta: metav1.ObjectMeta{Name: west.id}, Status: v1alpha1.MemberStatus{Properties: []v1alpha1.Property{{Name: "tier", Value: "<gold>"}}},
	}
	if err := i.Admin.Apply(t.Context(), m, "west", "status"); err != nil {
		t.Fatal(err)
	}
	got := i.do("properties", func() bool { return len(i.Broker.Member(west.id).Status.Properties) == 1 })
	i.Expect("a property that is matched", got, importWrite, importStatus)
	i.checkFields("a property that is matched", selectors, `[{"clusters":["west"]},{"clusters":[]}]`, `[["west"],[]]`)
	i.idle("a property that is matched")

	i.edit(&mcsv1beta1.ServiceImport{}, "db", `{"spec":{"clusterSelectors":null}}`)
	got = i.do("no selectors", func() bool { return i.Member.Import(db).Annotations[apibroker.FieldSelectors] == "" })
	i.Expect("selectors that someone has removed", got, importWrite)
	i.checkFields("selectors that someone has removed", selectors, `[{"clusters":["west"]},{"clusters":[]}]`, `[["west"],[]]`)

	selectBy("[]")
	i.Expect("no selectors", i.do("", always), importWrite, importStatus)
	i.checkFields("no selectors", "", "", "")
	i.idle("no selectors")

	i.AddFields(mcscrd.ServiceImportCRD, newerFields(1))
	selectBy(selectors)
	i.do("", always)
	i.checkFields("a CRD that rejects the values", "", "", `[["west"],[]]`)
	i.Expect("a CRD that rejects the values, again", i.do("", always))

	i.AddFields(mcscrd.ServiceImportCRD, newerFields(16))
	i = i.follows(2)
	i.Expect("a CRD that has the fields again", i.do("", always), importWrite, importStatus)
	i.AddFields(mcscrd.ServiceImportCRD, nil) // the check of the CRDs comes later
	m.Status.Properties[0].Value = "silver"
	if err := i.Admin.Apply(t.Context(), m, "west", "status"); err != nil {
		t.Fatal(err)
	}
	i.do("another property", func() bool { return i.Broker.Member(west.id).Status.Properties[0].Value == "silver" })
	i.checkFields("a CRD that has lost the fields", "", "", `[[],[]]`)
	m.Status.Properties[0].Value = "<gold>"
	if err := i.Admin.Apply(t.Context(), m, "west", "status"); err != nil {
		t.Fatal(err)
	}
	i = i.follows(0)
	i.do("the CRD of mcs-api v0.5", func() bool {
		return i.Member.Import(db).Annotations[apibroker.FieldSelectors] == "" && i.Broker.Member(west.id).Status.Properties[0].Value == "<gold>"
	})
	i.checkFields("the CRD of mcs-api v0.5", "", "", `[["west"],[]]`)
	i.idle("the CRD of mcs-api v0.5")
	selectBy("[]")
	i.Expect("the CRD of mcs-api v0.5, no selectors", i.do("", always), importWrite)
}
