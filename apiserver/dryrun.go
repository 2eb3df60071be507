package apiserver

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// IsUnknownField reports whether [Client.Apply] failed because the server's version of a custom kind lacks a field of the object. The
// server has no code of its own for that.
func IsUnknownField(err error) bool {
	return err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

// DryRun fills obj with what the server would store of it, without a write: it drops the fields that its version of a custom kind
// does not have. Of an object that exists it may return further fields.
func (c *Client) DryRun(ctx context.Context, obj Object) error {
	k := kindOf(obj)
	body, err := k.owned(obj, "")
	if err != nil {
		return fmt.Errorf("try %s %s: %w", k.Kind, place(obj.GetNamespace(), obj.GetName()), err)
	}
	t := target{"try", k, obj.GetNamespace(), obj.GetName()}
	dry := []string{metav1.DryRunAll}
	patch := c.rests[k.GroupVersion()].Patch(types.MergePatchType).Name(obj.GetName()).
		VersionedParams(&metav1.PatchOptions{DryRun: dry}, metav1.ParameterCodec).Body(body)
	if err := c.do(ctx, t, patch, obj); !apierrors.IsNotFound(err) {
		return err
	}
	post := c.rests[k.GroupVersion()].Post().SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&metav1.CreateOptions{DryRun: dry}, metav1.ParameterCodec).Body(body)
	return c.do(ctx, t, post, obj)
}
