package selection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// clusters have properties by which exports select them.
var clusters = map[string]map[string]string{"east": {"tier": "gold"}, "west": {"tier": "silver"}, "north": nil}

func TestToClusters(t *testing.T) {
	for _, tt := range []struct{ name, text, want, err string }{
		{name: "ids", text: " west, east,west", want: "east west"},
		{name: "one of a cluster that is to come", text: "south,west", want: "west"},
		{name: "one with a dot", text: "a.b", want: ""},
		{name: "a property", text: `[{"propertySelector":{"matchProperties":{"tier":"gold"}}}]`, want: "east"},
		{name: "one of two", text: `[{"propertySelector":{"matchProperties":{"tier":"gold"}}},{"propertySelector":{"matchProperties":{"tier":"silver"}}}]`, want: "east west"},
		{name: "also without the property", text: `[{"propertySelector":{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["gold"]}]}}]`, want: "north west"},
		{name: "the id as a property", text: ` [{"propertySelector":{"matchProperties":{"cluster.clusterset.k8s.io":"west"}}}]`, want: "west"},
		{name: "nothing", text: "", err: `"": want cluster ids`},
		{name: "an empty id", text: "east,,west", err: `"": want cluster ids`},
		{name: "no id", text: "east West", err: `"east West": want cluster ids`},
		{name: "all", text: "*", err: `"*": want cluster ids`},
		{name: "too long", text: strings.Repeat("a", MaxText) + ",b", err: "8194 octets: want at most 8192"},
		{name: "too many", text: strings.Join(ids(broker.MaxValues+1), ","), err: "513 clusters: want at most 512"},
		{name: "no selector", text: "[]", err: "an empty list: want a selector"},
		{name: "an empty selector", text: `[{}]`, err: "selector 1: it is empty"},
		{name: "no JSON", text: `[east]`, err: "want a JSON list of selectors"},
		{name: "the importer", text: `[{"propertySelector":{"matchProperties":{"tier":"@SameAsImporter@"}}}]`, err: "value @SameAsImporter@: want one that does not depend"},
		{name: "the importer in a list", text: `[{"propertySelector":{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["@SameAsImporter@"]}]}}]`, err: "value @SameAsImporter@"},
	} {
		s, err := ToClusters(map[string]string{broker.AnnotationToClusters: tt.text})
		if tt.err != "" {
			if err == nil || s != nil || !strings.Contains(err.Error(), tt.err) ||
				!strings.HasPrefix(err.Error(), "annotation "+broker.AnnotationToClusters) {
				t.Errorf("%s: %v and %v, want no selectors and the error %q", tt.name, s, err, tt.err)
			}
			continue
		}
		if got := reached(s.Record()); err != nil || got != tt.want {
			t.Errorf("%s: reaches %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	if s, err := ToClusters(nil); s != nil || err != nil {
		t.Errorf("without the annotation: %v, %v, want all clusters", s, err)
	}
	if got, want := reached(nil), "east north west"; got != want {
		t.Errorf("without selectors an export reaches %q, want %q", got, want)
	}
}

// Whatever list of ids is accepted fits into a record.
func TestToClustersFits(t *testing.T) {
	long := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%s%03d", strings.Repeat("a", 60), i))
		}
		return all
	}
	for _, all := range [][]string{ids(broker.MaxValues), long(33), long(127), long(128)} {
		s, err := ToClusters(map[string]string{broker.AnnotationToClusters: strings.Join(all, ",")})
		if err == nil {
			err = v1alpha1.ValidateSelectors(s.Record())
		}
		if err != nil || !Reaches("x", s.Record(), all[len(all)-1], nil) || Reaches("x", s.Record(), "east", nil) {
			t.Errorf("%d ids: %v, want them all and no other", len(all), err)
		}
	}
}

func TestReachesOwn(t *testing.T) {
	s, _ := ToClusters(map[string]string{broker.AnnotationToClusters: "west"})
	if !Reaches("east", s.Record(), "east", nil) || Reaches("east", s.Record(), "north", nil) {
		t.Error("an export to another cluster: want it to reach its own cluster, too, and no third one")
	}
}

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("c%d", i))
	}
	return all
}

// reached returns the clusters that an export of another cluster reaches.
func reached(to []v1alpha1.ClusterSelector) string {
	var all []string
	for id, properties := range clusters {
		if Reaches("exporter", to, id, properties) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
