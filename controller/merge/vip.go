package merge

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// Pools returns of every member its VIP CIDR, sorted by cluster id. Of two members whose networks overlap only the one that
// was created first has its own, by cluster id among equals (docs/spec/controller.md 2.1); it takes the network even while it is being deleted
// itself. A network that is not part of within does not count; the zero within has all.
func Pools(members []v1alpha1.Member, within netip.Prefix) []Pool {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b v1alpha1.Member) int {
		return cmp.Or(cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()), cmp.Compare(a.Name, b.Name))
	})
	var pools []Pool
	for i := range sorted {
		prefix, err := broker.ParsePrefix(sorted[i].Spec.VIPCIDR)
		overlaps := func(p Pool) bool { return p.Prefix.Overlaps(prefix) }
		outside := within.IsValid() && (within.Bits() > prefix.Bits() || !within.Contains(prefix.Addr()))
		if err != nil || !broker.IsClusterID(sorted[i].Name) || outside || slices.ContainsFunc(pools, overlaps) {
			prefix = netip.Prefix{}
		}
		pools = append(pools, Pool{Cluster: sorted[i].Name, Prefix: prefix})
	}
	slices.SortFunc(pools, func(a, b Pool) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return pools
}

// Allocated returns the clusterset IP of a service: the oldest valid allocation that any record of the service names
// (docs/spec/controller.md 5). claims are those of the service, and those of others for the same addresses.
//
// Valid is an allocation whose addresses lie in the pool of the member that it names, and so is the copy of one that names a
// cluster which is no member, if its addresses lie in no member's pool: it outlives its allocator. Of several claims to one
// address that of the allocator's own record counts, whatever time a copy states, and so a copy for another service never
// does. If the allocator left, that of the record which the broker has had longest does.
func Allocated(service types.NamespacedName, claims []Claim, o Options) *Allocation {
	valid := validClaims(claims, o)
	for _, c := range valid {
		if c.Service == service && !c.beaten(valid) {
			return &Allocation{IPs: slices.Clone(c.VIP.IPs), By: c.VIP.AllocatedBy, At: *c.VIP.At.DeepCopy()}
		}
	}
	return nil
}

// A claim is a valid [Claim].
type claim struct {
	Claim
	when moment
	own  bool   // of the allocator itself
	had  moment // since when the broker has it, whatever it says
}

// validClaims returns the valid claims, the oldest first. Where the allocator's own record has an address, its copies of
// the same service are left out: they cannot make it older.
func validClaims(claims []Claim, o Options) []claim {
	var valid []claim
	for i := range claims {
		c := claim{Claim: claims[i]}
		c.own = c.Cluster == c.VIP.AllocatedBy
		if c.valid(o) {
			c.when = o.Precedence.moment(*c.VIP.At, c.Admitted, c.Created)
			c.had = ByBroker.moment(*c.VIP.At, c.Admitted, c.Created)
			valid = append(valid, c)
		}
	}
	all := slices.Clone(valid)
	valid = slices.DeleteFunc(valid, func(c claim) bool {
		return !c.own && slices.ContainsFunc(all, func(d claim) bool { return d.own && d.Service == c.Service && d.shares(c) })
	})
	slices.SortFunc(valid, claim.compare)
	return valid
}

// valid reports whether the addresses of the claim are such that its allocator may give out, or might before it left.
func (c claim) valid(o Options) bool {
	if len(c.VIP.IPs) == 0 || c.VIP.Validate() != nil {
		return false
	}
	left := !slices.ContainsFunc(o.Pools, func(p Pool) bool { return p.Cluster == c.VIP.AllocatedBy })
	for _, ip := range c.VIP.IPs {
		addr, err := netip.ParseAddr(ip)
		if err != nil || left && !o.VIPPool.Contains(addr) {
			return false
		}
		at := slices.IndexFunc(o.Pools, func(p Pool) bool { return p.Prefix.Contains(addr) })
		if left != (at < 0) || !left && o.Pools[at].Cluster != c.VIP.AllocatedBy {
			return false
		}
	}
	return true
}

func (c claim) shares(d claim) bool {
	return slices.ContainsFunc(c.VIP.IPs, func(ip string) bool { return slices.Contains(d.VIP.IPs, ip) })
}

