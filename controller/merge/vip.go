package merge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// Allocated returns the clusterset IPs of a service, at most one of each family, IPv4 first: the oldest valid allocation of that family that
// any record of the service names (docs/spec/controller.md 5). claims are those of the service, and those of others for the same addresses.
//
// Valid is an allocation whose address lies in a pool of the member that it names, and so is the copy of one that names a
// cluster which is no member, if its address lies in no member's pool, nor in networks that a member declares: it outlives its allocator. But
// everybody can name a cluster that never was, so one of a member comes before it. None is in a network of the importing cluster itself. Of several claims to one
// address that of the allocator's own record counts, whatever time a copy states, and so a copy for another service never
// does. If the allocator left, that of the record which the broker has had longest does.
func Allocated(service types.NamespacedName, claims []Claim, o Options) []Allocation {
	valid, _ := judge(claims, o)
	var v4, v6 []Allocation
	for _, c := range valid {
		of := &v6
		if c.IP.Is4() {
			of = &v4
		}
		if len(*of) == 0 && c.Service == service && !c.barred && !c.beaten(valid) {
			*of = []Allocation{c.Allocation}
		}
	}
	return append(v4, v6...)
}

// A claim is one address of a [Claim].
type claim struct {
	Allocation
	Service types.NamespacedName
	Cluster string // whose record it is
	when    moment
	own     bool   // of the allocator itself
	left    bool   // the allocator is no member
	barred  bool   // see Claim
	had     moment // since when the broker has it, whatever it says
}

// judge returns the valid claims, the oldest first, and those that are not. Where the allocator's own record has an address, its copies of
// the same service are left out: they cannot make it older. If it is barred, a copy that is not admits it.
func judge(claims []Claim, o Options) (valid, invalid []claim) {
	for i := range claims {
		from := &claims[i]
		if from.VIP.Validate() != nil {
			continue
		}
		for _, a := range AllocationsOf(&from.VIP) {
			c := claim{
				Allocation: a, Service: from.Service, Cluster: from.Cluster, own: from.Cluster == a.By, left: o.Left(a.By), barred: from.Barred,
			}
			if !c.valid(o) {
				invalid = append(invalid, c)
				continue
			}
			c.when = momentOf(a.At, from.Admitted, from.Created)
			c.had = moment{pending: from.Created.IsZero(), unix: from.Created.Unix()}
			valid = append(valid, c)
		}
	}
	valid = withoutCopies(valid)
	slices.SortFunc(valid, claim.compare)
	return valid, invalid
}

// withoutCopies returns the claims without copies of those that the allocator's own records have.
func withoutCopies(all []claim) (left []claim) {
	for _, c := range all {
		same := func(d claim) bool { return d.Service == c.Service && d.IP == c.IP }
		if !c.own && slices.ContainsFunc(all, func(d claim) bool { return d.own && same(d) }) {
			continue
		}
		c.barred = c.barred && !(c.own && slices.ContainsFunc(all, func(d claim) bool { return !d.barred && same(d) }))
		left = append(left, c)
	}
	return left
}

// valid reports whether the address of the claim is one that its allocator may give out, or might before it left, and that the importing
// cluster does not have itself.
func (c claim) valid(o Options) bool {
	if o.reserves(c.IP) || c.left && (!o.VIPNetworks.Of(c.IP).Contains(c.IP) || contains(o.Declared, c.IP)) {
		return false
	}
	at := slices.IndexFunc(o.Pools, func(p Pool) bool { return p.Prefix.Contains(c.IP) })
	return c.left == (at < 0) && (c.left || o.Pools[at].Cluster == c.By)
}

