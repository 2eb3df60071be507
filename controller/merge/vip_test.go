package merge

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

func pools() []Pool {
	return []Pool{
		{Cluster: "a", Prefix: netip.MustParsePrefix("243.0.0.0/16")},
		{Cluster: "b", Prefix: netip.MustParsePrefix("243.1.0.0/16")},
		{Cluster: "plain"},
	}
}

// vipPool is the network that the pools are part of. Of its addresses 243.2.0.1 is one of a cluster that left.
var vipPool = DefaultVIPNetworks

// vip returns what a record says: ip allocated by a cluster at an hour, or only whether one is wanted.
func vip(wanted bool, ip, by string, h int) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.VIP = &v1alpha1.VIP{Wanted: wanted}
		if ip != "" {
			s.VIP.IPs, s.VIP.AllocatedBy, s.VIP.At = []string{ip}, by, ptr(hour(h))
		}
	}
}

func claimOf(name, cluster string, created int, with func(*v1alpha1.ExportedServiceSpec)) Claim {
	var s v1alpha1.ExportedServiceSpec
	with(&s)
	return Claim{
		Service: types.NamespacedName{Namespace: "other", Name: name}, Cluster: cluster,
		Admitted: hour(0), Created: hour(created), VIP: *s.VIP,
	}
}

// notAccepted is the claim of a record of shop/db that the importing cluster does not accept.
func notAccepted(cluster string, created int, ip, by string) Claim {
	c := claimOf("", cluster, created, vip(true, ip, by, created))
	c.Service = shop
	return c
}

