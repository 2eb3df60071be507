package selection

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
)

func parse(t *testing.T, text string) Selectors {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func match(properties string) string {
	return `[{"propertySelector":{"matchProperties":{` + properties + `}}}]`
}

func express(expression string) string {
	return `[{"propertySelector":{"matchExpressions":[{` + expression + `}]}}]`
}

// docs/spec/selection.md 1: malformed selectors; the error has the bad value and the wanted form.
func TestParseRejects(t *testing.T) {
	entry := strings.TrimSuffix(strings.TrimPrefix(match(`"a":"b"`), "["), "]")
	requirement := `"key":"a","operator":"In","values":["b"` + strings.Repeat(`,"b"`, 31) + `]`
	for _, tt := range []struct{ name, text, want string }{
		{"no JSON", `local`, `"local": want a JSON list of selectors`},
		{"null", `null`, `"null": want a JSON list of selectors`},
		{"an object", `{}`, `"{}": want a JSON list of selectors`},
		{"two values", `[] []`, "want one JSON list and nothing after it"},
		{"an unknown field", `[{"podSelector":{}}]`, `unknown field "podSelector"`},
		{"an empty selector", `[{"propertySelector":{}}]`, "selector 1: it is empty: want matchProperties or matchExpressions"},
		{"17 selectors", "[" + strings.Repeat(entry+",", 16) + entry + "]", "17 selectors: want at most 16"},
		{"a key", match(`"Region":"eu"`), `key "Region": want the name of a ClusterProperty`},
		{"no value", match(`"region":""`), `value "" of region: want 1 to 256 characters`},
		{"a long value", match(`"region":"` + strings.Repeat("x", 257) + `"`), "want 1 to 256 characters"},
		{"an operator", express(`"key":"a","operator":"Like","values":["b"]`), `operator "Like": want In, NotIn, Exists or DoesNotExist`},
		{"In nothing", express(`"key":"a","operator":"In"`), `key "a": In with 0 values: want 1 to 32`},
		{"17 requirements", express(strings.Repeat(`"key":"a","operator":"Exists"},{`, 16) + `"key":"a","operator":"Exists"`), "17 requirements: want at most 16"},
		{"513 values", "[" + strings.Trim(express(strings.Repeat(requirement+"},{", 15)+requirement), "[]") + "," +
			strings.TrimPrefix(express(`"key":"a","operator":"In","values":["b"]`), "["), "selectors with 513 values: want at most 512 together"},
		{"Exists with a value", express(`"key":"a","operator":"Exists","values":["b"]`), `key "a": Exists with 1 values: want none`},
		{"a long text", strings.Repeat(" ", MaxText) + "[]", "want at most 8192"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

// docs/spec/selection.md 1: the short forms, and which annotation counts.
func TestOf(t *testing.T) {
	local := match(fmt.Sprintf("%q:%q", about.ClusterIDName, SameAsImporter))
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        string // "" if none is given
		err         string
	}{
		{"none", map[string]string{"a": "b"}, "", ""},
		{"local", map[string]string{"clusterset-dns.io/affinity": "local"}, local, ""},
		{"Cilium", map[string]string{"service.cilium.io/affinity": "local"}, local, ""},
		{"ours before Cilium's", map[string]string{"service.cilium.io/affinity": "remote",
			"clusterset-dns.io/affinity": "local"}, local, ""},
		{"selectors before affinity", map[string]string{"clusterset-dns.io/cluster-selectors": "[]",
			"clusterset-dns.io/affinity": "local"}, "[]", ""},
		{"no preference", map[string]string{"clusterset-dns.io/affinity": "none"}, "[]", ""},
		{"unknown", map[string]string{"clusterset-dns.io/affinity": "near"}, "", `annotation clusterset-dns.io/affinity: affinity "near": want local, region, remote or none`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, given, err := FromAnnotations(tt.annotations)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error = %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || given != (tt.want != "") || given && s.String() != tt.want {
				t.Errorf("selectors = %s, %t, %v; want %s", s, given, err, tt.want)
			}
		})
	}
}

// docs/spec/selection.md 1: what selectors match.
func TestEvaluate(t *testing.T) {
	importer := map[string]string{about.ClusterIDName: "east", about.RegionName: "eu"}
	clusters := map[string]map[string]string{
		"east": {about.RegionName: "eu", "tier": "gold"}, "north": {about.RegionName: "eu"}, "south": {},
		"west": {about.RegionName: "us", about.ClusterIDName: "east"},
	}
	near, _ := Near.Selectors()
	remote, _ := Remote.Selectors()
	for _, tt := range []struct {
		name      string
		selectors Selectors
		want      string
	}{
		{"region, with the clusters of earlier selectors, and no cluster that says it is another", near, `[["east"],["east","north"]]`},
		{"remote", remote, `[["north","south","west"]]`},
		{"a property that the importer lacks", parse(t, express(`"key":"tier","operator":"NotIn","values":["@SameAsImporter@"]`)), `[[]]`},
		{"Exists", parse(t, express(`"key":"tier","operator":"Exists"`)), `[["east"]]`},
		{"DoesNotExist", parse(t, express(`"key":"tier","operator":"DoesNotExist"`)), `[["north","south","west"]]`},
		{"In", parse(t, express(`"key":"region.topology.k8s.io","operator":"In","values":["us","@SameAsImporter@"]`)), `[["east","north","west"]]`},
		{"NotIn, also without the property", parse(t, express(`"key":"region.topology.k8s.io","operator":"NotIn","values":["eu"]`)), `[["south","west"]]`},
		{"none", Selectors{}, `[]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.selectors.Evaluate(clusters, importer)
			if got.String() != tt.want || !reflect.DeepEqual(ParseResults(got.String()), got) {
				t.Errorf("results = %s, want %s", got, tt.want)
			}
		})
	}
}

// The results of any selectors fit into an annotation beside all else, for any number of clusters: if they are too
// long, each cluster is in at most one of them, and clusters beyond a bound are in no result. The ranks of all that fit
// stay the same.
func TestResultsAreBounded(t *testing.T) {
	clusters := make(map[string]map[string]string)
	for i := range 5000 {
		clusters[strings.Repeat("c", 58)+fmt.Sprintf("-%04d", i)] = nil
	}
	clusters["first"] = map[string]string{"tier": "gold"}
	all := express(`"key":"region.topology.k8s.io","operator":"DoesNotExist"`)
	selectors := slices.Concat(parse(t, match(`"tier":"gold"`)), slices.Repeat(parse(t, all), broker.MaxSelectors-1))
	results := selectors.Evaluate(clusters, nil)
	if got := len(results.String()); got > maxResults+100 || got < maxResults-100 {
		t.Errorf("results of %d clusters have %d octets, want %d", len(clusters), got, maxResults)
	}
	if !slices.Equal(results[0], []string{"first"}) || len(results[2]) > 0 {
		t.Errorf("results begin with %q and end with %d clusters, want those of the first selectors", results[0],
			len(results[2]))
	}

	few := make(map[string]map[string]string)
	for i := range 100 {
		few[strings.Repeat("c", 58)+fmt.Sprintf("-%04d", i)] = nil
	}
	few["first"] = map[string]string{"tier": "gold"}
	ids := slices.Sorted(maps.Keys(few))
	two := slices.Concat(parse(t, match(`"tier":"gold"`)), parse(t, all)).Evaluate(few, nil)
	if !slices.Equal(two[0], []string{"first"}) || !slices.Equal(two[1], ids) {
		t.Errorf("results of two selectors = %d and %d clusters, want all matches of both", len(two[0]), len(two[1]))
	}
	sixteen := selectors.Evaluate(few, nil)
	if got, want := sixteen.Ranks(ids), two.Ranks(ids); !reflect.DeepEqual(got[:2], want[:2]) || len(sixteen[2]) > 0 ||
		len(sixteen.String()) > maxResults {
		t.Errorf("16 results of 100 clusters have %d octets and the ranks %q, want %q in %d octets", len(sixteen.String()),
			got[:2], want[:2], maxResults)
	}
}

// docs/spec/selection.md 3: which rank is used after which changes, with a hold of 10 s.
func TestFailover(t *testing.T) {
	ranks := Results{{"east"}, {"east", "north"}, {}}.Ranks([]string{"east", "north", "west"})
	for _, tt := range []struct {
		name  string
		steps string // "<second>: <clusters with an endpoint> -> <rank>[+<seconds to wait>]"
	}{
		{"the first rank", "0: east north west -> 0"},
		{"at once to the next, and further", "0: east north west -> 0; 1: north west -> 1; 2: west -> 3"},
		{"back after the hold", "0: north -> 1; 5: east north -> 1+10; 14: east north -> 1+1; 15: east north -> 0"},
		{"a cluster that flaps",
			"0: north -> 1; 5: east north -> 1+10; 9: north -> 1; 12: east north -> 1+10; 21: east north -> 1+1; 22: east north -> 0"},
		{"back at once if the others are gone", "0: north -> 1; 5: east north -> 1+10; 6: east -> 0"},
		{"one rank after the other",
			"0: west -> 3; 1: north west -> 3+10; 5: east north west -> 3+6; 11: east north west -> 1+4; 15: east north west -> 0"},
		{"nothing anywhere, at last all clusters", "0: -> 4; 1: east -> 0; 2: -> 4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f Failover
			start := time.Unix(1_700_000_000, 0)
			for step := range strings.SplitSeq(tt.steps, "; ") {
				at, rest, _ := strings.Cut(step, ":")
				eligible, want, _ := strings.Cut(rest, "-> ")
				second, err := time.ParseDuration(at + "s")
				if err != nil {
					t.Fatal(err)
				}
				var wait time.Duration
				f, wait = f.Next(ranks, strings.Fields(eligible), start.Add(second), 10*time.Second)
				got := fmt.Sprint(f.Rank())
				if wait > 0 {
					got += fmt.Sprintf("+%d", int(wait.Seconds()))
				}
				if got != want {
					t.Fatalf("step %q: %s", step, got)
				}
			}
		})
	}
}

// docs/spec/selection.md 3: a controller that starts goes on with the shown clusters.
func TestResume(t *testing.T) {
	ranks := Results{{"east"}, {"north"}}.Ranks([]string{"east", "north", "west"})
	for _, tt := range []struct {
		name        string
		shown       []string
		eligible    []string
		used, after int
	}{
		{"the second rank, though the first could be used", []string{"north"}, []string{"east", "north"}, 1, 1},
		{"the first", []string{"east"}, []string{"east", "north"}, 0, 0},
		{"all", []string{"east", "north", "west"}, []string{"west"}, 3, 2},
		{"what no rank is", []string{"east", "west"}, []string{"east", "north"}, 3, 0},
		{"one that is gone, too", []string{"gone", "north"}, []string{"east", "north"}, 1, 1},
		{"nothing but one that is gone", []string{"gone"}, []string{"east", "north"}, -1, 0},
		{"nothing", nil, []string{"north"}, -1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Resume(ranks, tt.shown)
			next, _ := f.Next(ranks, tt.eligible, time.Now(), time.Hour)
			if f.Rank() != tt.used || next.Rank() != tt.after {
				t.Errorf("used = %d, then %d; want %d, then %d", f.Rank(), next.Rank(), tt.used, tt.after)
			}
		})
	}
}

// FuzzParse: no text makes Parse or Evaluate panic; accepted text reads back the same, and its results are clusters
// that exist, sorted.
func FuzzParse(f *testing.F) {
	for _, a := range []Affinity{None, Local, Near, Remote} {
		s, err := a.Selectors()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.String())
	}
	f.Add(express(`"key":"a","operator":"Exists"`))
	clusters := map[string]map[string]string{"east": {"a": "b"}, "west": nil}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if back := FromRecord(s.Record()); back.String() != s.String() {
			t.Errorf("%s is %s after a record", s, back)
		}
		again, err := Parse(s.String())
		if err != nil && len(s.String()) <= MaxText || err == nil && again.String() != s.String() {
			t.Errorf("%s reads back as %s, %v", s, again, err)
		}
		results := s.Evaluate(clusters, map[string]string{about.ClusterIDName: "east"})
		if len(results) != len(s) {
			t.Fatalf("%d results of %d selectors", len(results), len(s))
		}
		for _, r := range results {
			if !slices.IsSorted(r) || len(intersection(r, slices.Collect(maps.Keys(clusters)))) != len(r) {
				t.Errorf("result %q, want clusters in order", r)
			}
		}
	})
}
