package controlplane

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	brokerv1alpha1 "github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

func TestControllers(t *testing.T) {
	tier.All(t)
	ctx := t.Context()
	c := StartT(t, Options{CRDs: BrokerCRDs()})
	if err := c.StartControllers(ctx); err == nil {
		t.Error("StartControllers without a name = nil, want an error")
	}
	err := c.StartControllers(ctx, "no-such-controller")
	if err == nil || !strings.Contains(err.Error(), "is not in the list of known controllers") {
		t.Errorf("StartControllers = %v, want what kube-controller-manager said", err)
	}
	must(t, c.StartControllers(ctx, "resourcequota-controller", "namespace-controller"))
	if err := c.StartControllers(ctx, "endpointslice-controller"); err == nil {
		t.Error("StartControllers for the second time = nil, want an error")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "member-1"}}
	must(t, c.Apply(ctx, namespace, quota(1)))
	must(t, c.AwaitQuotas(ctx, "member-1"))
	must(t, c.Apply(ctx, record("db")))
	if err := c.Apply(ctx, record("web")); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("Apply of a second record = %v, want that the quota forbids it", err)
	}

	must(t, c.Delete(ctx, namespace))
	must(t, c.Apply(ctx, namespace))
	// Unlike Delete, this leaves the rest to the controller.
	must(t, c.Dynamic().Resource(namespaces).Delete(ctx, "member-1", metav1.DeleteOptions{}))
	must(t, eventually(ctx, func() error {
		_, err := c.Dynamic().Resource(namespaces).Get(ctx, "member-1", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the namespace is there"), err)
	}))
	must(t, c.Stop())
	if err := c.StartControllers(ctx, "namespace-controller"); err == nil {
		t.Error("StartControllers after Stop = nil, want an error")
	}
}

// counted is how a quota names the number of export records.
var counted = "count/" + brokerv1alpha1.ExportedServices.GroupResource().String()

func quota(records int64) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "member", Namespace: "member-1"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceName(counted): *resource.NewQuantity(records, resource.DecimalSI),
		}},
	}
}

func record(service string) *brokerv1alpha1.ExportedService {
	return &brokerv1alpha1.ExportedService{
		ObjectMeta: metav1.ObjectMeta{Name: service + ".shop", Namespace: "member-1"},
		Spec: brokerv1alpha1.ExportedServiceSpec{
			Namespace: "shop", Name: service, Type: brokerv1alpha1.Headless,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExportCreated: metav1.Now(),
		},
	}
}