// docs/spec/controller.md 5.7.
func TestVIP(t *testing.T) {
	for _, tt := range []struct {
		name     string
		records  []Record
		claims   []Claim
		want     string // "ip by"; "" for none
		reason   string
		rejected string // clusters whose claims are rejected
	}{
		{name: "allocated by the first exporter", records: []Record{record("a", 1, vip(true, "243.0.0.1", "a", 1))}, want: "243.0.0.1 a"},
		{name: "the oldest valid allocation wins",
			records: []Record{record("a", 2, vip(true, "243.0.0.1", "a", 2)), record("b", 1, vip(true, "243.1.0.1", "b", 1))},
			want:    "243.1.0.1 b"},
		{name: "the time of allocation counts, not that of the export",
			records: []Record{record("a", 1, vip(true, "243.0.0.1", "a", 9)), record("b", 2, vip(true, "243.1.0.1", "b", 2))},
			want:    "243.0.0.1 a"}, // clamped to the creation of a's record, at 1
		{name: "equal times: lower id of the allocator",
			records: []Record{record("b", 1, vip(true, "243.1.0.1", "b", 1)), record("a", 1, vip(true, "243.0.0.1", "a", 1))},
			want:    "243.0.0.1 a"},
		{name: "a copy outlives its allocator", records: []Record{record("b", 3, vip(true, "243.2.0.1", "left", 1))}, want: "243.2.0.1 left"},
		{name: "outside the CIDR of the one that it names",
			records: []Record{record("a", 1, vip(true, "243.1.0.1", "a", 1)), record("b", 2, vip(true, "243.1.0.2", "b", 2))},
			want:    "243.1.0.2 b", rejected: "a"},
		{name: "outside the network of all VIP CIDRs", records: []Record{record("a", 1, vip(true, "244.2.0.1", "left", 1))}, rejected: "a"},
		{name: "a member's, in the name of one that left", records: []Record{record("b", 1, vip(true, "243.0.0.1", "left", 1))}, rejected: "b"},
		{name: "a member without a VIP CIDR did not leave", records: []Record{record("b", 1, vip(true, "243.2.0.1", "plain", 1))}, rejected: "b"},
		{name: "one that left does not beat a member", records: []Record{
			record("a", 1, vip(true, "243.0.0.1", "a", 1)), record("b", 2, vip(true, "243.0.0.1", "left", 0)),
		}, want: "243.0.0.1 a", rejected: "b"},
		{name: "a member's allocation comes before an older one of a cluster that is no member",
			records: []Record{record("a", 5, vip(true, "243.0.0.1", "a", 5)), record("b", 1, vip(true, "243.2.0.1", "left", 1))}, want: "243.0.0.1 a"},
		{name: "of one that left, where a member has its Pods", records: []Record{record("b", 1, vip(true, "243.9.0.1", "left", 1))}, rejected: "b"},
		{name: "a member's, where another has its Pods", records: []Record{record("a", 1, vip(true, "243.0.9.1", "a", 1))}, want: "243.0.9.1 a"},
		{name: "a copy that states an earlier time than the original does not make it older",
			records: []Record{
				record("a", 5, vip(true, "243.0.0.1", "a", 5)), record("b", 4, vip(true, "243.1.0.1", "b", 4)),
				record("c", 1, vip(true, "243.0.0.1", "a", 1)),
			}, want: "243.1.0.1 b"},
		{name: "a copy of another service's address does not count",
			records: []Record{record("b", 1, vip(true, "243.0.0.1", "a", 1))},
			claims:  []Claim{claimOf("x", "a", 5, vip(true, "243.0.0.1", "a", 5))}, rejected: "b"},
		{name: "the allocator's own record beats copies for another service",
			records: []Record{record("a", 5, vip(true, "243.0.0.1", "a", 5))},
			claims:  []Claim{claimOf("x", "b", 1, vip(true, "243.0.0.1", "a", 1))}, want: "243.0.0.1 a"},
		{name: "the allocator's record is not accepted: a copy that is has its right to the address",
			records: []Record{record("b", 5, vip(true, "243.0.0.1", "a", 5))},
			claims:  []Claim{notAccepted("a", 5, "243.0.0.1", "a"), claimOf("x", "c", 1, vip(true, "243.0.0.1", "a", 1))}, want: "243.0.0.1 a"},
		{name: "the allocator's record is not accepted: the copy is not older than it",
			records: []Record{record("b", 4, vip(true, "243.1.0.1", "b", 4)), record("c", 1, vip(true, "243.0.0.1", "a", 1))},
			claims:  []Claim{notAccepted("a", 5, "243.0.0.1", "a")}, want: "243.1.0.1 b"},
		{name: "an older copy is not accepted, a later one is",
			records: []Record{record("b", 5, vip(true, "243.2.0.1", "left", 1))},
			claims:  []Claim{notAccepted("a", 1, "243.2.0.1", "left"), claimOf("x", "c", 3, vip(true, "243.2.0.1", "left", 1))}, want: "243.2.0.1 left"},
		{name: "the allocator's record is not accepted, and no other has the address", records: []Record{record("b", 5, vip(true, "", "", 0))},
			claims: []Claim{notAccepted("a", 1, "243.0.0.1", "a")}},
		{name: "what is not accepted is not rejected for its address, too", records: []Record{record("b", 5, vip(true, "", "", 0))},
			claims: []Claim{notAccepted("a", 1, "243.1.0.1", "a")}},
		{name: "two services with copies of one address: the older claim",
			records: []Record{record("b", 3, vip(true, "243.2.0.1", "left", 3))},
			claims:  []Claim{claimOf("x", "a", 1, vip(true, "243.2.0.1", "left", 1))}, rejected: "b"},
		{name: "two services with copies of one address: a later record cannot backdate",
			records: []Record{record("b", 3, vip(true, "243.2.0.1", "left", 3))},
			claims:  []Claim{claimOf("x", "a", 5, vip(true, "243.2.0.1", "left", 1))}, want: "243.2.0.1 left"},
		{name: "an address that no service may have, beside another", records: []Record{record("a", 1, vip(true, "243.0.0.1", "a", 1), func(s *v1alpha1.ExportedServiceSpec) {
			s.VIP.IPs = append(s.VIP.IPs, "fd00::1") // not in the CIDR
		})}, want: "243.0.0.1 a", rejected: "a"},
		{name: "nobody wants one", records: []Record{record("a", 1, vip(false, "", "", 0)), record("b", 2)}},
		{name: "a difference: the oldest wins",
			records: []Record{record("a", 1, vip(true, "243.0.0.1", "a", 1)), record("b", 2, vip(false, "243.0.0.1", "a", 1))},
			want:    "243.0.0.1 a", reason: "ClusterSetIPConflict"},
		{name: "a difference, none allocated", records: []Record{record("a", 1, vip(false, "", "", 0)), record("b", 2, vip(true, "", "", 0))},
			reason: "ClusterSetIPConflict"},
		{name: "a later change of mind changes only the conflict", records: []Record{record("a", 1, vip(false, "243.0.0.1", "a", 1))},
			want: "243.0.0.1 a", reason: "ClusterSetIPConflict"},
		{name: "none for Headless", records: []Record{record("a", 1, headless, vip(true, "243.0.0.1", "a", 1))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Merge(shop, tt.records, Options{
				VIP: CIDR, VIPNetworks: vipPool, Pools: pools(), Claims: tt.claims, Declared: []netip.Prefix{netip.MustParsePrefix("243.9.0.0/16"), netip.MustParsePrefix("243.0.9.0/24")},
			})
			got := strings.TrimSpace(fmt.Sprint(strings.Join(r.Import.Spec.IPs, ","), " ", r.Import.Annotations[broker.AnnotationAllocatedBy]))
			if got != tt.want {
				t.Errorf("VIP = %q, want %q", got, tt.want)
			}
			uses := r.Import.Annotations[broker.AnnotationUseVIP]
			if wants := tt.records[0].Spec.VIP != nil && tt.records[0].Spec.VIP.Wanted; tt.want != "" && uses != "true" || uses == "true" && tt.want == "" && !wants {
				t.Errorf("the import says %q of clusterset IPs, with VIP %q", uses, got)
			}
			if want := cmp.Or(tt.reason, "NoConflicts"); reasonsOf(r) != want {
				t.Errorf("reason = %s, want %s", reasonsOf(r), want)
			}
			var rejected []string
			for _, r := range r.Rejected {
				if r.Reason != AlienVIP || r.Object != "db.shop" {
					t.Errorf("rejected %+v, want its clusterset IP", r)
				}
				rejected = append(rejected, r.Cluster)
			}
			if got := strings.Join(rejected, ","); got != tt.rejected {
				t.Errorf("rejected of %q, want of %q", got, tt.rejected)
			}
			for _, mode := range []VIPMode{Derived, NoVIP} {
				if r := Merge(shop, tt.records, Options{VIP: mode, Pools: pools()}); len(r.Import.Spec.IPs) > 0 || len(r.Conflicts) > 0 {
					t.Errorf("vip %s: ips = %v, conflicts = %v, want neither", mode, r.Import.Spec.IPs, r.Conflicts)
				}
			}
		})
	}
}

