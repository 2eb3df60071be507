package main

import (
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   summary
		spread float64
	}{
		{name: "nothing"},
		{name: "one", values: []float64{3}, want: summary{3, 3, 3}},
		{name: "odd number", values: []float64{9, 1, 4}, want: summary{4, 1, 9}, spread: 2},
		{name: "even number: the mean of the middle two", values: []float64{8, 1, 3, 5}, want: summary{4, 1, 8},
			spread: 7. / 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := slices.Clone(tt.values)
			got := summarize(tt.values)
			if got != tt.want || got.spread() != tt.spread {
				t.Errorf("summarize(%v) = %v, spread %v, want %v, %v", tt.values, got, got.spread(), tt.want, tt.spread)
			}
			if !slices.Equal(in, tt.values) {
				t.Errorf("summarize changed its input to %v", tt.values)
			}
		})
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	tests := []struct {
		name    string
		values  []int
		percent float64
		want    int
	}{
		{name: "median of 1..100", values: hundred, percent: 50, want: 50},
		{name: "p99 of 1..100", values: hundred, percent: 99, want: 99},
		{name: "most", values: hundred, percent: 100, want: 100},
		{name: "least", values: hundred, percent: 0, want: 1},
		{name: "one value", values: []int{7}, percent: 99, want: 7},
		{name: "p50 of three", values: []int{3, 1, 2}, percent: 50, want: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentile(tt.values, tt.percent); got != tt.want {
				t.Errorf("percentile(%v, %v) = %d, want %d", tt.values, tt.percent, got, tt.want)
			}
		})
	}
}
