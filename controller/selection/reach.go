package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// ToClusters returns the selectors of the clusters that an export is to reach, by its annotations; nil if it is to
// reach all (docs/spec/controller.md 3.8). A list of ids stands for selectors with these ids. An error names the bad
// value and the wanted form.
func ToClusters(annotations map[string]string) (Selectors, error) {
	text, given := annotations[broker.AnnotationToClusters]
	if !given {
		return nil, nil
	}
	parse := parseIDs
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		parse = parseTo
	}
	s, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", broker.AnnotationToClusters, err)
	}
	return s, nil
}

// parseTo reads a list of selectors. It must not be empty: in a record that would mean all clusters.
func parseTo(text string) (Selectors, error) {
	s, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if len(s) == 0 {
		return nil, errors.New("an empty list: want a selector, or the id of this cluster to reach no other")
	}
	for _, sel := range s {
		if sel.PropertySelector.usesImporter() {
			return nil, fmt.Errorf(
				"value %s: want one that does not depend on the importing cluster, which is the one that is selected",
				SameAsImporter)
		}
	}
	return s, nil
}

// usesImporter reports whether a value is [SameAsImporter].
func (p PropertySelector) usesImporter() bool {
	for _, v := range p.MatchProperties {
		if v == SameAsImporter {
			return true
		}
	}
	return slices.ContainsFunc(p.MatchExpressions, func(e Expression) bool {
		return slices.Contains(e.Values, SameAsImporter)
	})
}

// parseIDs reads ids with commas between them. An id that no member has is valid: its cluster may join later.
func parseIDs(text string) (Selectors, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%d octets: want at most %d", len(text), MaxText)
	}
	var ids []string
	for id := range strings.SplitSeq(text, ",") {
		if id = strings.TrimSpace(id); !broker.IsClusterID(id) {
			return nil, fmt.Errorf(
				"%.80q: want cluster ids with commas between them, such as east,west, or a JSON list of selectors", id)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > broker.MaxValues {
		return nil, fmt.Errorf("%d clusters: want at most %d", len(ids), broker.MaxValues)
	}
	var s Selectors
	for some := range slices.Chunk(ids, broker.MaxSelectorValues) {
		s = append(s, Selector{PropertySelector{MatchExpressions: []Expression{{about.ClusterIDName, v1alpha1.In, some}}}})
	}
	return s, nil
}

// Reaches reports whether an export of one cluster, with to in its record, reaches another one that has these
// ClusterProperties. Every export reaches its own cluster.
func Reaches(exporter string, to []v1alpha1.ClusterSelector, id string, properties map[string]string) bool {
	return len(to) == 0 || id == exporter ||
		slices.ContainsFunc(FromRecord(to), func(s Selector) bool { return s.PropertySelector.matches(id, properties) })
}
