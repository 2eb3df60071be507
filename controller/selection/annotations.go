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

// An Affinity is a short form of [Selectors].
type Affinity string

// The affinities.
const (
	None   Affinity = "none"   // every cluster
	Local  Affinity = "local"  // the importing cluster first
	Near   Affinity = "region" // the importing cluster first, then those of its region
	Remote Affinity = "remote" // all other clusters first
)

// ErrAffinity is the error of an unknown affinity. Every other error of [FromAnnotations] is that of a malformed list
// of selectors.
var ErrAffinity = errors.New("want local, region, remote or none")

// Selectors returns what an affinity stands for.
func (a Affinity) Selectors() (Selectors, error) {
	local := sameAsImporter(about.ClusterIDName)
	switch a {
	case None:
		return Selectors{}, nil
	case Local:
		return Selectors{local}, nil
	case Near:
		return Selectors{local, sameAsImporter(about.RegionName)}, nil
	case Remote:
		return Selectors{byID(v1alpha1.NotIn, SameAsImporter)}, nil
	}
	return nil, fmt.Errorf("affinity %.80q: %w", string(a), ErrAffinity)
}

func byID(operator v1alpha1.PropertyOperator, ids ...string) Selector {
	return Selector{PropertySelector{MatchExpressions: []v1alpha1.PropertyExpression{{
		Key: about.ClusterIDName, Operator: operator, Values: ids,
	}}}}
}

func sameAsImporter(property string) Selector {
	return Selector{PropertySelector{MatchProperties: map[string]string{property: SameAsImporter}}}
}

// FromAnnotations returns the selectors that annotations ask for, and whether they ask for any. The whole list counts
// before the short forms, ours before that of Cilium.
func FromAnnotations(annotations map[string]string) (s Selectors, given bool, err error) {
	for _, key := range []string{broker.AnnotationSelectors, broker.AnnotationAffinity, broker.AnnotationCiliumAffinity} {
		text, ok := annotations[key]
		if !ok {
			continue
		}
		if key == broker.AnnotationSelectors {
			s, err = Parse(text)
		} else {
			s, err = Affinity(text).Selectors()
		}
		if err != nil {
			return nil, true, fmt.Errorf("annotation %s: %w", key, err)
		}
		return s, true, nil
	}
	return nil, false, nil
}

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
		if slices.ContainsFunc(sel.PropertySelector.requirements(), func(e v1alpha1.PropertyExpression) bool {
			return slices.Contains(e.Values, SameAsImporter)
		}) {
			return nil, fmt.Errorf(
				"value %s: want one that does not depend on the importing cluster, which is the one that is selected",
				SameAsImporter)
		}
	}
	return s, nil
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
		s = append(s, byID(v1alpha1.In, some...))
	}
	return s, nil
}
