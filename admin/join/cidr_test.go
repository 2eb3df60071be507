package join

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

func prefixes(t *testing.T, text string) []netip.Prefix {
	t.Helper()
	all, err := parseCIDRs(strings.Fields(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFirstFree(t *testing.T) {
	for _, tt := range []struct{ name, pool, taken, want string }{
		{name: "the first", pool: "243.0.0.0/8", want: "243.0.0.0/16"},
		{name: "after those taken", pool: "243.0.0.0/8", taken: "243.1.0.0/16 243.0.0.0/16", want: "243.2.0.0/16"},
		{name: "a gap", pool: "243.0.0.0/8", taken: "243.0.0.0/16 243.2.0.0/16", want: "243.1.0.0/16"},
		{name: "part of one is taken", pool: "243.0.0.0/8", taken: "243.0.7.7/32", want: "243.1.0.0/16"},
		{name: "a larger one is taken", pool: "243.0.0.0/8", taken: "243.0.0.0/9", want: "243.128.0.0/16"},
		{name: "one that is larger than the pool", pool: "243.0.0.0/8", taken: "240.0.0.0/4",
			want: "want a larger --vip-cidr-pool"},
		{name: "all taken", pool: "243.0.0.0/15", taken: "243.0.0.0/16 243.1.0.0/16", want: "no /16 in 243.0.0.0/15 is free"},
		{name: "a small pool", pool: "243.0.0.0/24", want: "243.0.0.0/24"},
		{name: "the end of all addresses", pool: "255.255.0.0/16", taken: "255.255.255.255/32", want: "no /16"},
		{name: "IPv6", pool: "fd00::/48", taken: "fd00::/112", want: "fd00::1:0/112"},
		{name: "IPv6, after half of the pool", pool: "fd00::/8", taken: "fd00::/9", want: "fd80::/112"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var claims []claim
			for _, p := range prefixes(t, tt.taken) {
				claims = append(claims, claim{network: p, by: "someone"})
			}
			p, err := firstFree(netip.MustParsePrefix(tt.pool), claims)
			if got := p.String(); got != tt.want && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("firstFree(%s, %s) = %s, %v, want %s", tt.pool, tt.taken, got, err, tt.want)
			}
			if _, taken := overlappingClaim(p, claims); err == nil && taken {
				t.Errorf("firstFree(%s, %s) = %s, which is taken", tt.pool, tt.taken, p)
			}
		})
	}
}

func TestDeclaredCIDRs(t *testing.T) {
	var many []string
	for i := range 65 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(2 * i), 0, 0}), 16).String())
	}
	for _, tt := range []struct {
		name            string
		given, declared []string
		found           string
		want            string
	}{
		{name: "nothing"},
		{name: "found", found: "10.0.0.0/24 10.0.1.0/24", want: "10.0.0.0/23"},
		{name: "given, and nothing else", given: []string{"10.1.0.0/16"}, declared: []string{"10.2.0.0/16"},
			found: "10.3.0.0/16", want: "10.1.0.0/16"},
		{name: "a node is away", declared: []string{"10.0.0.0/24"}, found: "10.0.1.0/24", want: "10.0.0.0/23"},
		{name: "bits of a host", given: []string{"10.0.0.1/24"}, want: `CIDR "10.0.0.1/24": want a network such as`},
		{name: "too many", given: many,
			want: "65 pod CIDRs: want at most 64; give the network that contains them with --pod-cidr"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := declaredCIDRs("pod", tt.given, tt.declared, prefixes(t, tt.found))
			if got := strings.Join(prefixStrings(all), " "); err == nil && got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func TestObjectsInOrder(t *testing.T) {
	var a Admission
	a.ClusterID, a.Spec.Namespace = "east", "clusterset-0123456789abcdef"
	var kinds []string
	for _, o := range a.Objects() {
		u := toUnstructured(o)
		kinds = append(kinds, u.GetKind())
		if u.GetKind() != "Member" && !read.IsManaged(u) {
			t.Errorf("%s lacks the label of managed objects", read.Describe(u))
		}
		if _, ok := u.Object["status"]; ok {
			t.Errorf("%s has a status", read.Describe(u))
		}
	}
	want := []string{
		"Member", "Namespace", "ValidatingAdmissionPolicyBinding", "ResourceQuota", "FlowSchema", "ServiceAccount",
		"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ClusterRoleBinding",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("kinds = %q, want limits before rights: %q", kinds, want)
	}
}

// A join keeps the limits of a member, unless it is given others.
func TestQuota(t *testing.T) {
	existing := &corev1.ResourceQuota{}
	a := Admission{Quota: Quota{Exports: 10_000, Slices: 50_000, Leases: 1}}
	written := toUnstructured(a.Objects()[3]).Object
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(written, existing); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name        string
		given, want Quota
		existing    *corev1.ResourceQuota
	}{
		{name: "first join", want: DefaultQuota()},
		{name: "first join, given", given: Quota{Slices: 7}, want: Quota{Exports: 1000, Slices: 7, Leases: 1}},
		{name: "again", existing: existing, want: Quota{Exports: 10_000, Slices: 50_000, Leases: 1}},
		{name: "again, given", given: Quota{Exports: 3}, existing: existing,
			want: Quota{Exports: 3, Slices: 50_000, Leases: 1}},
		{name: "others have removed the limits", existing: &corev1.ResourceQuota{}, want: DefaultQuota()},
	} {
		if got := tt.given.completedBy(tt.existing); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// docs/spec/controller.md 5.7: a VIP CIDR of each IP family of the cluster's Services; what a member has it keeps.
func TestVIPCIDRs(t *testing.T) {
	member := func(id, vips string) v1alpha1.Member {
		return v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id},
			Spec: v1alpha1.MemberSpec{VIPCIDRs: strings.Fields(vips)}}
	}
	older := member("older", "243.0.0.0/16 fd17:87d8:f436::/112")
	const dual, four, six = "10.96.0.0/16 fd00::/108", "10.96.0.0/16", "fd00::/108"
	for _, tt := range []struct {
		name, services, has, requested, pool, want string
	}{
		{name: "auto", services: dual, requested: VIPAuto, want: "243.1.0.0/16 fd17:87d8:f436::1:0/112"},
		{name: "auto, of IPv4 alone", services: four, requested: VIPAuto, want: "243.1.0.0/16"},
		{name: "auto, of IPv6 alone", services: six, requested: VIPAuto, want: "fd17:87d8:f436::1:0/112"},
		{name: "auto, of Services that are not known", requested: VIPAuto, want: "243.1.0.0/16"},
		{name: "auto adds the other family", services: dual, has: "243.7.0.0/16", requested: VIPAuto,
			want: "243.7.0.0/16 fd17:87d8:f436::1:0/112"},
		{name: "auto in a pool", services: dual, requested: VIPAuto, pool: "fd00:200::/96",
			want: "243.1.0.0/16 fd00:200::/112"},
		{name: "kept as it is", services: dual, has: "243.7.0.0/16", want: "243.7.0.0/16"},
		{name: "both kept", services: four, has: "fd17:87d8:f436::7:0/112 243.7.0.0/16",
			want: "fd17:87d8:f436::7:0/112 243.7.0.0/16"},
		{name: "one was taken by an older member", services: dual, has: "243.0.0.0/16 fd17:87d8:f436::7:0/112",
			want: "fd17:87d8:f436::7:0/112 243.1.0.0/16"},
		{name: "none before", services: dual, want: ""},
		{name: "given up", services: dual, has: "243.7.0.0/16", requested: CIDRNone, want: ""},
		{name: "given", services: dual, requested: "fd17:87d8:f436::9:0/112,243.9.0.0/16",
			want: "fd17:87d8:f436::9:0/112 243.9.0.0/16"},
		{name: "two of a family", services: dual, requested: "243.8.0.0/16,243.9.0.0/16",
			want: "want at most one of each IP family"},
		{name: "second taken", services: dual, requested: "243.8.0.0/16,fd17:87d8:f436::/112", want: `overlaps with fd17:87d8:f436::/112 of member "older"`},
		{name: "second outside of the pool", services: dual, requested: "243.8.0.0/16,fd00::/112",
			want: "is not in fd17:87d8:f436::/48"},
		{name: "two pools of a family", services: dual, requested: VIPAuto, pool: "243.0.0.0/9,243.128.0.0/9",
			want: "want one network of each IP family"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := joinInput{members: []v1alpha1.Member{older, member("this", tt.has)}, services: prefixes(t, tt.services)}
			in.options.VIPCIDR, in.options.VIPPool = tt.requested, tt.pool
			all, err := in.vipCIDRs("this")
			if got := strings.Join(all, " "); (err != nil || got != tt.want) &&
				(err == nil || tt.want == "" || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("VIP CIDRs = %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// docs/spec/controller.md 7.4: the networks and the stamp of a Member when its cluster joins a restored broker again.
func TestJoinRestoredBroker(t *testing.T) {
	const has = 5
	now := time.UnixMicro(9)
	noted := wellknown.NotedMember{Stamp: 7, PodCIDRs: []string{"10.7.0.0/16"}, VIPCIDRs: []string{"243.7.0.0/16"}}
	none := wellknown.NotedMember{}
	for _, tt := range []struct {
		name      string
		lost      bool // the broker has no Members
		own       wellknown.NotedMember
		other     string // VIP CIDR that was noted
		requested string
		vip, pods string
		stamp     int64
	}{
		{name: "nothing is noted", own: none, vip: "243.2.0.0/16", pods: "10.2.0.0/16", stamp: has},
		{name: "no older one", own: wellknown.NotedMember{Stamp: has, VIPCIDRs: []string{"243.2.0.0/16"}},
			vip: "243.2.0.0/16", pods: "10.2.0.0/16", stamp: has},
		{name: "an older one", own: noted, vip: "243.7.0.0/16", pods: "10.7.0.0/16", stamp: 9},
		{name: "no Member", lost: true, own: noted, vip: "243.7.0.0/16", pods: "10.7.0.0/16", stamp: 9},
		{name: "a stamp in the future", lost: true, own: wellknown.NotedMember{Stamp: 20}, stamp: 21},
		{name: "another member has the VIP CIDR now", own: wellknown.NotedMember{Stamp: 7, VIPCIDRs: []string{"243.1.0.0/16"}},
			vip: "243.0.0.0/16", stamp: 9},
		{name: "a lost member will have its VIP CIDR again", lost: true, own: none, other: "243.0.0.0/16",
			requested: VIPAuto, vip: "243.1.0.0/16", stamp: 9},
	} {
		own := tt.own
		own.UID = "this"
		in := joinInput{local: read.Local{UID: "this"}}
		in.options.Now, in.options.VIPCIDR = func() time.Time { return now }, tt.requested
		in.noted.Members = map[string]wellknown.NotedMember{"this": own, "other": {VIPCIDRs: strings.Fields(tt.other)}}
		if !tt.lost {
			stamped := metav1.ObjectMeta{Name: "this", Annotations: map[string]string{broker.AnnotationStamp: strconv.Itoa(has)}}
			in.members = []v1alpha1.Member{
				{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1alpha1.MemberSpec{VIPCIDRs: []string{"243.1.0.0/16"}}},
				{ObjectMeta: stamped, Spec: v1alpha1.MemberSpec{KubeSystemUID: "this", PodCIDRs: []string{"10.2.0.0/16"},
					VIPCIDRs: []string{"243.2.0.0/16"}}},
			}
		}
		a := Admission{ClusterID: "this", Spec: v1alpha1.MemberSpec{KubeSystemUID: "this"}}
		if err := errors.Join(in.declareNetworks("this"), in.admitNetworks(&a)); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if strings.Join(a.Spec.VIPCIDRs, " ") != tt.vip || strings.Join(a.Spec.PodCIDRs, " ") != tt.pods || in.stamp(a) != tt.stamp {
			t.Errorf("%s: %+v, stamp %d; want %s, %s, %d", tt.name, a.Spec, in.stamp(a), tt.vip, tt.pods, tt.stamp)
		}
	}
}
