package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// selectorCodecs carry the fields of KEP-5939, which a newer CRD may have and the Go types of mcs-api v0.5 lack:
//
//	field at the API server                                        annotation of the object in memory
//	spec.clusterSelectors of a ServiceExport or ServiceImport      [broker.FieldSelectors]
//	status.clusterSelectorResults of a ServiceImport               [broker.FieldResults]
//
// Decoding makes annotations of the fields, encoding makes fields of the annotations, so that no object loses a field when it is written. The
// annotations never reach the API server. [Client.Patch] sends what its caller made, which has the fields.
//
// Both the watches and the requests of a [Client] use them, so an object looks the same whether it was read or is the response to a write.
type selectorCodecs struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements [runtime.NegotiatedSerializer].
func (c selectorCodecs) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return selectorDecoder{c.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

// EncoderForVersion implements [runtime.NegotiatedSerializer].
func (c selectorCodecs) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	return selectorEncoder{c.NegotiatedSerializer.EncoderForVersion(e, gv)}
}

type selectorDecoder struct{ runtime.Decoder }

// newerFields are those of an object, or those of the objects of a list.
type newerFields struct {
	Spec struct {
		ClusterSelectors json.RawMessage `json:"clusterSelectors"`
	} `json:"spec"`
	Status struct {
		ClusterSelectorResults json.RawMessage `json:"clusterSelectorResults"`
	} `json:"status"`
	Items []newerFields `json:"items"`
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
	case *mcsv1beta1.ServiceExportList:
		raw := fieldsOf(data)
		for i := range o.Items {
			raw.item(i).setOn(&o.Items[i])
		}
	case *mcsv1beta1.ServiceImportList:
		raw := fieldsOf(data)
		for i := range o.Items {
			raw.item(i).setOn(&o.Items[i])
		}
	case *objectList:
		raw := fieldsOf(data)
		for i := range o.Items {
			raw.item(i).setOn(o.Items[i])
		}
	case *mcsv1beta1.ServiceExport, *mcsv1beta1.ServiceImport:
		fieldsOf(data).setOn(obj)
	}
	return obj, gvk, nil
}

// fieldsOf reads the fields from an object or a list. Most have none, and are not parsed a second time.
func fieldsOf(data []byte) (f newerFields) {
	if bytes.Contains(data, []byte(`"clusterSelector`)) {
		_ = json.Unmarshal(data, &f) // It skips what has another type, such as the spec of an object that does not decode, and reads the rest.
	}
	return f
}

// item returns the fields of an object in a list.
func (f newerFields) item(i int) newerFields {
	if i >= len(f.Items) {
		return newerFields{}
	}
	return f.Items[i]
}

// setOn makes the annotations of an object say what the fields say.
func (f newerFields) setOn(obj runtime.Object) {
	switch o := obj.(type) {
	case *mcsv1beta1.ServiceExport:
		setField(o, broker.FieldSelectors, f.Spec.ClusterSelectors)
	case *mcsv1beta1.ServiceImport:
		setField(o, broker.FieldSelectors, f.Spec.ClusterSelectors)
		setField(o, broker.FieldResults, f.Status.ClusterSelectorResults)
	}
}

func setField(o metav1.Object, key string, value json.RawMessage) {
	annotations := o.GetAnnotations()
	delete(annotations, key)
	var text bytes.Buffer
	if len(value) == 0 || string(value) == "null" || json.Compact(&text, value) != nil {
		return
	}
	if annotations == nil {
		annotations = make(map[string]string)
	}
	annotations[key] = text.String()
	o.SetAnnotations(annotations)
}

type selectorEncoder struct{ runtime.Encoder }

// Encode encodes an object.
func (e selectorEncoder) Encode(obj runtime.Object, w io.Writer) error {
	if !hasNewer(obj) {
		return e.Encoder.Encode(obj, w)
	}
	var text bytes.Buffer
	if err := e.Encoder.Encode(obj, &text); err != nil {
		return err
	}
	var content map[string]any
	if err := json.Unmarshal(text.Bytes(), &content); err != nil {
		return err
	}
	if err := annotationsToFields(obj, content); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(content)
}

// hasNewer reports whether an object has a field that is an annotation in memory.
func hasNewer(obj runtime.Object) bool {
	var annotations map[string]string
	switch o := obj.(type) {
	case *mcsv1beta1.ServiceExport:
		annotations = o.Annotations
	case *mcsv1beta1.ServiceImport:
		annotations = o.Annotations
	}
	_, selectors := annotations[broker.FieldSelectors]
	_, results := annotations[broker.FieldResults]
	return selectors || results
}

// annotationsToFields makes fields of the annotations in content, which is obj as JSON.
func annotationsToFields(obj runtime.Object, content map[string]any) error {
	if !hasNewer(obj) {
		return nil
	}
	at := []string{"metadata", "annotations"}
	annotations, _, err := unstructured.NestedStringMap(content, at...)
	if err != nil {
		return err
	}
	for _, key := range []string{broker.FieldSelectors, broker.FieldResults} {
		text, ok := annotations[key]
		if !ok {
			continue
		}
		delete(annotations, key)
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return fmt.Errorf("field %s: %w", key, err)
		}
		if err := unstructured.SetNestedField(content, value, strings.Split(key, ".")[1:]...); err != nil {
			return fmt.Errorf("field %s: %w", key, err)
		}
	}
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(content, at...)
		return nil
	}
	return unstructured.SetNestedStringMap(content, annotations, at...)
}
