package apiserver

import (
	"bytes"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// docs/spec/selection.md 1.1: the field of a ServiceExport is in an annotation, which counts from nowhere else, in objects and in lists, also in one in
// which an object does not decode.
func TestSelectorsAreDecoded(t *testing.T) {
	const head = `"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExport"`
	codecs := selectorCodecs{objectCodecs{known().codecs.WithoutConversion()}}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	decoder := codecs.DecoderToVersion(info.Serializer, mcsv1beta1.SchemeGroupVersion)
	decode := func(text string) runtime.Object {
		t.Helper()
		obj, _, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return obj
	}
	items := []struct{ name, item, want string }{
		{"the field", `{` + head + `,"metadata":{"name":"a"},"spec":{"clusterSelectors":[ {"x": 1} ]}}`, `[{"x":1}]`},
		{"an empty list", `{` + head + `,"metadata":{"name":"b"},"spec":{"clusterSelectors":[]}}`, `[]`},
		{"null", `{` + head + `,"metadata":{"name":"c"},"spec":{"clusterSelectors":null}}`, ""},
		{"no spec", `{` + head + `,"metadata":{"name":"d"}}`, ""},
		{"an annotation of a user", `{` + head + `,"metadata":{"name":"e","annotations":{".spec.clusterSelectors":"[]"}}}`, ""},
		{"both", `{` + head + `,"metadata":{"name":"f","annotations":{".spec.clusterSelectors":"[]"}},"spec":{"clusterSelectors":[1]}}`, `[1]`},
	}
	list := ""
	for i, tt := range items {
		if got := decode(tt.item).(*mcsv1beta1.ServiceExport).Annotations[broker.FieldSelectors]; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if i > 0 {
			list += ","
		}
		list += tt.item
	}
	const listHead = `{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExportList","metadata":{},"items":[`
	for i, exp := range decode(listHead + list + `]}`).(*mcsv1beta1.ServiceExportList).Items {
		if got := exp.Annotations[broker.FieldSelectors]; got != items[i].want {
			t.Errorf("%s in a list: %q, want %q", items[i].name, got, items[i].want)
		}
	}
	const bad = `{` + head + `,"metadata":{"name":"g"},"spec":3}`
	for i, o := range decode(listHead + list + `,` + bad + `]}`).(*objectList).Items {
		exp, ok := o.(*mcsv1beta1.ServiceExport)
		if i == len(items) {
			if ok {
				t.Error("an object that does not decode is there")
			}
			continue
		}
		if got := exp.Annotations[broker.FieldSelectors]; got != items[i].want {
			t.Errorf("%s beside one that does not decode: %q, want %q", items[i].name, got, items[i].want)
		}
	}
}

// docs/spec/selection.md 1: an import keeps the fields and the annotations of users when it is read and written as a whole, and its status is applied
// with the results alone.
func TestSelectorsAreEncoded(t *testing.T) {
	const text = `{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceImport","metadata":{"annotations":{"a":"b"},"name":"db"},` +
		`"spec":{"clusterSelectors":[{"x":"1"}],"ports":null,"type":""},"status":{"clusterSelectorResults":[{"clusters":["east"]},{"clusters":[]}]}}`
	codecs := selectorCodecs{objectCodecs{known().codecs.WithoutConversion()}}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	decoder := codecs.DecoderToVersion(info.Serializer, mcsv1beta1.SchemeGroupVersion)
	encoder := codecs.EncoderForVersion(info.Serializer, mcsv1beta1.SchemeGroupVersion)
	obj, _, err := decoder.Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	imp := obj.(*mcsv1beta1.ServiceImport)
	var again bytes.Buffer
	if err := encoder.Encode(imp, &again); err != nil {
		t.Fatal(err)
	}
	obj, _, err = decoder.Decode(again.Bytes(), nil, nil)
	if err != nil || !reflect.DeepEqual(obj, imp) || bytes.Contains(again.Bytes(), []byte(broker.FieldSelectors)) {
		t.Errorf("encoded: %s, %v; want the fields of %s", again.String(), err, text)
	}
	if got, want := imp.Annotations[broker.FieldResults], `[{"clusters":["east"]},{"clusters":[]}]`; got != want {
		t.Errorf("results %s, want %s", got, want)
	}
	imp.Annotations[broker.FieldSelectors] = "["
	if err := encoder.Encode(imp, &again); err == nil {
		t.Error("a field that is no JSON was encoded")
	}
	delete(imp.Annotations, broker.FieldSelectors)
	body, err := kindOf(imp).owned(imp, "status")
	const want = `{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceImport","metadata":{"name":"db"},` +
		`"status":{"clusterSelectorResults":[{"clusters":["east"]},{"clusters":[]}]}}`
	if err != nil || string(body) != want {
		t.Errorf("status to apply: %s, %v; want %s", body, err, want)
	}
}