// docs/spec/controller.md 5.7: no clusterset IP lies in the networks of the importing cluster, whoever allocated it.
func TestReservedVIP(t *testing.T) {
	wide := VIPNetworks{IPv4: netip.MustParsePrefix("10.0.0.0/8"), IPv6: DefaultVIPNetworks.IPv6}
	pools := []Pool{{Cluster: "a", Prefix: netip.MustParsePrefix("10.96.0.0/16")}, {Cluster: "b", Prefix: netip.MustParsePrefix("10.1.0.0/16")}}
	for _, tt := range []struct {
		name     string
		records  []Record
		want     string
		rejected string
	}{
		{"by one that is no member", []Record{record("b", 1, vip(true, "10.97.0.10", "ghost", 1))}, "[]", "b"},
		{"by a member", []Record{record("a", 1, vip(true, "10.96.0.10", "a", 1))}, "[]", "a"},
		{"another one is valid", []Record{record("a", 1, vip(true, "10.96.0.10", "a", 1)), record("b", 2, vip(true, "10.1.0.1", "b", 2))}, "[10.1.0.1]", "a"},
		{"elsewhere", []Record{record("b", 1, vip(true, "10.98.0.10", "ghost", 1))}, "[10.98.0.10]", ""},
	} {
		o := Options{VIP: CIDR, VIPNetworks: wide, Pools: pools, Reserved: []netip.Prefix{netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("10.96.0.0/15")}}
		r := Merge(shop, tt.records, o)
		if got := fmt.Sprint(r.Import.Spec.IPs); got != tt.want {
			t.Errorf("%s: ips = %s, want %s", tt.name, got, tt.want)
		}
		var rejected string
		for _, r := range r.Rejected {
			if rejected += r.Cluster; r.Reason != AlienVIP || !strings.Contains(r.Detail, "outside of the networks of Pods and Services of this cluster") {
				t.Errorf("%s: rejected %+v, want its clusterset IP, and why", tt.name, r)
			}
		}
		if rejected != tt.rejected {
			t.Errorf("%s: rejected of %q, want of %q", tt.name, rejected, tt.rejected)
		}
	}
}

