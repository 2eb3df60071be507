package apiserver

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// selectorCodecs decode spec.clusterSelectors of a ServiceExport, which a newer CRD may have and the Go type of mcs-api v0.5 lacks, into the annotation
// [broker.FieldSelectors] of the object in memory. It never reaches the API server: of a ServiceExport only the status and single annotations are written.
//
// Both the watches and the requests of a [Client] decode with them, so an object looks the same whether it was read or is the response to a write.
type selectorCodecs struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements [runtime.NegotiatedSerializer].
func (c selectorCodecs) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return selectorDecoder{c.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type selectorDecoder struct{ runtime.Decoder }

// An exportField has the field of a ServiceExport, or those of a list of them.
type exportField struct {
	Spec struct {
		ClusterSelectors json.RawMessage `json:"clusterSelectors"`
	} `json:"spec"`
	Items []exportField `json:"items"`
}

// Decode decodes an object or a list.
func (d selectorDecoder) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err != nil {
		return obj, gvk, err
	}
	switch o := obj.(type) {
	case *mcsv1beta1.ServiceExport:
		fieldOf(data).setOn(o)
	case *mcsv1beta1.ServiceExportList:
		raw := fieldOf(data)
		for i := range o.Items {
			raw.item(i).setOn(&o.Items[i])
		}
	case *objectList:
		raw := fieldOf(data)
		for i := range o.Items {
			if exp, ok := o.Items[i].(*mcsv1beta1.ServiceExport); ok {
				raw.item(i).setOn(exp)
			}
		}
	}
	return obj, gvk, nil
}

// fieldOf reads the field from an object or a list. Most have none, and are not parsed a second time.
func fieldOf(data []byte) (f exportField) {
	if bytes.Contains(data, []byte(`"clusterSelectors"`)) {
		_ = json.Unmarshal(data, &f) // It skips what has another type, such as the spec of an object that does not decode, and reads the rest.
	}
	return f
}

// item returns the field of an export in a list.
func (f exportField) item(i int) exportField {
	if i >= len(f.Items) {
		return exportField{}
	}
	return f.Items[i]
}

// setOn makes the annotation of an export say what the field says.
func (f exportField) setOn(exp *mcsv1beta1.ServiceExport) {
	delete(exp.Annotations, broker.FieldSelectors)
	var text bytes.Buffer
	if len(f.Spec.ClusterSelectors) == 0 || string(f.Spec.ClusterSelectors) == "null" || json.Compact(&text, f.Spec.ClusterSelectors) != nil {
		return
	}
	if exp.Annotations == nil {
		exp.Annotations = make(map[string]string)
	}
	exp.Annotations[broker.FieldSelectors] = text.String()
}