// beats reports whether c has an address that d wants too, and the better right to it.
func (c claim) beats(d claim) bool {
	if !c.shares(d) {
		return false
	}
	if c.own != d.own {
		return c.own
	}
	if !c.own {
		// A member can state any time since it was admitted, but it has no older record than it has.
		if older := c.had.compare(d.had); older != 0 {
			return older < 0
		}
	}
	return c.compare(d) < 0
}

// beaten reports whether another service has a better right to an address of c.
func (c claim) beaten(valid []claim) bool {
	return slices.ContainsFunc(valid, func(d claim) bool { return d.Service != c.Service && d.beats(c) })
}

// compare sorts the oldest first. What follows the time only makes the order one of the claims, not of the input.
func (c claim) compare(d claim) int {
	return cmp.Or(c.when.compare(d.when), cmp.Compare(c.VIP.AllocatedBy, d.VIP.AllocatedBy),
		cmp.Compare(c.Service.String(), d.Service.String()), cmp.Compare(c.Cluster, d.Cluster),
		cmp.Compare(strings.Join(c.VIP.IPs, ","), strings.Join(d.VIP.IPs, ",")), cmp.Compare(c.VIP.At.Unix(), d.VIP.At.Unix()))
}

// mergeVIP returns the clusterset IP under "vip cidr", and compares who wants one with what is (second Lighthouse
// document, "Conflict Resolution"). What was allocated stays, whoever changes their mind.
func (m *merger) mergeVIP(service types.NamespacedName) *Allocation {
	if m.o.VIP != CIDR || m.oldest.Spec.Type != v1alpha1.ClusterSetIP {
		return nil
	}
	claims := slices.DeleteFunc(slices.Clone(m.o.Claims), func(c Claim) bool { return c.Service == service })
	in := m.in()
	for _, e := range in {
		if e.Spec.VIP != nil {
			claims = append(claims, Claim{
				Service: service, Cluster: e.Cluster, Admitted: e.Admitted, Created: e.Created, VIP: *e.Spec.VIP,
			})
		}
	}
	vip := Allocated(service, claims, m.o)
	m.rejectVIPs(service, claims)
	using := vip != nil || wantsVIP(m.oldest)
	var disagree int
	for _, e := range in {
		if wantsVIP(e) != using {
			disagree++
		}
	}
	if disagree > 0 {
		text := "none"
		switch {
		case vip != nil:
			text = strings.Join(vip.IPs, ", ")
		case using:
			text = "wanted"
		}
		m.conflict(finding{reason: ReasonClusterSetIP, what: "clusterset IP", using: text, disagree: disagree})
	}
	return vip
}

// rejectVIPs rejects the claims of a service to IPs that are not its own. A claim that is only younger than another is not
// rejected.
func (m *merger) rejectVIPs(service types.NamespacedName, claims []Claim) {
	reject := func(c Claim, want string) {
		m.rejected = append(m.rejected, Rejection{
			Cluster: c.Cluster, Object: broker.RecordName(service.Namespace, service.Name), Reason: AlienVIP,
			Detail: "clusterset IP " + quote(strings.Join(c.VIP.IPs, ", ")) + ": want " + want,
		})
	}
	for _, c := range claims {
		if c.Service == service && len(c.VIP.IPs) > 0 && !(claim{Claim: c}).valid(m.o) {
			reject(c, "one in the VIP CIDR of its allocator, "+quote(c.VIP.AllocatedBy))
		}
	}
	valid := validClaims(claims, m.o)
	for _, c := range valid {
		if c.Service == service && c.beaten(valid) {
			reject(c.Claim, "one that no other service has")
		}
	}
}

func wantsVIP(e *entry) bool { return e.Spec.VIP != nil && e.Spec.VIP.Wanted }

// setIPs gives the import its addresses, and its families in their order (KEP-1645).
func setIPs(imp *mcsv1beta1.ServiceImport, ips []string) {
	if len(ips) == 0 {
		return
	}
	imp.Spec.IPs = slices.Clone(ips)
	imp.Spec.IPFamilies = nil
	for _, ip := range ips {
		family := corev1.IPv4Protocol
		if addr, err := netip.ParseAddr(ip); err == nil && !addr.Is4() {
			family = corev1.IPv6Protocol
		}
		imp.Spec.IPFamilies = append(imp.Spec.IPFamilies, family)
	}
}
