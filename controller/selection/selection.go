// Package selection decides which clusters the traffic of an imported service goes to (docs/spec/selection.md).
//
//	annotations ──▶ FromAnnotations ──▶ Selectors ──▶ Evaluate ──▶ Results ──▶ Ranks ──▶ Failover.Next ──▶ clusters in use
//	                                       ClusterProperties ──▲                endpoints, clock ──▲
//
// Selectors are an ordered list of preferences over the ClusterProperties of the exporting clusters (KEP-5939). Results
// have one list of clusters for each selector; they do not depend on endpoints. A Failover takes the first rank of them
// with an endpoint, at once when the rank in use has none left, and after a time when an earlier one has come back.
//
// The package is pure: the clock is a parameter, and no result depends on the order of a map.
package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// SameAsImporter as a value stands for the importing cluster's own value of the key. A cluster without one makes the
// selector match no cluster.
const SameAsImporter = "@SameAsImporter@"

// MaxText bounds the JSON text of a list of selectors, in octets. So a list that has been read fits into a record.
const MaxText = broker.MaxSelectorSize

// maxResults bounds the JSON text of results, but for the brackets, in octets: about 1,000 clusters with the longest
// ids. It is one of the annotations of an import, which have at most 256 KiB together.
const maxResults = 64 << 10

// A Selector matches the clusters that meet all of its requirements.
type Selector struct {
	PropertySelector PropertySelector `json:"propertySelector"`
}

// A PropertySelector has the requirements of a [Selector]; at least one.
type PropertySelector struct {
	MatchProperties  map[string]string             `json:"matchProperties,omitempty"`
	MatchExpressions []v1alpha1.PropertyExpression `json:"matchExpressions,omitempty"`
}

// Selectors are preferences in their order. All clusters follow after the last. An empty list has no preference.
type Selectors []Selector

// Parse reads a list of selectors, the JSON of spec.clusterSelectors of KEP-5939. The error names the bad value and the
// wanted form.
func Parse(text string) (Selectors, error) {
	if len(text) > MaxText {
		return nil, v1alpha1.Beyond("%d octets: want at most %d", len(text), MaxText)
	}
	var s Selectors
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("%.80q: want a JSON list of selectors: %w", text, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%.80q: want one JSON list and nothing after it", text)
	}
	if s == nil {
		return nil, fmt.Errorf("%.80q: want a JSON list of selectors", text)
	}
	if err := v1alpha1.ValidateSelectors(s.Record()); err != nil {
		return nil, err
	}
	return s, nil
}

// String is the JSON of the list. Lists that mean the same in other words have different texts.
func (s Selectors) String() string { return encode(s) }

// Record returns the list as an export record has it. It shares memory with s.
func (s Selectors) Record() []v1alpha1.ClusterSelector {
	var list []v1alpha1.ClusterSelector
	for _, sel := range s {
		entry := v1alpha1.ClusterSelector{MatchExpressions: sel.PropertySelector.MatchExpressions}
		for _, name := range slices.Sorted(maps.Keys(sel.PropertySelector.MatchProperties)) {
			entry.MatchProperties = append(entry.MatchProperties,
				v1alpha1.Property{Name: name, Value: sel.PropertySelector.MatchProperties[name]})
		}
		list = append(list, entry)
	}
	return list
}

// FromRecord returns the selectors of an export record that is valid. It shares memory with list.
func FromRecord(list []v1alpha1.ClusterSelector) Selectors {
	s := make(Selectors, len(list))
	for i, entry := range list {
		properties := make(map[string]string, len(entry.MatchProperties))
		for _, p := range entry.MatchProperties {
			properties[p.Name] = p.Value
		}
		s[i].PropertySelector = PropertySelector{properties, entry.MatchExpressions}
	}
	return s
}

// Results are the clusters that each selector matches, sorted, in the order of the selectors. They fit into an
// annotation: see [Results.bounded].
type Results [][]string

// Evaluate returns what the selectors match. clusters has the ClusterProperties of each exporting cluster by its id,
// importer those of the importing one. Whatever its properties say, a cluster has its own id.
func (s Selectors) Evaluate(clusters map[string]map[string]string, importer map[string]string) Results {
	results := make(Results, len(s))
	ids := slices.Sorted(maps.Keys(clusters))
	for i, sel := range s {
		results[i] = []string{}
		requirements := sel.PropertySelector.requirements()
		if !resolve(requirements, importer) {
			continue
		}
		for _, id := range ids {
			if matchAll(requirements, id, clusters[id]) {
				results[i] = append(results[i], id)
			}
		}
	}
	return results.bounded()
}

// bounded returns results that fit into an annotation. If they are too long, each cluster stays in the first result
// that has it, which makes the same ranks; of these, clusters beyond [maxResults] are in no result.
func (r Results) bounded() Results {
	if len(r.String()) <= maxResults {
		return r
	}
	bounded := make(Results, len(r))
	seen := make(map[string]bool)
	var size int
	for i, result := range r {
		bounded[i] = []string{}
		for _, id := range result {
			if seen[id] {
				continue
			}
			seen[id] = true
			if size += len(id) + len(`"",`); size <= maxResults {
				bounded[i] = append(bounded[i], id)
			}
		}
	}
	return bounded
}

// requirements returns all requirements as expressions.
func (p PropertySelector) requirements() (all []v1alpha1.PropertyExpression) {
	for key, v := range p.MatchProperties {
		all = append(all, v1alpha1.PropertyExpression{Key: key, Operator: v1alpha1.In, Values: []string{v}})
	}
	return append(all, p.MatchExpressions...)
}

// resolve replaces [SameAsImporter]. It reports false if the importer does not have a property that is asked for.
func resolve(requirements []v1alpha1.PropertyExpression, importer map[string]string) bool {
	ok := true
	for i := range requirements {
		e := &requirements[i]
		e.Values = slices.Clone(e.Values)
		for j, v := range e.Values {
			if v == SameAsImporter {
				own, found := importer[e.Key]
				e.Values[j], ok = own, ok && found
			}
		}
	}
	return ok
}

// matchAll reports whether a cluster meets all requirements. As in a label selector, NotIn also matches a cluster
// without the property.
func matchAll(requirements []v1alpha1.PropertyExpression, id string, properties map[string]string) bool {
	return !slices.ContainsFunc(requirements, func(e v1alpha1.PropertyExpression) bool {
		value, found := properties[e.Key]
		if e.Key == about.ClusterIDName {
			value, found = id, true
		}
		switch e.Operator {
		case v1alpha1.In:
			return !found || !slices.Contains(e.Values, value)
		case v1alpha1.NotIn:
			return found && slices.Contains(e.Values, value)
		case v1alpha1.Exists:
			return !found
		}
		return found
	})
}

// String is the JSON of the results.
func (r Results) String() string { return encode(r) }

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("selection: a value is no JSON: " + err.Error())
	}
	return string(text)
}

// ParseResults reads the text of [Results.String]; nil if it is invalid.
func ParseResults(text string) Results {
	var r Results
	if json.Unmarshal([]byte(text), &r) != nil || len(r) > broker.MaxSelectors {
		return nil
	}
	return r
}

// Reaches reports whether an export of one cluster, with to in its record, reaches another one that has these
// ClusterProperties. Every export reaches its own cluster.
func Reaches(exporter string, to []v1alpha1.ClusterSelector, id string, properties map[string]string) bool {
	return len(to) == 0 || id == exporter ||
		slices.ContainsFunc(FromRecord(to), func(s Selector) bool {
			return matchAll(s.PropertySelector.requirements(), id, properties)
		})
}
