package merge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

func pools() []Pool {
	return []Pool{
		{Cluster: "a", Prefix: netip.MustParsePrefix("243.0.0.0/16")},
		{Cluster: "a", Prefix: netip.MustParsePrefix("fd17:87d8:f436::/112")},
		{Cluster: "b", Prefix: netip.MustParsePrefix("243.1.0.0/16")},
	}
}

// claims returns what inventories with stamp 7 say, from texts such as "a 243.0.0.1 3": since an hour. The members are
// known since hour 0.
func claims(texts ...string) (all []Claim) {
	for _, text := range texts {
		var c Claim
		var ip string
		var since int
		if _, err := fmt.Sscan(text, &c.Cluster, &ip, &since); err != nil {
			panic(err)
		}
		c.IP, c.Stamp, c.Since, c.Admitted = netip.MustParseAddr(ip), 7, hour(since), hour(0)
		all = append(all, c)
	}
	return all
}

// exporting returns claims of members with records of an hour.
func exporting(created int, all []Claim) []Claim {
	for i := range all {
		all[i].Created = hour(created)
	}
	return all
}

// noted returns addresses that an import has by inventories with stamp 5, from texts such as "a 243.0.0.1".
func noted(texts ...string) (all []Address) {
	for _, text := range texts {
		cluster, ip, _ := strings.Cut(text, " ")
		all = append(all, Address{IP: netip.MustParseAddr(ip), Cluster: cluster, Stamp: 5})
	}
	return all
}

