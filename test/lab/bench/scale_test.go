package main

import (
	"strings"
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
		if got := slice.Endpoints[0].Addresses[0]; got != memberAddr(e.member(), 1<<15).String() || len(slice.Endpoints) != z.Endpoints {
			t.Errorf("slice of export %d: %d endpoints, the first with %s", n, len(slice.Endpoints), got)
		}
		if err := record.Spec.Validate(); err != nil || record.Namespace != slice.Namespace {
			t.Errorf("record of export %d in %s, slice in %s: %v", n, record.Namespace, slice.Namespace, err)
		}
		slices[slice.Namespace+"/"+slice.Name] = true
	}
	if len(addrs) != z.endpoints() || len(hosts) != z.endpoints() || len(slices) != z.exports() {
		t.Errorf("%d addresses, %d hosts, %d slices, want %d, %[4]d, %[5]d", len(addrs), len(hosts), len(slices), z.endpoints(), z.exports())
	}
}

// testScale wrote once while nothing happened, and lost an answer.
func testScale() *scalePart {
	return &scalePart{
		Size: fullScale, Import: 60, Watches: map[string]float64{"leases": 1},
		Phases: []*scalePhase{
			{What: "first import", Seconds: 70, Writes: map[string]float64{"local ServiceImport create": 5000}},
			{
				What: "idle", Seconds: 30, Leases: 18, Writes: map[string]float64{"local EndpointSlice patch": 1},
				Events: map[string]float64{"leases": 600}, Octets: map[string]float64{"leases": 300e3},
				Watches: map[string]float64{"leases": 2},
			},
			{What: "broker restart", Asked: 1000, Wrong: 1},
			{What: "controller restart", Asked: 1000},
		},
		Delays: crossResult{What: "endpoint", P99: 90},
		Memory: []scaleMemory{{When: "after the first import", Control: 150e6, DNSHeap: 25e6}},
	}
}

func TestScaleReport(t *testing.T) {
	var missed []string
	all := testScale().goals()
	for _, g := range all {
		if g.Missed {
			missed = append(missed, g.What)
		}
	}
	want := "idle with 100 members: writes but Leases; broker restart with 100 members: wrong answers"
	if got := strings.Join(missed, "; "); got != want || len(all) != 6 {
		t.Errorf("of %d goals missed %q, want of 6 %q", len(all), got, want)
	}
	text := squeeze(testScale().markdown())
	for _, want := range []string{
		"10000 records, 10000 slices, 100000 endpoints.",
		"with 5000 local ServiceImport create.",
		"| idle | 30.0 | 1 | 18 | 0.00 | 0.00 | 0.00 | 0 | 0 | ≤ 0 **missed** |",
		"| idle | leases | 2 | 20.0 | 10.0 |",
		"| endpoint | 0 | 0 | 0 | 0 | 90 | 0 | ≤ 1000 |",
		"| after the first import | 150.0 | 0.0 | 0.0 | 0.0 | 0.0 | 25.0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("report lacks %q:\n%s", want, testScale().markdown())
		}
	}
}
