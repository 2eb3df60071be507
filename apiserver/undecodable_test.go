package apiserver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// One object that does not decode costs neither the list nor the stream that it is part of; what is no object stays an error.
func TestDecodeObjectByObject(t *testing.T) {
	codecs := objectCodecs{known().codecs.WithoutConversion()}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	decoder := codecs.DecoderToVersion(info.Serializer, v1alpha1.GroupVersion)
	object := func(name, spec string) string {
		return `{"apiVersion":"` + v1alpha1.GroupVersion.String() + `","kind":"ExportedService","metadata":{"namespace":"n","name":"` + name +
			`","uid":"u","resourceVersion":"7"},"spec":` + spec + `}`
	}
	list := func(items ...string) string {
		return `{"apiVersion":"` + v1alpha1.GroupVersion.String() + `","kind":"ExportedServiceList","metadata":{"resourceVersion":"9"},"items":[` +
			strings.Join(items, ",") + `]}`
	}
	good, bad := object("good", `{"exportCreated":"2026-01-01T00:00:00Z"}`), object("bad", `{"exportCreated":"2026-01-01t00:00:00z"}`)
	for _, tt := range []struct {
		name, text  string
		good, wrong string // the names in the result
		fails       bool
	}{
		{name: "good", text: good, good: "good"},
		{name: "bad", text: bad, wrong: "bad"},
		{name: "good list", text: list(good, good), good: "good good"},
		{name: "list", text: list(bad, good, bad), good: "good", wrong: "bad bad"},
		{name: "bad alone", text: list(bad), wrong: "bad"},
		{name: "no item at all", text: list(bad, "7"), fails: true},
		{name: "without a name", text: object("", `7`), fails: true},
		{name: "no object", text: `[]`, fails: true},
		{name: "cut", text: bad[:len(bad)-2], fails: true},
		{name: "HTML", text: `<html>`, fails: true},
	} {
		obj, _, err := decoder.Decode([]byte(tt.text), nil, nil)
		if (err != nil) != tt.fails {
			t.Errorf("%s: error %v, want one: %t", tt.name, err, tt.fails)
		}
		if err != nil {
			continue
		}
		objects := []runtime.Object{obj}
		if meta.IsListType(obj) {
			if objects, err = meta.ExtractListWithAlloc(obj); err != nil {
				t.Fatal(err)
			}
			if m, err := meta.ListAccessor(obj); err != nil || m.GetResourceVersion() != "9" {
				t.Errorf("%s: version of the list: %v, %v, want 9", tt.name, m, err)
			}
		}
		var names, wrong []string
		for _, obj := range objects {
			if u, ok := obj.(*Undecodable); ok {
				wrong = append(wrong, u.Name)
				if u.Kind != "ExportedService" || u.Namespace != "n" || u.UID != "u" || u.ResourceVersion != "7" || u.Err == nil {
					t.Errorf("%s: %+v, want its identity and an error", tt.name, u)
				}
				continue
			}
			names = append(names, obj.(metav1.Object).GetName())
		}
		if got, is := strings.Join(names, " "), strings.Join(wrong, " "); got != tt.good || is != tt.wrong {
			t.Errorf("%s: decoded %q and not %q, want %q and %q", tt.name, got, is, tt.good, tt.wrong)
		}
	}
}