// docs/spec/controller.md 5.7.
func TestVIP(t *testing.T) {
	one := []Record{record("a", 1, families(v4, v6), vip(true))}
	known := map[string]int64{"a": 7, "b": 7}
	taken := []netip.Addr{netip.MustParseAddr("243.0.0.1")}
	for _, tt := range []struct {
		name     string
		records  []Record // one, if nil
		vips     VIPs
		want     string // "ip by"; "" for none
		reason   string
		rejected string // clusters with rejected claims
	}{
		{name: "of a member", vips: VIPs{Claims: claims("a 243.0.0.1 1")}, want: "243.0.0.1 a"},
		{name: "of both families", vips: VIPs{Claims: claims("a fd17:87d8:f436::1 2", "a 243.0.0.1 1")},
			want: "243.0.0.1,fd17:87d8:f436::1 a"},
		{name: "of both families, in the order of the oldest export",
			records: []Record{record("a", 1, families(v6, v4), vip(true))},
			vips:    VIPs{Claims: claims("b 243.1.0.1 1", "a fd17:87d8:f436::1 2")}, want: "fd17:87d8:f436::1,243.1.0.1 a"},
		{name: "a family that the oldest export lacks", records: []Record{record("a", 1, families(v6), vip(true))},
			vips: VIPs{Claims: claims("a 243.0.0.1 1", "a fd17:87d8:f436::1 2")}, want: "fd17:87d8:f436::1 a"},
		{name: "no address of a family of the oldest export", records: []Record{record("a", 1, families(v6), vip(true))},
			vips: VIPs{Claims: claims("a 243.0.0.1 1")}, want: "243.0.0.1 a"},
		{name: "the oldest claim", vips: VIPs{Claims: exporting(1, claims("b 243.1.0.1 2", "a 243.0.0.1 3"))},
			want: "243.1.0.1 b"},
		{name: "equal times: lower id", vips: VIPs{Claims: exporting(1, claims("b 243.1.0.1 2", "a 243.0.0.1 2"))},
			want: "243.0.0.1 a"},
		{name: "no claim is older than the export", vips: VIPs{Claims: slices.Concat(exporting(9, claims("b 243.1.0.1 1")),
			exporting(1, claims("a 243.0.0.1 3")))}, want: "243.0.0.1 a"},
		{name: "claims without an export come last", vips: VIPs{Claims: slices.Concat(claims("b 243.1.0.1 1"),
			exporting(9, claims("a 243.0.0.1 3")))}, want: "243.0.0.1 a"},
		{name: "not in the VIP CIDR of the member", vips: VIPs{Claims: claims("a 243.1.0.1 1", "b 243.1.0.2 2",
			"plain 243.7.0.1 1")}, want: "243.1.0.2 b", rejected: "a,plain"},
		{name: "taken", vips: VIPs{Claims: claims("a 243.0.0.1 1"), Taken: taken}, rejected: "a"},
		{name: "taken, and another one is not", vips: VIPs{Claims: claims("a 243.0.0.1 1", "b 243.1.0.1 2"), Taken: taken},
			want: "243.1.0.1 b", rejected: "a"},
		{name: "nobody wants one", records: []Record{record("a", 1, vip(false)), record("b", 2)}},
		{name: "a difference: the oldest wins", records: []Record{record("a", 1, vip(true)), record("b", 2, vip(false))},
			vips: VIPs{Claims: exporting(1, claims("a 243.0.0.1 1"))}, want: "243.0.0.1 a", reason: "ClusterSetIPConflict"},
		{name: "a difference, none claimed", records: []Record{record("a", 1, vip(false)), record("b", 2, vip(true))},
			reason: "ClusterSetIPConflict"},
		{name: "a later change of mind changes only the conflict", records: []Record{record("a", 1, vip(false))},
			vips: VIPs{Claims: exporting(1, claims("a 243.0.0.1 1"))}, want: "243.0.0.1 a", reason: "ClusterSetIPConflict"},
		{name: "nobody wants one, and who does not export it claims one",
			records: []Record{record("a", 1, vip(false)), record("b", 2)}, vips: VIPs{Claims: claims("a 243.0.0.1 1")}},
		{name: "none for Headless", records: []Record{record("a", 1, headless, vip(true))},
			vips: VIPs{Claims: claims("a 243.0.0.1 1")}},

		{name: "the import keeps an address while its claim stands",
			vips: VIPs{Claims: exporting(1, claims("a 243.0.0.1 1", "b 243.1.0.1 2")), Stamps: known,
				Has: noted("b 243.1.0.1")}, want: "243.1.0.1 b"},
		{name: "also when the member has ended its export",
			vips: VIPs{Claims: slices.Concat(claims("b 243.1.0.1 9"), exporting(1, claims("a 243.0.0.1 1"))), Stamps: known,
				Has: []Address{{IP: netip.MustParseAddr("243.1.0.1"), Cluster: "b", Stamp: 5, Exported: true}}},
			want: "243.1.0.1 b"},
		{name: "but not that of one that never exported it",
			vips: VIPs{Claims: slices.Concat(claims("b 243.1.0.1 1"), exporting(9, claims("a 243.0.0.1 9"))), Stamps: known,
				Has: noted("b 243.1.0.1")},
			want: "243.0.0.1 a"},
		{name: "and not one in the VIP CIDR of another member",
			vips: VIPs{Claims: claims("b 243.0.0.1 1"), Stamps: known, Has: noted("b 243.0.0.1")}, rejected: "b"},
		{name: "and no longer", vips: VIPs{Claims: claims("a 243.0.0.1 1"), Stamps: known, Has: noted("b 243.1.0.1")},
			want: "243.0.0.1 a"},
		{name: "released", vips: VIPs{Stamps: known, Has: noted("b 243.1.0.1")}},
		{name: "an inventory from before says nothing", vips: VIPs{Claims: claims("a 243.0.0.1 1"),
			Stamps: map[string]int64{"b": 4}, Has: noted("b 243.1.0.1")}, want: "243.1.0.1 b"},
		{name: "nor does an unknown one", vips: VIPs{Has: noted("b 243.1.0.1")}, want: "243.1.0.1 b"},
		{name: "the member has no VIP CIDR any more", vips: VIPs{Claims: claims("plain 243.7.0.1 1"), Stamps: known,
			Has: noted("plain 243.7.0.1")}, want: "243.7.0.1 plain"},
		{name: "of a removed member, until there is another one",
			vips: VIPs{Has: noted("gone 243.7.0.1"), Removed: []string{"gone"}}, want: "243.7.0.1 gone"},
		{name: "which is there", vips: VIPs{Claims: exporting(1, claims("a 243.0.0.1 1")), Has: noted("gone 243.7.0.1"),
			Removed: []string{"gone"}}, want: "243.0.0.1 a"},
		{name: "of a removed member whose VIP CIDR another one has",
			vips: VIPs{Has: noted("gone 243.0.0.1"), Removed: []string{"gone"}}},
		{name: "another import comes first", vips: VIPs{Claims: claims("a 243.0.0.1 1"), Stamps: known,
			Has: noted("a 243.0.0.1"), Taken: taken}, rejected: "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.records == nil {
				tt.records = one
			}
			tt.vips.Pools = pools()
			r := Merge(shop, tt.records, Options{VIP: CIDR, VIPs: tt.vips})
			got := strings.TrimSpace(fmt.Sprint(strings.Join(r.Import.Spec.IPs, ","), " ",
				r.Import.Annotations[broker.AnnotationAllocatedBy]))
			if got != tt.want {
				t.Errorf("VIP = %q, want %q", got, tt.want)
			}
			uses := r.Import.Annotations[broker.AnnotationUseVIP]
			if wants := tt.records[0].Spec.VIP != nil && tt.records[0].Spec.VIP.Wanted; tt.want != "" && uses != "true" ||
				uses == "true" && tt.want == "" && !wants {
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
			if noted := addresses(AddressesOf(r.Import, VIPNetworks{})); !slices.Equal(noted, r.Import.Spec.IPs) &&
				len(noted)+len(r.Import.Spec.IPs) > 0 {
				t.Errorf("the import notes %q, want its addresses %q", noted, r.Import.Spec.IPs)
			}
			for _, mode := range []VIPMode{Derived, NoVIP} {
				if r := Merge(shop, tt.records, Options{VIP: mode, VIPs: tt.vips}); len(r.Import.Spec.IPs) > 0 ||
					len(r.Conflicts) > 0 {
					t.Errorf("vip %s: ips = %v, conflicts = %v, want neither", mode, r.Import.Spec.IPs, r.Conflicts)
				}
			}
		})
	}
}

