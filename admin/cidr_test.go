package admin

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
		{name: "one that is larger than the pool", pool: "243.0.0.0/8", taken: "240.0.0.0/4", want: "want a larger --vip-cidr-pool"},
		{name: "all taken", pool: "243.0.0.0/15", taken: "243.0.0.0/16 243.1.0.0/16", want: "no /16 in 243.0.0.0/15 is free"},
		{name: "a small pool", pool: "243.0.0.0/24", want: "243.0.0.0/24"},
		{name: "the end of all addresses", pool: "255.255.0.0/16", taken: "255.255.255.255/32", want: "no /16"},
		{name: "IPv6", pool: "fd00::/48", taken: "fd00::/112", want: "fd00::1:0/112"},
		{name: "IPv6, after half of the pool", pool: "fd00::/8", taken: "fd00::/9", want: "fd80::/112"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var claims []claim
			for _, p := range prefixes(t, tt.taken) {
				claims = append(claims, claim{p, "someone"})
			}
			p, err := firstFree(netip.MustParsePrefix(tt.pool), claims)
			if got := p.String(); got != tt.want && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("firstFree(%s, %s) = %s, %v, want %s", tt.pool, tt.taken, got, err, tt.want)
			}
			if _, taken := overlap(p, claims); err == nil && taken {
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
		{name: "given, and nothing else", given: []string{"10.1.0.0/16"}, declared: []string{"10.2.0.0/16"}, found: "10.3.0.0/16", want: "10.1.0.0/16"},
		{name: "a node is away", declared: []string{"10.0.0.0/24"}, found: "10.0.1.0/24", want: "10.0.0.0/23"},
		{name: "bits of a host", given: []string{"10.0.0.1/24"}, want: `CIDR "10.0.0.1/24": want a network such as`},
		{name: "too many", given: many, want: "65 pod CIDRs: want at most 64; give the network that contains them with --pod-cidr"},
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
		if u.GetKind() != "Member" && !isManaged(u) {
			t.Errorf("%s lacks the label of managed objects", describe(u))
		}
		if _, ok := u.Object["status"]; ok {
			t.Errorf("%s has a status", describe(u))
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
	existing := Admission{Quota: Quota{Exports: 10_000, Slices: 50_000, Leases: 1}}.quota()
	for _, tt := range []struct {
		name        string
		given, want Quota
		existing    *corev1.ResourceQuota
	}{
		{name: "first join", want: DefaultQuota()},
		{name: "first join, given", given: Quota{Slices: 7}, want: Quota{Exports: 1000, Slices: 7, Leases: 1}},
		{name: "again", existing: existing, want: Quota{Exports: 10_000, Slices: 50_000, Leases: 1}},
		{name: "again, given", given: Quota{Exports: 3}, existing: existing, want: Quota{Exports: 3, Slices: 50_000, Leases: 1}},
		{name: "others have removed the limits", existing: &corev1.ResourceQuota{}, want: DefaultQuota()},
	} {
		if got := tt.given.or(tt.existing); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