// beats reports whether c has the address that d wants too, and the better right to it.
func (c claim) beats(d claim) bool {
	if c.IP != d.IP {
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

// beaten reports whether another service has a better right to the address of c than that of c, by whichever of its claims.
func (c claim) beaten(valid []claim) bool {
	best := c
	for _, d := range valid {
		if d.beats(best) {
			best = d
		}
	}
	return best.Service != c.Service
}

// compare sorts the oldest first, and claims to addresses of members before all others. What follows the time only makes the order one of the claims, not of the input.
func (c claim) compare(d claim) int {
	return cmp.Or(cmp.Compare(rank(c.left), rank(d.left)), c.when.compare(d.when), cmp.Compare(c.By, d.By),
		cmp.Compare(c.Service.String(), d.Service.String()), cmp.Compare(rank(c.Second), rank(d.Second)), cmp.Compare(c.Cluster, d.Cluster),
		c.IP.Compare(d.IP), cmp.Compare(c.At.Unix(), d.At.Unix()))
}

// mergeVIP returns the clusterset IPs under "vip cidr", in the order of the families of the import, and compares who wants one with what is
// (second Lighthouse document, "Conflict Resolution"). What was allocated stays, whoever changes their mind.
func (m *merger) mergeVIP(service types.NamespacedName) []Allocation {
	if m.o.VIP != CIDR || m.oldest.Spec.Type != v1alpha1.ClusterSetIP {
		return nil
	}
	claims := m.otherClaims(service)
	in := m.in()
	for _, e := range slices.Concat(in, m.elsewhere) {
		// What is Headless elsewhere has no clusterset IP for those here.
		if e.Spec.VIP != nil && (!e.Elsewhere || e.Spec.Type == v1alpha1.ClusterSetIP) {
			claims = append(claims, Claim{
				Service: service, Cluster: e.Cluster, Admitted: e.Admitted, Created: e.Created, VIP: *e.Spec.VIP,
			})
		}
	}
	vips := m.ofFamilies(Allocated(service, claims, m.o))
	m.rejectVIPs(service, claims)
	m.usesVIPs = len(vips) > 0 || wantsVIP(m.oldest)
	var disagree int
	for _, e := range in {
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

// otherClaims returns the claims of other services, and those of records of this one that are not merged, which are barred.
func (m *merger) otherClaims(service types.NamespacedName) []Claim {
	merged := slices.Concat(m.all, m.elsewhere)
	var claims []Claim
	for _, c := range m.o.Claims {
		if c.Service == service {
			if slices.ContainsFunc(merged, func(e *entry) bool { return e.Cluster == c.Cluster }) {
				continue
			}
			c.Barred = true
		}
		claims = append(claims, c)
	}
	return claims
}

// ofFamilies returns the allocations of the families of the import, in their order. An import that has addresses of the other family alone
// keeps them.
func (m *merger) ofFamilies(vips []Allocation) []Allocation {
	var all []Allocation
	for _, f := range m.families {
		for _, a := range vips {
			if broker.FamilyOf(a.IP) == f {
				all = append(all, a)
			}
		}
	}
	if len(all) == 0 {
		return vips
	}
	return all
}

func addresses(vips []Allocation) []string {
	ips := make([]string, len(vips))
	for i, a := range vips {
		ips[i] = a.IP.String()
	}
	return ips
}

// rejectVIPs rejects the claims of a service to IPs that are not its own. A claim that is only younger than another is not
// rejected.
func (m *merger) rejectVIPs(service types.NamespacedName, claims []Claim) {
	reject := func(c claim, want string) {
		m.rejected = append(m.rejected, Rejection{
			Cluster: c.Cluster, Object: broker.RecordName(service.Namespace, service.Name), Reason: AlienVIP,
			Detail: fmt.Sprintf("clusterset IP %q: want %s", c.IP, want),
		})
	}
	valid, invalid := judge(claims, m.o)
	for _, c := range invalid {
		switch {
		case c.Service != service || c.barred:
		case m.o.reserves(c.IP):
			reject(c, "one outside of the networks of Pods and Services of this cluster")
		default:
			reject(c, fmt.Sprintf("one in a VIP CIDR of its allocator, %.80q", c.By))
		}
	}
	for _, c := range valid {
		if c.Service == service && !c.barred && c.beaten(valid) {
			reject(c, "one that no other service has")
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
		addr, _ := netip.ParseAddr(ip) // of a Service, or an allocation
		imp.Spec.IPFamilies = append(imp.Spec.IPFamilies, broker.FamilyOf(addr))
	}
}