// docs/spec/controller.md 5.7: no clusterset IP lies in the networks of the importing cluster, whoever claims it, and
// since when.
func TestReservedVIP(t *testing.T) {
	for _, tt := range []struct {
		name     string
		vips     VIPs
		want     string
		rejected string
	}{
		{"reserved", VIPs{Claims: claims("a 243.0.0.1 1")}, "[]", "a"},
		{"another one is valid", VIPs{Claims: claims("a 243.0.0.1 1", "b 243.1.0.1 2")}, "[243.1.0.1]", "a"},
		{"of the import", VIPs{Claims: claims("a 243.0.0.1 1"), Has: noted("a 243.0.0.1")}, "[]", "a"},
	} {
		tt.vips.Pools = pools()
		o := Options{VIP: CIDR, VIPs: tt.vips, Reserved: []netip.Prefix{netip.MustParsePrefix("fd00::/64"),
			netip.MustParsePrefix("243.0.0.0/24")}}
		r := Merge(shop, []Record{record("a", 1, vip(true))}, o)
		if got := fmt.Sprint(r.Import.Spec.IPs); got != tt.want {
			t.Errorf("%s: ips = %s, want %s", tt.name, got, tt.want)
		}
		var rejected string
		for _, r := range r.Rejected {
			if rejected += r.Cluster; r.Reason != AlienVIP || !strings.Contains(r.Detail,
				"outside of the networks of Pods and Services of this cluster") {
				t.Errorf("%s: rejected %+v, want its clusterset IP, and why", tt.name, r)
			}
		}
		if rejected != tt.rejected {
			t.Errorf("%s: rejected of %q, want of %q", tt.name, rejected, tt.rejected)
		}
	}
}

