package broker_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// docs/spec/controller.md 2.2: names are unambiguous and fit.
func TestNames(t *testing.T) {
	if a, b := broker.RecordName("c", "a-b"), broker.RecordName("b-c", "a"); a != "a-b.c" || b != "a.b-c" {
		t.Errorf("names = %s and %s, want a-b.c and a.b-c", a, b)
	}
	long := strings.Repeat("x", 63)
	if name := broker.SliceName(long, long, strings.Repeat("s", 253)); len(name) != 63+1+63+1+16 {
		t.Errorf("slice name %s has %d octets, want 144", name, len(name))
	}
	seen := map[string]string{}
	for _, source := range []string{"db-a", "db-b", broker.ServiceIPSource("IPv4"), broker.ServiceIPSource("IPv6"),
		"service-ip"} {
		name := broker.SliceName("shop", "db", source)
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s are both %s", source, other, name)
		}
		seen[name] = source
	}
	// SHA-256 of "abc" begins with ba7816bf8f01cfea (FIPS 180-2, appendix B.1).
	if got, want := broker.NamespaceName("member", "abc"), "member-ba7816bf8f01cfea"; got != want {
		t.Errorf("namespace = %s, want %s", got, want)
	}
	if got := broker.NamespaceName(long, "east.registry1"); len(got) != 57 || !broker.IsLabel(got) {
		t.Errorf("namespace = %s, want a label of 57 octets", got)
	}
	if a, b := broker.Hash(16, "ab", "c"), broker.Hash(16, "a", "bc"); a == b {
		t.Errorf("hash of ab,c and a,bc = %s, want two", a)
	}
}

// docs/spec/dns.md 1.2, docs/spec/dns.md 1.4, docs/spec/controller.md 9.3.
func TestValid(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, tt := range []struct {
		name  string
		valid func(string) bool
		yes   []string
		no    []string
	}{
		{"label", broker.IsLabel, []string{"a", "0", "a-b", long},
			[]string{"", "-a", "a-", "A", "a.b", "a_b", "ä", long + "x"}},
		{"cluster id", broker.IsClusterID, []string{"a", "1", "east.registry1", "a-b.c-d", long, long[:31] + "." + long[:31]},
			[]string{"", ".", "a.b.c", "a.", ".a", "a..b", "-a", "a_b", "A", long + "x", long[:32] + "." + long[:31]}},
		{"subdomain", broker.IsSubdomain, []string{"a", "a.b.c", long + ".a", strings.Repeat("a.", 126) + "b"},
			[]string{"", ".", "a.", ".a", "a..b", "A", "a.-b", long + "x.a", strings.Repeat("a.", 126) + "bc"}},
		{"label key", broker.IsLabelKey, []string{"a", "A_b.c", "example.org/a", strings.Repeat("a.", 126) + "b/" + long},
			[]string{"", "/", "a/", "/a", "a/b/c", "Example.org/a", "a b", "-a", long + "x",
				strings.Repeat("a.", 126) + "bc/d"}},
		{"label value", broker.IsLabelValue, []string{"", "a", "A_b.c", long}, []string{"a b", "-a", "a-", long + "x"}},
		{"reserved key", broker.IsReservedKey,
			[]string{"kubernetes.io/a", "a.kubernetes.io/b", "k8s.io/a", "clusterset-dns.io/a", "broker.clusterset-dns.io/a",
				"lighthouse.submariner.io/a",
				"service.cilium.io/global", "networking.istio.io/exportTo", "argocd.argoproj.io/tracking-id",
				"kustomize.toolkit.fluxcd.io/prune", "meta.helm.sh/release-name"},
			[]string{"a", "kubernetes.io", "mykubernetes.io/a", "example.org/kubernetes.io", "myistio.io/a"}},
		{"rejected key", broker.IsRejectedKey, []string{"a.kubernetes.io/b", "k8s.io/a", "clusterset-dns.io/a",
			"submariner.io/a"},
			[]string{"a", "service.cilium.io/global", "helm.sh/chart"}},
		{"address", func(s string) bool { _, err := broker.ParseAddress(s); return err == nil },
			[]string{"10.0.0.1", "192.168.0.1", "fd00::1", "2001:db8::1", "1.0.0.0", "255.255.255.254", "64:ff9b::a00:1",
				"2002:a00:1::1",
				"64:ff9b:1::7f00:1", "::2:3", "::10.0.0.1"},
			[]string{"", "a", "10.0.0.1/8", "127.0.0.1", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0",
				"fd00::1%eth0",
				"224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:10.0.0.1", "0.1.2.3", "::127.0.0.1", "::169.254.169.254",
				"64:ff9b::7f00:1",
				"64:ff9b::169.254.169.254", "64:ff9b::", "2002:7f00:1::1", "2002:a9fe:a9fe::", "2002:e000:1::1"}},
		{"CIDR", func(s string) bool { _, err := broker.ParsePrefix(s); return err == nil },
			[]string{"10.0.0.0/8", "fd00::/64", "10.0.0.1/32"},
			[]string{"", "10.0.0.0", "10.0.0.1/8", "::ffff:10.0.0.0/104", "10.0.0.0/33"}},
	} {
		for _, s := range tt.yes {
			if !tt.valid(s) {
				t.Errorf("%s %q rejected", tt.name, s)
			}
		}
		for _, s := range tt.no {
			if tt.valid(s) {
				t.Errorf("%s %q accepted", tt.name, s)
			}
		}
	}
}

