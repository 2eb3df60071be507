package main

import (
	"bytes"
	"testing"

	"github.com/miekg/dns"
)

func testServices() []service {
	return append(vips(150), headless("h", 2, 250, 1000)...)
}

// The slices of a service hold each of its endpoints once, and its hosts are the same.
func TestSlicesCoverHosts(t *testing.T) {
	for _, s := range headless("h", 3, 250, 1000) {
		hosts := map[string]string{}
		for host, addr := range s.hosts() {
			hosts[host] = addr.String()
		}
		if len(hosts) != 250 {
			t.Fatalf("%d hosts, want 250", len(hosts))
		}
		names := map[string]bool{}
		for slice := range s.slices() {
			if n := len(slice.Endpoints); n == 0 || n > sliceSize {
				t.Errorf("slice %s has %d endpoints, want 1 to %d", slice.Name, n, sliceSize)
			}
			if names[slice.Name] {
				t.Errorf("two slices %s", slice.Name)
			}
			names[slice.Name] = true
			for _, e := range slice.Endpoints {
				host := *e.Hostname + "." + slice.Labels["multicluster.kubernetes.io/source-cluster"] + "." + s.owner()
				if hosts[host] != e.Addresses[0] {
					t.Errorf("endpoint %s has %s, want %q", host, e.Addresses[0], hosts[host])
				}
				delete(hosts, host)
			}
		}
		if len(hosts) > 0 {
			t.Errorf("hosts without an endpoint: %v", hosts)
		}
	}
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

func TestWriteMaster(t *testing.T) {
	var b bytes.Buffer
	services := append(testServices(), headless("few", 3, masterTargets, 2000)...)
	if err := writeMaster(&b, services); err != nil {
		t.Fatal(err)
	}
	got := map[uint16]int{}
	parser := dns.NewZoneParser(&b, ".", "")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		got[rr.Header().Rrtype]++
	}
	if err := parser.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[uint16]int{dns.TypeSOA: 1, dns.TypeSRV: 150 + 3*masterTargets, dns.TypeA: 150 + 2*2*250 + 2*3*masterTargets}
	for qtype, n := range want {
		if got[qtype] != n {
			t.Errorf("%d %s records, want %d", got[qtype], dns.TypeToString[qtype], n)
		}
	}
}