func TestAddressesOf(t *testing.T) {
	for _, text := range []string{"", "x", `[{"ip":"x"}]`, `[{}]`, `[{"ip":"10.0.0.1"}]`} {
		imp := &mcsv1beta1.ServiceImport{}
		imp.Annotations = map[string]string{broker.AnnotationVIPs: text}
		if got := AddressesOf(imp, DefaultVIPNetworks); len(got) > 0 {
			t.Errorf("%q: %v, want none", text, got)
		}
	}
}

// Each pool gives out all of its addresses, each once. A service prefers the same one always.
func TestChoose(t *testing.T) {
	service := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("db-", i)}
	}
	for _, tt := range []struct {
		prefix string
		size   int
	}{
		{"243.0.0.0/24", 254}, {"243.0.0.4/30", 2}, {"243.0.0.4/31", 2}, {"243.0.0.7/32", 1}, {"255.255.255.252/30", 2},
		{"127.0.0.0/29", 0},
		{"fd00:243::/120", 256}, {"fd00:243::1/128", 1},
	} {
		p, taken := Pool{Prefix: netip.MustParsePrefix(tt.prefix)}, make(map[netip.Addr]types.NamespacedName)
		for i := range tt.size {
			a, ok := p.Choose(service(i), taken)
			if again, _ := p.Choose(service(i), taken); !ok || !p.Prefix.Contains(a) || again != a {
				t.Fatalf("%s: %s, %t, then %s; want an address that is free, twice the same", tt.prefix, a, ok, again)
			}
			taken[a] = service(i)
		}
		if len(taken) != tt.size {
			t.Errorf("%s: %d addresses for %d services", tt.prefix, len(taken), tt.size)
		}
		if a, ok := p.Choose(service(-1), taken); ok {
			t.Errorf("%s: %s after all %d, want none", tt.prefix, a, tt.size)
		}
		if p.Size() != tt.size && tt.size > 0 {
			t.Errorf("%s: size %d, want %d", tt.prefix, p.Size(), tt.size)
		}
	}
	wide := Pool{Prefix: netip.MustParsePrefix("fd00:243::/64")}
	seen := make(map[netip.Addr]bool)
	for i := range 1000 {
		a, _ := wide.Choose(service(i), nil)
		seen[a] = true
	}
	if len(seen) != 1000 {
		t.Errorf("1000 services prefer %d addresses", len(seen))
	}
}

// docs/spec/controller.md 2.1: of two VIP CIDRs that overlap the older counts.
func TestPools(t *testing.T) {
	member := func(id, cidrs string, h int) v1alpha1.Member {
		return v1alpha1.Member{
			ObjectMeta: metav1.ObjectMeta{Name: id, CreationTimestamp: hour(h)},
			Spec:       v1alpha1.MemberSpec{VIPCIDRs: strings.Fields(cidrs)},
		}
	}
	members := []v1alpha1.Member{
		member("d", "243.0.0.0/8", 4), member("c", "fd00::/112 243.2.0.0/16", 3), member("b", "243.1.0.0/16", 2),
		member("a", "243.1.128.0/17", 2),
		member("none", "", 1), member("bad", "243.9.0.1/16", 1), member("a.b.c", "243.8.0.0/16", 1),
	}
	for within, want := range map[string]string{
		"":             "[{a 243.1.128.0/17} {c fd00::/112} {c 243.2.0.0/16}]",
		"243.0.0.0/8":  "[{a 243.1.128.0/17} {c 243.2.0.0/16}]",
		"243.1.0.0/16": "[{a 243.1.128.0/17}]",
		"10.0.0.0/8":   "[]",
	} {
		var in VIPNetworks
		if within != "" {
			in = in.WithNetwork(netip.MustParsePrefix(within))
		}
		if got := fmt.Sprint(Pools(members, in)); got != want {
			t.Errorf("pools in %q = %s, want %s", within, got, want)
		}
	}
}
