package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// members are the clusters of these tests, with the ClusterProperties that exports select them by.
var members = map[string]map[string]string{"a": {"tier": "gold"}, "b": {"tier": "gold"}, "c": {"tier": "silver"},
	"d": nil}

// to has an export reach some clusters alone, beside its own.
func to(clusters ...string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		for _, id := range clusters {
			s.ToClusters = append(s.ToClusters, v1alpha1.ClusterSelector{
				MatchProperties: []v1alpha1.Property{{Name: "cluster.clusterset.k8s.io", Value: id}},
			})
		}
	}
}

// toTier is to for the clusters with a property.
func toTier(tier string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.ToClusters = []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: "tier", Value: tier}}}}
	}
}

// docs/spec/controller.md 3.8: who sees what, and who is in conflict with whom.
func TestReach(t *testing.T) {
	https := ports("https/TCP/443")
	const code = " [conflict-ports]"
	const clash = `Conflicting ports. Using the union "http/TCP/80, https/TCP/443", by precedence from oldest service export in "a". 2/2 clusters disagree.`
	for _, tt := range []struct {
		name      string
		records   []Record
		imports   string // of which clusters each cluster has an import
		conflicts string // of each export, one line each
	}{
		{name: "to all", records: []Record{record("a", 1), record("b", 2, https)},
			imports:   "a: a b, b: a b, c: a b, d: a b",
			conflicts: "a " + clash + code + "\nb " + clash + code},
		{name: "by id", records: []Record{record("a", 1, to("b"))}, imports: "a: a, b: a, c: , d: "},
		{name: "by a property", records: []Record{record("c", 1, toTier("gold"))}, imports: "a: c, b: c, c: c, d: "},
		{name: "to the own cluster alone", records: []Record{record("a", 1, to("a"))}, imports: "a: a, b: , c: , d: "},
		{name: "to no member yet", records: []Record{record("a", 1, to("z"))}, imports: "a: a, b: , c: , d: "},
		{name: "to different clusters: no conflict", records: []Record{record("a", 1, to("c")),
			record("b", 2, https, to("d"))},
			imports: "a: a, b: b, c: a, d: b"},
		{name: "to a third cluster in common", records: []Record{record("a", 1, to("d")), record("b", 2, https, to("d"))},
			imports:   "a: a, b: b, c: , d: a b",
			conflicts: `a In "d": ` + clash + code + "\n" + `b In "d": ` + clash + code},
		{name: "one reaches the other", records: []Record{record("a", 1, to("b")), record("b", 2, https, to("b"))},
			imports:   "a: a, b: a b, c: , d: ",
			conflicts: `a In "b": ` + clash + code + "\nb " + clash + code},
		{name: "one of three", records: []Record{record("a", 1), record("b", 2, https, to("c")), record("c", 3, to("c"))},
			imports: "a: a, b: a b, c: a b c, d: a",
			conflicts: `a In "b": ` + clash + ` In "c": ` + strings.ReplaceAll(clash, "2/2", "3/3") + code + "\n" +
				`b In "b": ` + clash + ` In "c": ` + strings.ReplaceAll(clash, "2/2", "3/3") + code + "\n" +
				`c ` + strings.ReplaceAll(clash, "2/2", "3/3") + code},
		{name: "the oldest that reaches a cluster decides there",
			records:   []Record{record("a", 1, to("a"), headless), record("b", 2), record("c", 3)},
			imports:   "a: a b c, b: b c, c: b c, d: b c",
			conflicts: lines("a", headlessClash, "b", `In "a": `+headlessClash, "c", `In "a": `+headlessClash)},
	} {
		var imports, conflicts []string
		for _, id := range []string{"a", "b", "c", "d"} {
			var clusters []string
			if imp := Merge(shop, RecordsFor(tt.records, id, members[id]), Options{}).Import; imp != nil {
				for _, c := range imp.Status.Clusters {
					clusters = append(clusters, c.Cluster)
				}
			}
			imports = append(imports, id+": "+strings.Join(clusters, " "))
		}
		if got := strings.Join(imports, ", "); got != tt.imports {
			t.Errorf("%s: imports = %s, want %s", tt.name, got, tt.imports)
		}
		for _, r := range tt.records {
			if c := Condition(ConflictsOf(shop, r.Cluster, tt.records, members, Options{}), 1); c.Status == "True" {
				conflicts = append(conflicts, r.Cluster+" "+c.Message)
			}
		}
		if got := strings.Join(conflicts, "\n"); got != tt.conflicts {
			t.Errorf("%s: conflicts =\n%s\nwant\n%s", tt.name, got, tt.conflicts)
		}
	}
}

const headlessClash = `Conflicting type. Using "Headless" from oldest service export in "a". 2/3 clusters disagree. [conflict-type]`

func lines(of ...string) string {
	var all []string
	for pair := range slices.Chunk(of, 2) {
		all = append(all, pair[0]+" "+pair[1])
	}
	return strings.Join(all, "\n")
}

