package apiserver

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// serverMetadata is what only the API server writes.
var serverMetadata = []string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "selfLink"}

// owned returns the document to apply for obj: all that obj says, or its subresource alone.
func (k kind) owned(obj Object, subresource string) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	meta, _ := content["metadata"].(map[string]any)
	for _, field := range serverMetadata {
		delete(meta, field)
	}
	if subresource == "" {
		delete(content, "status")
	} else {
		for _, field := range []string{"labels", "annotations", "ownerReferences", "finalizers"} {
			delete(meta, field)
		}
		value, _ := content[subresource].(map[string]any)
		content = map[string]any{"metadata": meta}
		if len(value) > 0 { // else all that was owned goes away; the API server makes null of an empty one, and rejects that
			content[subresource] = value
		}
	}
	content["apiVersion"], content["kind"] = k.GroupVersion().String(), k.Kind
	dropNulls(content)
	return json.Marshal(content)
}

// dropNulls removes what has no value: it would be owned as if it were one.
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			if item == nil {
				delete(v, key)
				continue
			}
			dropNulls(item)
		}
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	}
}
