package merge

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// mergeVIP returns the clusterset IPs under "vip cidr", in the order of the families of the import. An export that
// wants another outcome is in conflict (second Lighthouse document, "Conflict Resolution").
func (m *merger) mergeVIP(object string) (vips []Address) {
	if m.o.VIP != CIDR || m.oldest.Spec.Type != v1alpha1.ClusterSetIP {
		return nil
	}
	counts, rejected := m.o.VIPs.split(m.o.Reserved)
	for a, want := range rejected {
		m.rejected = append(m.rejected, Rejection{
			Cluster: a.Cluster, Object: object, Reason: AlienVIP, Detail: fmt.Sprintf("clusterset IP %q: want %s", a.IP, want),
		})
	}
	for _, f := range unite(m.families, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}) {
		// An import that has addresses of another family alone keeps them.
		a, ok := counts.address(f == corev1.IPv4Protocol, wantsVIP(m.oldest))
		if ok && (len(vips) == 0 || slices.Contains(m.families, f)) {
			vips = append(vips, a)
		}
	}
	m.usesVIPs = len(vips) > 0 || wantsVIP(m.oldest)
	var disagree int
	for _, e := range m.entries() {
		if wantsVIP(e) != m.usesVIPs {
			disagree++
		}
	}
	if disagree > 0 {
		text := "none"
		switch {
		case len(vips) > 0:
			text = strings.Join(addresses(vips), ", ")
		case m.usesVIPs:
			text = "wanted"
		}
		m.conflict(finding{reason: ReasonClusterSetIP, what: "clusterset IP", using: text, disagree: disagree})
	}
	return vips
}

func addresses(vips []Address) []string {
	ips := make([]string, len(vips))
	for i, a := range vips {
		ips[i] = a.IP.String()
	}
	return ips
}

func wantsVIP(e *entry) bool { return e.Spec.VIP != nil && e.Spec.VIP.Wanted }

// setVIPs sets the clusterset IPs of an import, and notes their claims.
func setVIPs(imp *mcsv1beta1.ServiceImport, vips []Address) {
	if len(vips) == 0 {
		return
	}
	text, err := json.Marshal(vips)
	if err != nil {
		panic("merge: addresses that are not JSON: " + err.Error())
	}
	metav1.SetMetaDataAnnotation(&imp.ObjectMeta, broker.AnnotationVIPs, string(text))
	metav1.SetMetaDataAnnotation(&imp.ObjectMeta, broker.AnnotationAllocatedBy, vips[0].Cluster)
	SetIPs(imp, addresses(vips))
}

// AddressesOf returns the clusterset IPs in the note of an import: at most one of each family, and only addresses in
// the networks, unless these are zero. A malformed note is ignored.
func AddressesOf(imp *mcsv1beta1.ServiceImport, networks VIPNetworks) []Address {
	var all []Address
	if imp == nil || json.Unmarshal([]byte(imp.Annotations[broker.AnnotationVIPs]), &all) != nil {
		return nil
	}
	var seen []bool // by whether it is IPv4
	return slices.DeleteFunc(all, func(a Address) bool {
		bad := !a.IP.IsValid() || networks != VIPNetworks{} && !networks.ForFamilyOf(a.IP).Contains(a.IP) ||
			slices.Contains(seen, a.IP.Is4())
		seen = append(seen, a.IP.Is4())
		return bad
	})
}

// SetIPs gives the import its addresses, and its families in their order (KEP-1645).
func SetIPs(imp *mcsv1beta1.ServiceImport, ips []string) {
	if len(ips) == 0 {
		return
	}
	imp.Spec.IPs = slices.Clone(ips)
	imp.Spec.IPFamilies = nil
	for _, ip := range ips {
		addr, _ := netip.ParseAddr(ip) // of a Service, or a claim
		imp.Spec.IPFamilies = append(imp.Spec.IPFamilies, broker.FamilyOf(addr))
	}
}
