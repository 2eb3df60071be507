package broker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of [Weights]. A cluster that is not named has the weight 1.
const (
	MaxWeight     = 1000
	MaxWeights    = 100     // clusters that are named
	maxWeightText = 8 << 10 // octets
)

// Weights are the shares of clusters in the answers of DNS, by cluster ID.
type Weights map[string]uint16

// ParseWeights reads the value of [AnnotationWeights]: "east=3,west=1"; "" names no cluster. The error names the bad
// value and the wanted form.
func ParseWeights(text string) (Weights, error) {
	if len(text) > maxWeightText {
		return nil, fmt.Errorf("weights of %d octets: want at most %d", len(text), maxWeightText)
	}
	w := Weights{}
	if strings.TrimSpace(text) == "" {
		return w, nil
	}
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		id, number, _ := strings.Cut(entry, "=")
		n, err := strconv.ParseUint(number, 10, 16)
		switch _, twice := w[id]; {
		case !IsClusterID(id) || err != nil || n < 1 || n > MaxWeight:
			return nil, fmt.Errorf("weight %.80q: want CLUSTER=1 to CLUSTER=%d", entry, MaxWeight)
		case twice:
			return nil, fmt.Errorf("weight %.80q: want each cluster once", entry)
		case len(w) == MaxWeights:
			return nil, fmt.Errorf("weight %.80q: want at most %d clusters", entry, MaxWeights)
		}
		w[id] = uint16(n)
	}
	return w, nil
}

// String is the text of the weights, the same for the same weights.
func (w Weights) String() string {
	var b strings.Builder
	for i, id := range slices.Sorted(maps.Keys(w)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%d", id, w[id])
	}
	return b.String()
}
