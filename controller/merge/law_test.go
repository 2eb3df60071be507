package merge

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/test/harness/exportspec"
)

// A generator makes exports that meet often: few names, few numbers, few times.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

func pick[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

var clusters = []string{"a", "b", "c.d", "east", "west"}

func (g generator) record(cluster string) Record {
	r := record(cluster, g.IntN(5))
	r.Admitted, r.Created = hour(g.IntN(3)), hour(g.IntN(6))
	if g.IntN(10) == 0 {
		r.Created = metav1.Time{}
	}
	exportspec.Randomize(g.Rand, &r.Spec)
	return r
}

// address is in the VIP CIDR of a cluster.
func (g generator) address(by int) netip.Addr {
	if g.IntN(3) == 0 {
		return netip.MustParseAddr(fmt.Sprintf("fd17:87d8:f436:%d::%d", by, 1+g.IntN(2)))
	}
	return netip.MustParseAddr(fmt.Sprintf("243.%d.0.%d", by, 1+g.IntN(2)))
}

func (g generator) records() []Record {
	var records []Record
	for _, cluster := range clusters[:g.IntN(len(clusters)+1)] {
		records = append(records, g.record(cluster))
	}
	if len(records) > 0 && g.IntN(5) == 0 {
		records = append(records, g.record(records[0].Cluster)) // a second one of a cluster
	}
	return records
}

func (g generator) options() Options {
	o := Options{Mode: pick(g, "", KEP, Lighthouse, First), VIP: pick(g, Derived, CIDR, NoVIP)}
	o.VIPNetworks = pick(g, VIPNetworks{}, DefaultVIPNetworks)
	v := &o.VIPs
	v.Stamps = make(map[string]int64)
	for i, cluster := range clusters {
		v.Pools = append(v.Pools, Pool{Cluster: cluster, Prefix: netip.MustParsePrefix(fmt.Sprintf("243.%d.0.0/16", i))},
			Pool{Cluster: cluster, Prefix: netip.MustParsePrefix(fmt.Sprintf("fd17:87d8:f436:%d::/64", i))})
		v.Stamps[cluster] = int64(g.IntN(3))
		if g.IntN(2) == 0 {
			v.Claims = append(v.Claims, Claim{Address{IP: g.address(g.IntN(len(clusters))), Cluster: cluster,
				Stamp: v.Stamps[cluster]}, hour(g.IntN(5)), hour(g.IntN(2)), pick(g, metav1.Time{}, hour(2+g.IntN(4)))})
		}
		if g.IntN(6) == 0 {
			v.Has = append(v.Has, Address{g.address(i), cluster, int64(g.IntN(3)), g.IntN(2) == 0})
		}
		if g.IntN(6) == 0 {
			v.Removed, v.Taken = append(v.Removed, cluster), append(v.Taken, g.address(i))
		}
	}
	return o
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/spec/controller.md 4.1: any permutation of the records and claims gives the same bytes.
func TestAnyOrderGivesTheSameBytes(t *testing.T) {
	for seed := range uint64(2000) {
		g := newGenerator(seed)
		records, o := g.records(), g.options()
		want := mustJSON(t, Merge(shop, records, o))
		for range 5 {
			g.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			g.Shuffle(len(o.VIPs.Claims), func(i, j int) {
				o.VIPs.Claims[i], o.VIPs.Claims[j] = o.VIPs.Claims[j],
					o.VIPs.Claims[i]
			})
			if got := mustJSON(t, Merge(shop, records, o)); got != want {
				t.Fatalf("seed %d: %s\nin another order %s", seed, want, got)
			}
		}
	}
}

// docs/spec/controller.md 4.2: "oldest wins" means that nothing newer, present or not, changes what the oldest decides.
func TestRemovingTheNewestNeverChangesTheWinner(t *testing.T) {
	for seed := range uint64(2000) {
		g := newGenerator(seed)
		records, o := g.records(), Options{Mode: pick(g, KEP, Lighthouse)}
		entries, _ := admit(shop, records)
		if len(entries) < 2 {
			continue
		}
		all := Merge(shop, records, o)
		newest := entries[len(entries)-1].Cluster
		rest := Merge(shop, slices.DeleteFunc(records, func(r Record) bool { return r.Cluster == newest }), o)
		if rest.Oldest != all.Oldest {
			t.Fatalf("seed %d: oldest = %s without %s, want %s", seed, rest.Oldest, newest, all.Oldest)
		}
		a, b := all.Import, rest.Import
		for _, pair := range [][2]any{
			{a.Spec.Type, b.Spec.Type}, {a.Spec.SessionAffinity, b.Spec.SessionAffinity},
			{a.Spec.SessionAffinityConfig, b.Spec.SessionAffinityConfig},
			{a.Spec.InternalTrafficPolicy, b.Spec.InternalTrafficPolicy},
			{a.Spec.TrafficDistribution, b.Spec.TrafficDistribution}, {a.Labels, b.Labels}, {a.Annotations, b.Annotations},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Fatalf("seed %d: %v with %s, %v without", seed, pair[0], newest, pair[1])
			}
		}
	}
}

// docs/spec/controller.md 4.3: every import obeys the rules of a Service: no name twice, and no protocol and number
// twice.
func TestPortsOfEveryImportAreThoseOfAService(t *testing.T) {
	for seed := range uint64(5000) {
		g := newGenerator(seed)
		r := Merge(shop, g.records(), g.options())
		if r.Import == nil {
			continue
		}
		names, numbers := map[string]bool{}, map[string]bool{}
		for i, p := range r.Import.Spec.Ports {
			number := fmt.Sprint(p.Protocol, p.Port)
			if names[p.Name] || numbers[number] {
				t.Fatalf("seed %d: ports = %v, want each name and number once", seed, r.Import.Spec.Ports)
			}
			names[p.Name], numbers[number] = true, true
			if slices.Contains(r.PortNames[:i], r.PortNames[i]) {
				t.Fatalf("seed %d: names in the derived Service = %q, want each once", seed, r.PortNames)
			}
		}
		if len(r.Import.Spec.IPFamilies) == 0 {
			t.Fatalf("seed %d: no families", seed)
		}
	}
}

// FuzzMerge decodes anything into records. Whatever it is, nothing panics, what comes out is no larger than
// what went in allows, the order of the records does not matter, and the import is one that an API server takes.
func FuzzMerge(f *testing.F) {
	for seed := range uint64(20) {
		g := newGenerator(seed)
		f.Add([]byte(mustJSON(f, g.records())), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint8) {
		var records []Record
		_ = json.Unmarshal(text, &records) // as far as it goes
		o := newGenerator(uint64(seed)).options()
		r := Merge(shop, records, o)
		rejected := len(r.Rejected)
		for _, rejection := range r.Rejected {
			if rejection.Reason == AlienVIP { // no record, but a claim
				rejected--
			}
		}
		if len(r.Members)+rejected != len(records) {
			t.Fatalf("%d members and %d rejected of %d records", len(r.Members), rejected, len(records))
		}
		for _, rejection := range r.Rejected {
			if len(rejection.Detail) > 1000 {
				t.Fatalf("detail of %d octets", len(rejection.Detail))
			}
		}
		if c := Condition(r.Conflicts, 1); len(c.Message) > 32768 || len(c.Reason) > 1024 {
			t.Fatalf("condition of %d octets, reason of %d", len(c.Message), len(c.Reason))
		}
		slices.Reverse(records)
		if a, b := mustJSON(t, r), mustJSON(t, Merge(shop, records, o)); a != b {
			t.Fatalf("%s\nreversed %s", a, b)
		}
	})
}