// second adds what a record says as its second: ip allocated by a cluster at an hour.
func second(ip, by string, h int) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.VIP.Second = &v1alpha1.SecondVIP{IP: ip, AllocatedBy: by, At: hour(h)}
	}
}

// docs/spec/controller.md 5.7: each family has an allocation of its own, and the import has them in the order of the families of the oldest export.
func TestVIPsOfBothFamilies(t *testing.T) {
	both := append(pools(), Pool{Cluster: "a", Prefix: netip.MustParsePrefix("fd00:a::/64"), Second: true},
		Pool{Cluster: "six", Prefix: netip.MustParsePrefix("fd00:6::/64")})
	for _, tt := range []struct {
		name    string
		records []Record
		want    string // IPs, families and allocator of the import
		names   string // what a record names that copies all
	}{
		{"of one allocator", []Record{record("a", 1, families(v6, v4), vip(true, "243.0.0.1", "a", 1), second("fd00:a::1", "a", 1))},
			"[fd00:a::1 243.0.0.1] [IPv6 IPv4] a", "243.0.0.1 by a, second fd00:a::1 by a"},
		{"a copy of the first alone, by a member of version 0.1", []Record{
			record("a", 2, families(v4, v6), vip(true, "243.0.0.1", "a", 2), second("fd00:a::1", "a", 2)),
			record("b", 3, families(v4, v6), vip(true, "243.0.0.1", "a", 2)),
		}, "[243.0.0.1 fd00:a::1] [IPv4 IPv6] a", "243.0.0.1 by a, second fd00:a::1 by a"},
		{"of two allocators", []Record{
			record("six", 2, families(v4, v6), vip(true, "fd00:6::1", "six", 2)), record("b", 3, families(v4, v6), vip(true, "243.1.0.1", "b", 3)),
		}, "[243.1.0.1 fd00:6::1] [IPv4 IPv6] b", "fd00:6::1 by six, second 243.1.0.1 by b"},
		{"a second that came later", []Record{
			record("b", 2, families(v4, v6), vip(true, "243.1.0.1", "b", 2)),
			record("a", 1, families(v4, v6), vip(true, "243.1.0.1", "b", 2), second("fd00:a::1", "a", 3)),
		}, "[243.1.0.1 fd00:a::1] [IPv4 IPv6] b", "243.1.0.1 by b, second fd00:a::1 by a"},
		{"a second alone", []Record{record("a", 1, families(v6), vip(true, "", "", 0), second("fd00:a::1", "a", 1))},
			"[fd00:a::1] [IPv6] a", "second fd00:a::1 by a"},
		{"a family that the oldest export lacks", []Record{record("a", 1, families(v6), vip(true, "243.0.0.1", "a", 1), second("fd00:a::1", "a", 1))},
			"[fd00:a::1] [IPv6] a", "243.0.0.1 by a, second fd00:a::1 by a"},
		{"no address of a family of the oldest export", []Record{record("a", 1, families(v6), vip(true, "243.0.0.1", "a", 1))},
			"[243.0.0.1] [IPv4] a", "243.0.0.1 by a"},
		{"a second outside of the pools", []Record{record("a", 1, families(v4, v6), vip(true, "243.0.0.1", "a", 1), second("fd00:b::1", "a", 1))},
			"[243.0.0.1] [IPv4] a", "243.0.0.1 by a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{VIP: CIDR, VIPNetworks: VIPNetworks{IPv4: vipPool.IPv4, IPv6: netip.MustParsePrefix("fd00::/16")}, Pools: both}
			imp := Merge(shop, tt.records, o).Import
			if got := fmt.Sprint(imp.Spec.IPs, imp.Spec.IPFamilies, " ", imp.Annotations[broker.AnnotationAllocatedBy]); got != strings.Replace(tt.want, "] [", "][", 1) && got != tt.want {
				t.Errorf("import = %s, want %s", got, tt.want)
			}
			var claims []Claim
			for _, r := range tt.records {
				claims = append(claims, Claim{Service: shop, Cluster: r.Cluster, Admitted: r.Admitted, Created: r.Created, VIP: *r.Spec.VIP})
			}
			v := VIPOf(Allocated(shop, claims, o))
			var named []string
			if len(v.IPs) > 0 {
				named = append(named, v.IPs[0]+" by "+v.AllocatedBy)
			}
			if v.Second != nil {
				named = append(named, "second "+v.Second.IP+" by "+v.Second.AllocatedBy)
			}
			if got := strings.Join(named, ", "); got != tt.names {
				t.Errorf("a copy names %s, want %s", got, tt.names)
			}
			if err := v.Validate(); err != nil {
				t.Errorf("a copy is not valid: %v", err)
			}
		})
	}
}

