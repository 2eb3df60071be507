package selection

import (
	"errors"
	"fmt"

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

// ErrAffinity is the error of an unknown affinity. Every other error of [Of] is that of a malformed list of selectors.
var ErrAffinity = errors.New("want local, region, remote or none")

// Selectors returns what an affinity stands for.
func (a Affinity) Selectors() (Selectors, error) {
	local := same(about.ClusterIDName)
	switch a {
	case None:
		return Selectors{}, nil
	case Local:
		return Selectors{local}, nil
	case Near:
		return Selectors{local, same(about.RegionName)}, nil
	case Remote:
		return Selectors{{PropertySelector{MatchExpressions: []Expression{{about.ClusterIDName, v1alpha1.NotIn,
			[]string{SameAsImporter}}}}}}, nil
	}
	return nil, fmt.Errorf("affinity %.80q: %w", string(a), ErrAffinity)
}

func same(property string) Selector {
	return Selector{PropertySelector{MatchProperties: map[string]string{property: SameAsImporter}}}
}

// Of returns the selectors that annotations ask for, and whether they ask for any. The whole list counts before the
// short forms, ours before that of Cilium.
func Of(annotations map[string]string) (s Selectors, given bool, err error) {
	if text, ok := annotations[broker.AnnotationSelectors]; ok {
		if s, err = Parse(text); err != nil {
			return nil, true, fmt.Errorf("annotation %s: %w", broker.AnnotationSelectors, err)
		}
		return s, true, nil
	}
	for _, key := range []string{broker.AnnotationAffinity, broker.AnnotationCiliumAffinity} {
		if text, ok := annotations[key]; ok {
			if s, err = Affinity(text).Selectors(); err != nil {
				return nil, true, fmt.Errorf("annotation %s: %w", key, err)
			}
			return s, true, nil
		}
	}
	return nil, false, nil
}
