package read

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// isNoKind reports whether something was not found because the API server lacks the kind.
func isNoKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Served calls do with the versions of a resource, its own first, until the API server has one.
func Served[T any](of schema.GroupVersionResource, do func(schema.GroupVersionResource) (T, error)) (T, error) {
	found, err := do(of)
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		if isNoKind(err) {
			found, err = do(of.GroupResource().WithVersion(version))
		}
	}
	return found, err
}
