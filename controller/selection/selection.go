// Package selection decides which clusters the traffic of an imported service goes to (docs/spec/selection.md).
//
//	annotations ──▶ Of ──▶ Selectors ──▶ Evaluate ──▶ Results ──▶ Ranks ──▶ Failover.Next ──▶ the clusters in use
//	                          ClusterProperties ──▲                endpoints, clock ──▲
//
// Selectors are an ordered list of preferences over the ClusterProperties of the exporting clusters (KEP-5939). Results
// have one list of clusters for each selector; they do not depend on endpoints. A Failover takes the first rank of them
// with an endpoint, at once when the rank in use has none left, and after a time when an earlier one has come back.
//
// The package is pure: the clock is a parameter, and no result depends on the order of a map.
package selection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

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
	MatchProperties  map[string]string `json:"matchProperties,omitempty"`
	MatchExpressions []Expression      `json:"matchExpressions,omitempty"`
}

// An Expression is a requirement on one ClusterProperty. As in a label selector, NotIn also matches a cluster without
// it.
type Expression struct {
	Key      string                    `json:"key"`
	Operator v1alpha1.PropertyOperator `json:"operator"`
	Values   []string                  `json:"values,omitempty"`
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
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
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
func (s Selectors) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("selection: selectors are no JSON: " + err.Error())
	}
	return string(text)
}

// Record returns the list as an export record has it.
func (s Selectors) Record() []v1alpha1.ClusterSelector {
	var list []v1alpha1.ClusterSelector
	for _, sel := range s {
		entry := v1alpha1.ClusterSelector{}
		for _, name := range slices.Sorted(maps.Keys(sel.PropertySelector.MatchProperties)) {
			entry.MatchProperties = append(entry.MatchProperties,
				v1alpha1.Property{Name: name, Value: sel.PropertySelector.MatchProperties[name]})
		}
		for _, e := range sel.PropertySelector.MatchExpressions {
			entry.MatchExpressions = append(entry.MatchExpressions, v1alpha1.PropertyExpression{
				Key: e.Key, Operator: e.Operator, Values: slices.Clone(e.Values),
			})
		}
		list = append(list, entry)
	}
	return list
}

// FromRecord returns the selectors of an export record that is valid.
func FromRecord(list []v1alpha1.ClusterSelector) Selectors {
	s := make(Selectors, len(list))
	for i, entry := range list {
		to := &s[i].PropertySelector
		for _, p := range entry.MatchProperties {
			if to.MatchProperties == nil {
				to.MatchProperties = make(map[string]string, len(entry.MatchProperties))
			}
			to.MatchProperties[p.Name] = p.Value
		}
		for _, e := range entry.MatchExpressions {
			to.MatchExpressions = append(to.MatchExpressions, Expression{e.Key, e.Operator, slices.Clone(e.Values)})
		}
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
		resolved, ok := sel.PropertySelector.resolve(importer)
		if !ok {
			continue
		}
		for _, id := range ids {
			if resolved.matches(id, clusters[id]) {
				results[i] = append(results[i], id)
			}
		}
	}
	return results.bounded()
}

// bounded returns results that fit into an annotation. If they are too long, each cluster stays in the first result
// that has it, which makes the same ranks; of these, clusters beyond [maxResults] are in no result.
func (r Results) bounded() Results {
	if r.size() <= maxResults {
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
			if size += sizeOf(id); size <= maxResults {
				bounded[i] = append(bounded[i], id)
			}
		}
	}
	return bounded
}

// size is that of the text but for the brackets, in octets.
func (r Results) size() (octets int) {
	for _, result := range r {
		for _, id := range result {
			octets += sizeOf(id)
		}
	}
	return octets
}

func sizeOf(id string) int { return len(id) + len(`"",`) }

// resolve replaces [SameAsImporter]. It reports false if the importer does not have a property that is asked for.
func (p PropertySelector) resolve(importer map[string]string) (PropertySelector, bool) {
	ok := true
	value := func(key, v string) string {
		if v != SameAsImporter {
			return v
		}
		own, found := importer[key]
		ok = ok && found
		return own
	}
	resolved := PropertySelector{MatchProperties: make(map[string]string, len(p.MatchProperties))}
	for key, v := range p.MatchProperties {
		resolved.MatchProperties[key] = value(key, v)
	}
	for _, e := range p.MatchExpressions {
		values := make([]string, len(e.Values))
		for i, v := range e.Values {
			values[i] = value(e.Key, v)
		}
		resolved.MatchExpressions = append(resolved.MatchExpressions, Expression{e.Key, e.Operator, values})
	}
	return resolved, ok
}

func (p PropertySelector) matches(id string, properties map[string]string) bool {
	get := func(key string) (string, bool) {
		if key == about.ClusterIDName {
			return id, true
		}
		v, ok := properties[key]
		return v, ok
	}
	for key, want := range p.MatchProperties {
		if v, ok := get(key); !ok || v != want {
			return false
		}
	}
	return !slices.ContainsFunc(p.MatchExpressions, func(e Expression) bool { return !e.matches(get(e.Key)) })
}

func (e Expression) matches(value string, found bool) bool {
	switch e.Operator {
	case v1alpha1.In:
		return found && slices.Contains(e.Values, value)
	case v1alpha1.NotIn:
		return !found || !slices.Contains(e.Values, value)
	case v1alpha1.Exists:
		return found
	}
	return !found
}

// String is the JSON of the results.
func (r Results) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic("selection: results are no JSON: " + err.Error())
	}
	return string(text)
}

// ParseResults reads the text of [Results.String]; nil if it is invalid.
func ParseResults(text string) Results {
	var r Results
	if !utf8.ValidString(text) || json.Unmarshal([]byte(text), &r) != nil || len(r) > broker.MaxSelectors {
		return nil
	}
	return r
}