// A reason is there once, however many clusters see another conflict of it.
func TestConflictsOfHaveOneReason(t *testing.T) {
	records := []Record{record("a", 1), record("b", 2, ports("https/TCP/443"), to("c")), record("c", 3, to("c"))}
	if got, want := Condition(ConflictsOf(shop, "a", records, members, Options{}), 1).Reason, "PortConflict"; got != want {
		t.Errorf("reason = %s, want %s", got, want)
	}
}

// Any order of the records gives the same conflicts, and those of an export that reaches all clusters among others that
// do are those of the merge.
func TestConflictsOfIsALaw(t *testing.T) {
	for seed := range uint64(300) {
		g := newGenerator(seed)
		records, o := g.records(), g.options()
		var ids []string
		for i := range records {
			if records[i].Spec.ToClusters = nil; seed%2 == 1 && pick(g, true, false) {
				to(pick(g, "a", "b", "c", "d"), pick(g, "a", "b", "c", "d"))(&records[i].Spec)
			}
			ids = append(ids, records[i].Cluster)
		}
		shuffled := slices.Clone(records)
		g.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, id := range ids {
			want := fmt.Sprint(ConflictsOf(shop, id, records, members, o))
			if got := fmt.Sprint(ConflictsOf(shop, id, shuffled, members, o)); got != want {
				t.Fatalf("seed %d: conflicts of %s = %s, in another order %s", seed, id, want, got)
			}
			if merged := fmt.Sprint(Merge(shop, records, o).Conflicts); seed%2 == 0 && want != merged {
				t.Fatalf("seed %d: conflicts of %s = %s, of the merge %s", seed, id, want, merged)
			}
		}
	}
}

// docs/spec/controller.md 3.8: one address in all clusters, whoever sees the export that has it, and one cluster that
// chooses it.
func TestVIPReach(t *testing.T) {
	o := Options{VIP: CIDR, VIPs: VIPs{Pools: pools(), Claims: exporting(1, claims("a 243.0.0.1 1"))}}
	records := []Record{record("a", 1, vip(true), to("b")), record("b", 2, vip(true), to("c")), record("c", 3)}
	for _, id := range []string{"a", "b", "c", "d"} {
		if imp := Merge(shop, RecordsFor(records, id, nil), o).Import; imp == nil ||
			!slices.Equal(imp.Spec.IPs, []string{"243.0.0.1"}) {
			t.Errorf("import in %s = %v, want one with the address that a claims", id, imp)
		}
	}
	wants, not := vip(true), vip(false)
	for _, tt := range []struct {
		name    string
		records []Record
		want    string // who chooses
	}{
		{name: "the oldest", records: []Record{record("a", 1, wants), record("b", 2, wants)}, want: "a"},
		{name: "the oldest wants none", records: []Record{record("a", 1, not), record("b", 2, wants)}},
		{name: "the oldest is Headless", records: []Record{record("a", 1, headless), record("b", 2, wants)}},
		{name: "the oldest reaches few", records: []Record{record("a", 1, wants, to("d")), record("b", 2, wants)}, want: "a"},
		{name: "the oldest reaches its own cluster alone", records: []Record{record("a", 1, wants, to("a")),
			record("b", 2, wants)}, want: "b"},
		{name: "and no member yet", records: []Record{record("a", 1, wants, to("z")), record("b", 2, wants, to("c"))},
			want: "b"},
		{name: "as do all", records: []Record{record("a", 1, wants, to("a")), record("b", 2, wants, to("b"))}, want: "a"},
		{name: "others have no VIP CIDR", records: []Record{record("a", 1, wants, to("a")), record("c", 2, wants)},
			want: "a"},
		{name: "the oldest has no VIP CIDR", records: []Record{record("c", 1, wants), record("a", 2, wants)}, want: "c"},
		{name: "and reaches few", records: []Record{record("c", 1, wants, to("d")), record("a", 2, wants)}, want: "a"},
		{name: "none of its families", records: []Record{record("b", 1, wants, to("d"), families(v6)),
			record("a", 2, wants)}, want: "a"},
		{name: "the oldest reaches few and wants none", records: []Record{record("a", 1, not, to("a")),
			record("b", 2, wants)}, want: "b"},
		{name: "as does a second one", records: []Record{record("a", 1, not, to("a")), record("b", 2, not, to("b")),
			record("c", 3, wants)}, want: "c"},
		{name: "nowhere the oldest", records: []Record{record("a", 1, not), record("b", 2, wants, to("b"))}},
	} {
		var got string
		for _, id := range []string{"a", "b", "c", "d"} {
			if IsAllocator(shop, id, tt.records, members, o) {
				got += id
			}
		}
		if got != tt.want {
			t.Errorf("%s: chosen by %q, want %q", tt.name, got, tt.want)
		}
	}
}

// docs/spec/operations.md 8: each member counts the exports that reach it.
func TestOffered(t *testing.T) {
	got := OfferCounts([]Record{record("a", 1), record("a", 1, to("c", "d")), record("a", 1, to("a")),
		record("a", 1, toTier("gold"))}, members)
	if want := (map[string]int{"a": 4, "b": 2, "c": 2, "d": 2}); !maps.Equal(got, want) {
		t.Errorf("offered = %v, want %v", got, want)
	}
}