// No address is that of two services, whatever the records say.
func TestNoAddressTwice(t *testing.T) {
	names := []types.NamespacedName{{Namespace: "n", Name: "x"}, {Namespace: "n", Name: "y"}, {Namespace: "n", Name: "z"}}
	for seed := range uint64(5000) {
		g := newGenerator(seed)
		o := g.options()
		var claims []Claim
		for range 8 {
			claims = append(claims, Claim{
				Service: pick(g, names...), Cluster: pick(g, clusters...), Admitted: hour(g.IntN(2)), Created: hour(g.IntN(4)), VIP: *g.vip(),
			})
		}
		owner := map[netip.Addr]types.NamespacedName{}
		for _, name := range names {
			all := Allocated(name, claims, o)
			for _, a := range all {
				if other, taken := owner[a.IP]; taken {
					t.Fatalf("seed %d: %s is that of %s and %s", seed, a.IP, other, name)
				}
				owner[a.IP] = name
			}
			if len(all) > 2 || len(all) == 2 && (!all[0].IP.Is4() || all[1].IP.Is4()) {
				t.Fatalf("seed %d: %v, want at most one of each family, IPv4 first", seed, all)
			}
		}
	}
}

// docs/spec/controller.md 2.1: of two VIP CIDRs that overlap the older counts.
func TestPools(t *testing.T) {
	member := func(id, cidr string, h int) v1alpha1.Member {
		return v1alpha1.Member{
			ObjectMeta: metav1.ObjectMeta{Name: id, CreationTimestamp: hour(h)}, Spec: v1alpha1.MemberSpec{VIPCIDR: cidr},
		}
	}
	members := []v1alpha1.Member{
		member("d", "243.0.0.0/8", 4), member("c", "243.2.0.0/16", 3), member("b", "243.1.0.0/16", 2), member("a", "243.1.128.0/17", 2),
		member("none", "", 1), member("bad", "243.9.0.1/16", 1), member("a.b.c", "243.8.0.0/16", 1),
	}
	const none = "invalid Prefix"
	for within, want := range map[string]string{
		"":             "[{a 243.1.128.0/17 false} {a.b.c none false} {b none false} {bad none false} {c 243.2.0.0/16 false} {d none false} {none none false}]",
		"243.0.0.0/8":  "[{a 243.1.128.0/17 false} {a.b.c none false} {b none false} {bad none false} {c 243.2.0.0/16 false} {d none false} {none none false}]",
		"243.1.0.0/16": "[{a 243.1.128.0/17 false} {a.b.c none false} {b none false} {bad none false} {c none false} {d none false} {none none false}]",
		"10.0.0.0/8":   "[{a none false} {a.b.c none false} {b none false} {bad none false} {c none false} {d none false} {none none false}]",
	} {
		var in VIPNetworks
		if within != "" {
			in = in.With(netip.MustParsePrefix(within))
		}
		if got := strings.ReplaceAll(fmt.Sprint(Pools(members, in)), none, "none"); got != want {
			t.Errorf("pools in %q = %s, want %s", within, got, want)
		}
	}
}
