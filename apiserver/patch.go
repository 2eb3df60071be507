package apiserver

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Patch changes the object with the name of obj by a JSON merge patch and fills obj with what was stored. A resource version
// in the patch makes another one on the server an error ([k8s.io/apimachinery/pkg/api/errors.IsConflict]). The fields belong to manager if one is
// given.
func (c *Client) Patch(ctx context.Context, obj Object, patch []byte, manager ...string) error {
	k := kindOf(obj)
	options := metav1.PatchOptions{FieldManager: cmp.Or(manager...)}
	request := c.rests[k.GroupVersion()].Patch(types.MergePatchType).Name(obj.GetName()).
		VersionedParams(&options, metav1.ParameterCodec).Body(patch)
	return c.do(ctx, target{"patch", k, obj.GetNamespace(), obj.GetName()}, request, obj)
}
