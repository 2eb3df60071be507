package plugin

import (
	"math"
	"net/netip"
	"testing"
	"time"
)

// docs/spec/dns.md 5.5: clients are shown different parts of an answer, and so are the same ones by different servers.
func TestTurnDiffersByClient(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	one, other := NewRotation(), NewRotation()
	client := netip.MustParseAddr("10.0.0.1")
	turn := one.clientNumber(client, "web.shop", now)
	for _, tt := range []struct {
		name string
		got  uint64
		want bool
	}{
		{"the same moment", one.clientNumber(client, "web.shop", now.Add(time.Second-1)), true},
		{"the same client, mapped", one.clientNumber(netip.MustParseAddr("::ffff:10.0.0.1"), "web.shop", now), true},
		{"the next second", one.clientNumber(client, "web.shop", now.Add(time.Second)), false},
		{"another client", one.clientNumber(netip.MustParseAddr("10.0.0.2"), "web.shop", now), false},
		{"another service", one.clientNumber(client, "db.shop", now), false},
		{"another server", other.clientNumber(client, "web.shop", now), false},
	} {
		if (tt.got == turn) != tt.want {
			t.Errorf("%s: turn %d beside %d, want the same: %t", tt.name, tt.got, turn, tt.want)
		}
	}
	if a, b := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::ffff:1"); one.clientNumber(a, "",
		now) != one.clientNumber(b, "", now) {
		t.Error("two hosts of one IPv6 network differ")
	}
	if a, b := netip.MustParseAddr("fd00:0:0:1::1"), netip.MustParseAddr("fd00:0:0:2::1"); one.clientNumber(a, "",
		now) == one.clientNumber(b, "", now) {
		t.Error("two IPv6 networks do not differ")
	}
	// Over clients the turns are random: half of them are odd, within 8 standard deviations.
	const n = 10_000
	odd := 0
	for i := range uint32(n) {
		odd += int(one.clientNumber(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), "web.shop", now) & 1)
	}
	if math.Abs(float64(odd)-n/2) > 8*math.Sqrt(n)/2 {
		t.Errorf("%d of %d turns are odd", odd, n)
	}
	if a, b := NewRotation().nextOrder(), NewRotation().nextOrder(); a == b {
		t.Error("two servers begin with the same order")
	}
}
