package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// FuzzDecode decodes anything as the body of a response: an object, a list, or neither. Nothing panics, an object that
// does not decode has a name and a one-line reason, and a list has each of its objects, decoded or not.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"broker.clusterset-dns.io/v1alpha1","kind":"ExportedService","metadata":{"name":"web.shop"},"spec":{"exportCreated":"x"}}`,
		`{"apiVersion":"broker.clusterset-dns.io/v1alpha1","kind":"ExportedServiceList","metadata":{},"items":[{"kind":"x","metadata":{"name":"y"}}]}`,
		`{"apiVersion":"coordination.k8s.io/v1","kind":"LeaseList","items":[{"metadata":{"name":"heartbeat"},"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}]}`,
		`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a"},"endpoints":[{"addresses":["10.0.0.1"]}],"addressType":"IPv4"}`,
		`{"apiVersion":"v1","kind":"Status","code":401}`, `{"apiVersion":"v1","kind":"NamespaceList","items":null}`, `[]`, ``, `{"kind":"List","items":[7]}`,
	} {
		f.Add([]byte(seed))
	}
	codecs := objectCodecs{allKinds().codecs.WithoutConversion()}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	decoder := codecs.DecoderToVersion(info.Serializer, v1alpha1.GroupVersion)
	f.Fuzz(func(t *testing.T, data []byte) {
		obj, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			return
		}
		check := func(o runtime.Object) {
			if bad, ok := o.(*Undecodable); ok && (bad.Name == "" || bad.Err == nil || len(bad.Err.Error()) > 2000) {
				t.Errorf("%q: name %q, error %v", data, bad.Name, bad.Err)
			}
		}
		check(obj)
		if list, ok := obj.(*objectList); ok {
			for i, o := range list.Items {
				if o == nil {
					t.Fatalf("%q: no object %d", data, i)
				}
				check(o)
			}
		}
		if meta.IsListType(obj) {
			if _, err := meta.ExtractList(obj); err != nil {
				t.Errorf("%q: %v", data, err)
			}
		}
	})
}
