package importer

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
	"github.com/clusterset-dns/clusterset/controller/member"
)

// A derived writes the derived Service of one import, and its status. It serves one reconcile.
type derived struct {
	*requests
	failure error // of the Service; the rest goes on
}

// clusterIPs returns the addresses of the import. They stay while the derived Service has them, also if it cannot be
// changed, and while it is created again, also if that fails at first: it may well get the same. Without them
// keepsDerived would ask for no Service any more.
func (d *derived) clusterIPs() []string {
	switch e := d.now.Service; {
	case e == nil && (member.Rejection(d.failure) != "" || !member.IsOurs(d.now.Import)):
		return nil
	case e == nil:
		return d.now.Import.Spec.IPs
	case !desired.IsDerived(e) || e.Spec.ClusterIP == corev1.ClusterIPNone:
		return nil
	default:
		return e.Spec.ClusterIPs
	}
}

// unrouted reports whether the import has the cluster IPs of the derived Service, and that carries no clusterset IPs:
// after a change to "vip cidr" both are used until it does, which a quota or a policy may deny
// (docs/spec/controller.md 5.7).
func (d *derived) unrouted() bool {
	imp, s := d.now.Import, d.now.Service
	return member.IsOurs(imp) && s != nil && desired.IsDerived(s) && len(imp.Spec.IPs) > 0 &&
		imp.Spec.IPs[0] == s.Spec.ClusterIP &&
		len(s.Status.LoadBalancer.Ingress) == 0
}

// createService asks for the addresses that the import has: they are constant while the import lives, also if the
// derived Service was deleted, unless another Service has got them meanwhile.
func (d *derived) createService(ctx context.Context, o *corev1.Service) error {
	ips := d.now.Import.Spec.IPs
	if len(ips) > 0 && o.Spec.Type == corev1.ServiceTypeClusterIP &&
		slices.Equal(d.now.Import.Spec.IPFamilies, o.Spec.IPFamilies) {
		same := o.DeepCopy()
		same.Spec.ClusterIP, same.Spec.ClusterIPs = ips[0], ips
		err := d.create(ctx, same)
		if !apierrors.IsInvalid(err) {
			return err
		}
		if other := d.create(ctx, o); other != nil {
			return errors.Join(err, other) // the rejection is in it: the import must not keep addresses of another Service
		}
		return nil
	}
	return d.create(ctx, o)
}

// patchService changes the derived Service. If the type must stay ClusterIP, it updates everything else.
func (d *derived) patchService(ctx context.Context, o *corev1.Service) error {
	err := d.patch(ctx, o)
	was := d.now.Service
	if err == nil || was == nil || o.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		was.Spec.Type != corev1.ServiceTypeClusterIP {
		return err
	}
	c := desired.Diff(desired.Objects{Service: desired.Unrouted(o)}, desired.Objects{Service: was})
	if c.Update.Service != nil {
		err = errors.Join(err, d.patch(ctx, c.Update.Service))
	}
	return err
}

// mayWriteServiceStatus reports whether the status of the derived Service is to be written now.
func (d *derived) mayWriteServiceStatus(o *corev1.Service) bool {
	if d.keptServiceStatus(o) {
		return false
	}
	if d.mustWait(o) {
		d.drop(serviceStatusName)
		return false
	}
	return true
}

// mustWait reports whether someone else has overwritten the status of the derived Service, such as a controller of load
// balancers that does not look at their class: it is written again ever more rarely (docs/spec/controller.md 5.7).
func (d *derived) mustWait(o *corev1.Service) bool {
	wait := d.overwritten.Wait(d.svc.String(), askedOf(o), time.Now())
	if wait > 0 {
		d.retry(d.svc, wait)
	}
	return wait > 0
}

// askedOf returns the key of a request for the status of a derived Service. A new object needs a new request.
func askedOf(o *corev1.Service) string { return string(o.UID) + " " + digest(o.Status.LoadBalancer) }

// serviceStatusName names the status of the derived Service among the responses.
const serviceStatusName = "status of derived Service"

// keptServiceStatus reports whether writing the status of the derived Service is in vain.
func (d *derived) keptServiceStatus(o *corev1.Service) bool {
	return d.inVain(serviceStatusName, askedOf(o), digest(d.now.Service.Status.LoadBalancer))
}

// writeServiceStatus writes the clusterset IPs that the derived Service carries.
func (d *derived) writeServiceStatus(ctx context.Context, o *corev1.Service) error {
	applied := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, Status: o.Status,
	}
	if written, err := d.applyStatus(ctx, serviceStatusName, applied); !written {
		return err
	}
	if d.overwritten.Wrote(d.svc.String(), askedOf(o), time.Now()) {
		d.log.Warningf(
			"import %s: someone else overwrites the addresses in the status of derived Service %s; they are written again ever more rarely. "+
				"A controller of load balancers has to leave the class %s alone", d.svc, o.Name, apibroker.VIPClass)
	}
	return nil
}
