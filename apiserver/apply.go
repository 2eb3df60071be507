package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Apply gives manager the fields of obj, and no others, by force, and fills obj with the stored object. Fields that
// manager owned and obj lacks go away. Empty fields without omitempty are sent as they are; nulls are left out.
//
// A UID or a resource version that obj has makes another one on the server an error ([apierrors.IsConflict]): an object
// that was compared is not applied over one that changed, nor over one that was made anew, nor, with a UID, is it made.
// Other metadata of the server is not sent. With a subresource, such as "status", only that field is sent; without,
// never a status.
func (c *Client) Apply(ctx context.Context, obj Object, manager string, subresource ...string) error {
	return c.apply(ctx, obj, manager, nil, subresource...)
}

// ApplyStatus applies a status with more fields, which the server has and the Go type lacks.
func (c *Client) ApplyStatus(ctx context.Context, obj Object, manager string, more map[string]any) error {
	return c.apply(ctx, obj, manager, more, "status")
}

func (c *Client) apply(ctx context.Context, obj Object, manager string, more map[string]any,
	subresource ...string) error {
	t, api := c.targetOf(ctx, "apply", obj)
	body, err := t.owned(obj, more, cmp.Or(subresource...))
	if err != nil {
		return t.wrap(err)
	}
	options := metav1.PatchOptions{FieldManager: manager, Force: new(true)}
	request := api.Patch(types.ApplyPatchType).Name(t.name).SubResource(subresource...).
		VersionedParams(&options, metav1.ParameterCodec).Body(body)
	return c.do(ctx, t, request, obj)
}

// Patch changes the object with the name of obj by a JSON merge patch and fills obj with the stored object. A resource
// version in the patch makes another one on the server an error ([k8s.io/apimachinery/pkg/api/errors.IsConflict]). The
// fields belong to manager if one is given.
func (c *Client) Patch(ctx context.Context, obj Object, patch []byte, manager ...string) error {
	t, api := c.targetOf(ctx, "patch", obj)
	options := metav1.PatchOptions{FieldManager: cmp.Or(manager...)}
	request := api.Patch(types.MergePatchType).Name(t.name).
		VersionedParams(&options, metav1.ParameterCodec).Body(patch)
	return c.do(ctx, t, request, obj)
}

// IsUnknownField reports whether [Client.Apply] failed because the server's version of a custom kind lacks a field of
// the object. The server has no code of its own for that.
func IsUnknownField(err error) bool {
	return err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

// serverMetadata is what only the API server writes.
var serverMetadata = []string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
	"managedFields", "selfLink"}

// owned returns the document to apply for obj: the whole object, or its subresource alone, with more fields.
func (t target) owned(obj Object, more map[string]any, subresource string) ([]byte, error) {
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
		maps.Copy(value, more)
		content = map[string]any{"metadata": meta}
		if len(value) > 0 { // else all that was owned goes away; the API server makes null of an empty one, and rejects that
			content[subresource] = value
		}
	}
	content["apiVersion"], content["kind"] = t.gv.String(), t.Kind
	dropNulls(content)
	return json.Marshal(content)
}

// dropNulls removes null values: manager would own them.
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