// The checks agree with those of Kubernetes on every text, but for the length of a part of a key's prefix.
func TestTextsAreThoseOfKubernetes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	parts := []string{"a", "Z", "0", "-", "_", ".", "/", " ", "é", strings.Repeat("b", 31), strings.Repeat("c", 60)}
	for range 20_000 {
		var b strings.Builder
		for range r.IntN(8) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		s := b.String()
		if got, want := broker.IsLabel(s), len(validation.IsDNS1123Label(s)) == 0; got != want {
			t.Errorf("IsLabel(%q) = %t, want %t", s, got, want)
		}
		if got, want := broker.IsLabelValue(s), len(validation.IsValidLabelValue(s)) == 0; got != want {
			t.Errorf("IsLabelValue(%q) = %t, want %t", s, got, want)
		}
		prefix, _, _ := strings.Cut(s, "/")
		long := slices.ContainsFunc(strings.Split(prefix, "."), func(part string) bool { return len(part) > 63 })
		if got, want := broker.IsLabelKey(s), len(validation.IsQualifiedName(s)) == 0; got != want && !long {
			t.Errorf("IsLabelKey(%q) = %t, want %t", s, got, want)
		}
	}
}

// docs/spec/controller.md 8.2: the larger TTL counts, and what a member asks for counts up to a bound.
func TestHeartbeatTTL(t *testing.T) {
	for _, tt := range []struct {
		lease     *int32
		own, want time.Duration
	}{
		{nil, time.Minute, time.Minute},
		{new(int32(30)), time.Minute, time.Minute},
		{new(int32(90)), time.Minute, 90 * time.Second},
		{new(int32(1 << 30)), time.Minute, broker.MaxHeartbeatTTL},
		{new(int32(90)), 2 * time.Hour, 2 * time.Hour},
		{new(int32(-1)), 0, 0},
	} {
		if got := broker.HeartbeatTTL(&coordinationv1.LeaseSpec{LeaseDurationSeconds: tt.lease}, tt.own); got != tt.want {
			t.Errorf("lease %v, own %s: %s, want %s", tt.lease, tt.own, got, tt.want)
		}
	}
}

func TestHeartbeatExpired(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		lease    *int32
		own, age time.Duration
		want     bool
	}{
		{nil, time.Minute, time.Minute - 1, false},
		{nil, time.Minute, time.Minute, true},
		{new(int32(90)), time.Minute, 90*time.Second - 1, false},
		{new(int32(90)), time.Minute, 90 * time.Second, true},
		{new(int32(1 << 30)), time.Minute, time.Hour, true},
		{nil, time.Minute, -time.Hour, false},
	} {
		lease := &coordinationv1.LeaseSpec{LeaseDurationSeconds: tt.lease,
			RenewTime: &metav1.MicroTime{Time: now.Add(-tt.age)}}
		if got := broker.HeartbeatExpired(lease, tt.own, now); got != tt.want {
			t.Errorf("lease %v, own %s, age %s: %t, want %t", tt.lease, tt.own, tt.age, got, tt.want)
		}
	}
}
