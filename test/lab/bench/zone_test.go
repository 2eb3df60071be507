package main

import (
	"testing"
)

func testServices() []service {
	return append(vips(150), headless("h", 2, 250, 1000)...)
}

func TestAddressesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, s := range testServices() {
		if !s.headless() {
			seen[s.ip.String()] = s.owner()
		}
		for host, addr := range s.hosts() {
			if other, ok := seen[addr.String()]; ok {
				t.Errorf("%s and %s both have %s", host, other, addr)
			}
			seen[addr.String()] = host
		}
	}
	if want := 150 + 2*250; len(seen) != want {
		t.Errorf("%d addresses, want %d", len(seen), want)
	}
}
