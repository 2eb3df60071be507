package write

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// ClusterIPs returns the addresses of the import. They stay while the derived Service has them, also if it cannot be
// changed, and while it is created again, also if that fails at first: it may well get the same. Without them
// keepsDerived would ask for no Service any more.
func (i *Import) ClusterIPs() []string {
	switch e := i.Objects().Service; {
	case e == nil && (member.Rejection(i.derived.failure) != "" || !member.IsOurs(i.Objects().Import)):
		return nil
	case e == nil:
		return i.Objects().Import.Spec.IPs
	case !desired.IsDerived(e) || e.Spec.ClusterIP == corev1.ClusterIPNone:
		return nil
	default:
		return e.Spec.ClusterIPs
	}
}

// Unrouted reports whether the import has the cluster IPs of the derived Service, and that carries no clusterset IPs:
// after a change to "vip cidr" both are used until it does, which a quota or a policy may deny
// (docs/spec/controller.md 5.7).
func (i *Import) Unrouted() bool {
	imp, s := i.Objects().Import, i.Objects().Service
	return member.IsOurs(imp) && s != nil && desired.IsDerived(s) && len(imp.Spec.IPs) > 0 &&
		imp.Spec.IPs[0] == s.Spec.ClusterIP &&
		len(s.Status.LoadBalancer.Ingress) == 0
}
