package write

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/apiserver"
)

// withoutInvalid returns an import or a derived Service without the values that err reports as unknown to the API
// server, such as those of a newer cluster. It is nil if the failure has other causes (docs/spec/controller.md 5.4).
func withoutInvalid(o apiserver.Object, err error) apiserver.Object {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	less := o.DeepCopyObject().(apiserver.Object)
	var rest bool
	for _, cause := range status.Status().Details.Causes {
		rest = leaveOut(less, cause.Field) || rest
	}
	if !rest {
		return nil
	}
	return less
}

// leaveOut removes a value that an import or a Service can be without. It reports whether there was one.
func leaveOut(o apiserver.Object, field string) bool {
	switch o := o.(type) {
	case *corev1.Service:
		return leaveOutOf(field, &o.Spec.TrafficDistribution, &o.Spec.InternalTrafficPolicy, o.Spec.Ports,
			func(p *corev1.ServicePort) **string { return &p.AppProtocol })
	case *mcsv1beta1.ServiceImport:
		return leaveOutOf(field, &o.Spec.TrafficDistribution, &o.Spec.InternalTrafficPolicy, o.Spec.Ports,
			func(p *mcsv1beta1.ServicePort) **string { return &p.AppProtocol })
	}
	return false
}

func leaveOutOf[P any](
	field string, distribution **string, policy **corev1.ServiceInternalTrafficPolicy, ports []P,
	appProtocol func(*P) **string,
) (rest bool) {
	switch {
	case field == "spec.trafficDistribution":
		return unset(distribution)
	case field == "spec.internalTrafficPolicy":
		return unset(policy)
	case strings.HasPrefix(field, "spec.ports") && strings.HasSuffix(field, ".appProtocol"):
		for i := range ports {
			rest = unset(appProtocol(&ports[i])) || rest
		}
	}
	return rest
}

func unset[T any](p **T) (before bool) {
	before = *p != nil
	*p = nil
	return before
}
