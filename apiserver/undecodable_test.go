package apiserver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// A panic in a function of a watch costs one object, which is in no index.
func TestGuardedOptions(t *testing.T) {
	panics := 0
	o := withBarrier(&logging.Barrier{Panicked: func() { panics++ }}, "Member", WatchOptions{
		Transform: func(obj any) (any, error) { obj.(*v1alpha1.Member).Name += "!"; return obj, nil },
		Indexers: cache.Indexers{"name": func(obj any) ([]string, error) {
			return []string{obj.(*v1alpha1.Member).Name},
				nil
		}},
	})
	good := &v1alpha1.Member{}
	good.Name = "east"
	if got, err := o.Transform(good); err != nil || got != any(good) || good.Name != "east!" {
		t.Errorf("transformed %v, %v", got, err)
	}
	if keys, err := o.Indexers["name"](good); err != nil || len(keys) != 1 || keys[0] != "east!" {
		t.Errorf("keys %q, %v", keys, err)
	}
	for n, bad := range []any{&v1alpha1.ExportedService{}, "no object"} {
		if got, err := o.Transform(bad); err != nil || got != bad {
			t.Errorf("transformed %v, %v; want it as it came", got, err)
		}
		if keys, err := o.Indexers["name"](bad); err != nil || len(keys) != 0 || panics != 2*(n+1) {
			t.Errorf("keys %q, %v, and %d panics; want none, and %d", keys, err, panics, 2*(n+1))
		}
	}
}

// One object that does not decode costs neither its list nor its stream; a value that is no object stays an error.
func TestDecodeObjectByObject(t *testing.T) {
	codecs := objectCodecs{allKinds().codecs.WithoutConversion()}
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
