package v1alpha1

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// ClusterSelector matches the clusters whose ClusterProperties meet all of its requirements: 1 to 16. It is an entry of
// spec.clusterSelectors of KEP-5939. A list of properties, unlike the map there, can bound its keys.
//
// +kubebuilder:validation:XValidation:rule="(has(self.matchProperties) ? self.matchProperties.size() : 0) + (has(self.matchExpressions) ? self.matchExpressions.size() : 0) >= 1",message="want matchProperties or matchExpressions"
// +kubebuilder:validation:XValidation:rule="(has(self.matchProperties) ? self.matchProperties.size() : 0) + (has(self.matchExpressions) ? self.matchExpressions.size() : 0) <= 16",message="want at most 16 requirements"
type ClusterSelector struct {
	// MatchProperties are the values that properties must have, sorted by name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	MatchProperties []Property `json:"matchProperties,omitempty"`

	// MatchExpressions are further requirements.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []PropertyExpression `json:"matchExpressions,omitempty"`
}

// PropertyExpression is a requirement on one ClusterProperty.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="want values with In and NotIn alone"
type PropertyExpression struct {
	// Key is the name of the property: an RFC 1123 subdomain.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Key string `json:"key"`

	Operator PropertyOperator `json:"operator"`

	// Values are those of In and NotIn: 1 to 32.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Values []string `json:"values,omitempty"`
}

// PropertyOperator is how a [PropertyExpression] compares. As in a label selector, NotIn also matches a cluster
// without the property.
//
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
type PropertyOperator string

// The operators. Only In and NotIn have values.
const (
	In           PropertyOperator = "In"
	NotIn        PropertyOperator = "NotIn"
	Exists       PropertyOperator = "Exists"
	DoesNotExist PropertyOperator = "DoesNotExist"
)

// A BoundError is why a list of selectors that is well-formed is too large.
//
// +kubebuilder:object:generate=false
type BoundError struct{ text string }

func (e BoundError) Error() string { return e.text }

// Beyond returns a [BoundError].
func Beyond(format string, args ...any) error { return BoundError{fmt.Sprintf(format, args...)} }

// ValidateSelectors returns why a list of selectors is malformed, or a [BoundError], or nil. The error names the bad
// value and the accepted form.
func ValidateSelectors(list []ClusterSelector) error {
	if len(list) > broker.MaxSelectors {
		return Beyond("%d selectors: want at most %d", len(list), broker.MaxSelectors)
	}
	var size, values int
	for i := range list {
		if err := list[i].validate(); err != nil {
			return fmt.Errorf("selector %d: %w", i+1, err)
		}
		size += list[i].size()
		for _, e := range list[i].MatchExpressions {
			values += len(e.Values)
		}
	}
	if values > broker.MaxValues {
		return Beyond("selectors with %d values: want at most %d together", values, broker.MaxValues)
	}
	if size > broker.MaxSelectorSize {
		return Beyond("selectors of %d characters: want at most %d together", size, broker.MaxSelectorSize)
	}
	return nil
}

func (s *ClusterSelector) validate() error {
	switch n := len(s.MatchProperties) + len(s.MatchExpressions); {
	case n == 0:
		return errors.New("it is empty: want matchProperties or matchExpressions")
	case n > broker.MaxRequirements:
		return Beyond("%d requirements: want at most %d", n, broker.MaxRequirements)
	}
	for i, p := range s.MatchProperties {
		if slices.ContainsFunc(s.MatchProperties[:i], func(q Property) bool { return q.Name == p.Name }) {
			return fmt.Errorf("key %.80q: want it once", p.Name)
		}
		if err := checkRequirement(p.Name, p.Value); err != nil {
			return err
		}
	}
	for i := range s.MatchExpressions {
		if err := s.MatchExpressions[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (e *PropertyExpression) validate() error {
	switch e.Operator {
	case In, NotIn:
		wrong := fmt.Sprintf("key %.80q: %s with %d values: want 1 to %d", e.Key, e.Operator, len(e.Values),
			broker.MaxSelectorValues)
		switch n := len(e.Values); {
		case n == 0:
			return errors.New(wrong)
		case n > broker.MaxSelectorValues:
			return BoundError{wrong}
		}
	case Exists, DoesNotExist:
		if len(e.Values) > 0 {
			return fmt.Errorf("key %.80q: %s with %d values: want none", e.Key, e.Operator, len(e.Values))
		}
	default:
		return fmt.Errorf("operator %.80q: want In, NotIn, Exists or DoesNotExist", e.Operator)
	}
	return checkRequirement(e.Key, e.Values...)
}

// checkRequirement checks the name of a property and values of it.
func checkRequirement(key string, values ...string) error {
	if !broker.IsSubdomain(key) {
		return fmt.Errorf("key %.80q: want the name of a ClusterProperty, such as region.topology.k8s.io", key)
	}
	for _, v := range values {
		if !broker.IsPropertyValue(v) {
			return fmt.Errorf("value %.80q of %s: want 1 to %d characters", v, key, broker.MaxPropertyValue)
		}
	}
	return nil
}

// size is the number of characters of the names and values.
func (s *ClusterSelector) size() (size int) {
	for _, p := range s.MatchProperties {
		size += len(p.Name) + utf8.RuneCountInString(p.Value)
	}
	for _, e := range s.MatchExpressions {
		size += len(e.Key)
		for _, v := range e.Values {
			size += utf8.RuneCountInString(v)
		}
	}
	return size
}
