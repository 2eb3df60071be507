package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A summary is a set of measurements in short.
type summary struct {
	Median float64
	Min    float64
	Max    float64
}

// summarize returns the zero summary of no values.
func summarize(values []float64) summary {
	if len(values) == 0 {
		return summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	median := sorted[mid]
	if len(sorted)%2 == 0 {
		median = (sorted[mid-1] + sorted[mid]) / 2
	}
	return summary{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// spread returns the range in proportion to the median.
func (s summary) spread() float64 {
	if s.Median == 0 {
		return 0
	}
	return (s.Max - s.Min) / s.Median
}

// percentile returns the smallest value that so many percent of the values do not exceed (nearest rank). It panics
// without values.
func percentile[T cmp.Ordered](values []T, percent float64) T {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// spans are many times in short, in milliseconds.
type spans struct {
	Number             int
	P50, P90, P99, Max float64
}

// newSpans panics without times.
func newSpans(all []time.Duration) spans {
	millis := func(percent float64) float64 { return micros(percentile(all, percent)) / 1000 }
	return spans{len(all), millis(50), millis(90), millis(99), millis(100)}
}

// ratios divides pairwise: rounds that ran side by side see the same machine.
func ratios(over, under []float64) []float64 {
	n := min(len(over), len(under))
	r := make([]float64, n)
	for i := range r {
		r[i] = over[i] / under[i]
	}
	return r
}

func (s summary) scale(by float64) summary {
	return summary{Median: s.Median * by, Min: s.Min * by, Max: s.Max * by}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// grown returns by how much each sum grew, where it did.
func grown(before, after map[string]float64) map[string]float64 {
	more := map[string]float64{}
	for key, v := range after {
		if d := v - before[key]; d != 0 {
			more[key] = d
		}
	}
	return more
}
