package main

import (
	"testing"
)

// Every address of the simulated members is one of its own, of its member, and none that a change may give.
func TestSimulatedExports(t *testing.T) {
	z := scaleSize{Members: 7, Services: 21, Namespaces: 3, Exporters: 2, Endpoints: 4}
	addrs, hosts, slices := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for n := range z.exports() {
		e := exported{z, n}
		for i := range z.Endpoints {
			addr := e.addr(i)
			if !memberPods(e.member()).Contains(addr) || addrs[addr.String()] || addr == memberAddr(e.member(), 1<<15) {
				t.Errorf("export %d: address %s, want another one of %s", n, addr, memberPods(e.member()))
			}
			addrs[addr.String()], hosts[e.host(i)] = true, true
		}
		record, slice, err := e.objects(memberAddr(e.member(), 1<<15))
		if err != nil {
			t.Fatal(err)
		}
		if got := slice.Endpoints[0].Addresses[0]; got != memberAddr(e.member(), 1<<15).String() ||
			len(slice.Endpoints) != z.Endpoints {
			t.Errorf("slice of export %d: %d endpoints, the first with %s", n, len(slice.Endpoints), got)
		}
		if err := record.Spec.Validate(); err != nil || record.Namespace != slice.Namespace {
			t.Errorf("record of export %d in %s, slice in %s: %v", n, record.Namespace, slice.Namespace, err)
		}
		slices[slice.Namespace+"/"+slice.Name] = true
	}
	if len(addrs) != z.endpoints() || len(hosts) != z.endpoints() || len(slices) != z.exports() {
		t.Errorf("%d addresses, %d hosts, %d slices, want %d, %[4]d, %[5]d", len(addrs), len(hosts), len(slices),
			z.endpoints(), z.exports())
	}
}
