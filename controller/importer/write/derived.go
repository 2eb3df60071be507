package write

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// A derived writes the derived Service of one import, and its status. It serves one reconcile.
type derived struct {
	requests *requests
	failure  error // of the Service; the rest goes on
}

// create asks for the addresses that the import has: they are constant while the import lives, also if the
// derived Service was deleted, unless another Service has got them meanwhile.
func (d *derived) create(ctx context.Context, o *corev1.Service) error {
	ips := d.requests.objects.Import.Spec.IPs
	if len(ips) > 0 && o.Spec.Type == corev1.ServiceTypeClusterIP &&
		slices.Equal(d.requests.objects.Import.Spec.IPFamilies, o.Spec.IPFamilies) {
		same := o.DeepCopy()
		same.Spec.ClusterIP, same.Spec.ClusterIPs = ips[0], ips
		err := d.requests.create(ctx, same)
		if !apierrors.IsInvalid(err) {
			return err
		}
		if other := d.requests.create(ctx, o); other != nil {
			return errors.Join(err, other) // the rejection is in it: the import must not keep addresses of another Service
		}
		return nil
	}
	return d.requests.create(ctx, o)
}

// patch changes the derived Service. If the type must stay ClusterIP, it updates everything else.
func (d *derived) patch(ctx context.Context, o *corev1.Service) error {
	err := d.requests.patch(ctx, o)
	existing := d.requests.objects.Service
	if err == nil || existing == nil || o.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		existing.Spec.Type != corev1.ServiceTypeClusterIP {
		return err
	}
	c := desired.Diff(desired.Objects{Service: desired.UnroutedService(o)}, desired.Objects{Service: existing})
	if c.Update.Service != nil {
		err = errors.Join(err, d.requests.patch(ctx, c.Update.Service))
	}
	return err
}

// mayWriteStatus reports whether the status of the derived Service is to be written now.
func (d *derived) mayWriteStatus(o *corev1.Service) bool {
	if d.isStatusFutile(o) {
		return false
	}
	if d.mustWait(o) {
		d.requests.drop(serviceStatusName)
		return false
	}
	return true
}

// mustWait reports whether someone else has overwritten the status of the derived Service, such as a controller of load
// balancers that does not look at their class: it is written again ever more rarely (docs/spec/controller.md 5.7).
func (d *derived) mustWait(o *corev1.Service) bool {
	wait := d.requests.writer.overwritten.Wait(d.requests.svc.String(), askedOf(o), time.Now())
	if wait > 0 {
		d.requests.writer.cfg.Retry(d.requests.svc, wait)
	}
	return wait > 0
}

// askedOf returns the key of a request for the status of a derived Service. A new object needs a new request.
func askedOf(o *corev1.Service) string { return string(o.UID) + " " + digest(o.Status.LoadBalancer) }

// serviceStatusName names the status of the derived Service among the responses.
const serviceStatusName = "status of derived Service"

// isStatusFutile reports whether writing the status of the derived Service is futile.
func (d *derived) isStatusFutile(o *corev1.Service) bool {
	return d.requests.isFutileText(serviceStatusName, askedOf(o), digest(d.requests.objects.Service.Status.LoadBalancer))
}

// writeStatus writes the clusterset IPs that the derived Service carries.
func (d *derived) writeStatus(ctx context.Context, o *corev1.Service) error {
	applied := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, Status: o.Status,
	}
	if written, err := d.requests.applyStatus(ctx, serviceStatusName, applied, nil); !written {
		return err
	}
	if d.requests.writer.overwritten.Wrote(d.requests.svc.String(), askedOf(o), time.Now()) {
		d.requests.writer.cfg.Log.Warningf(
			"import %s: someone else overwrites the addresses in the status of derived Service %s; they are written again ever more rarely. "+
				"A controller of load balancers has to leave the class %s alone", d.requests.svc, o.Name, apibroker.VIPClass)
	}
	return nil
}
