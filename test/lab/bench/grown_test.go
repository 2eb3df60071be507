package main

import (
	"maps"
	"testing"
)

func TestGrown(t *testing.T) {
	before, after := map[string]float64{"a": 1, "b": 2}, map[string]float64{"a": 1, "b": 5, "c": 4}
	if got, want := grown(before, after), map[string]float64{"b": 3, "c": 4}; !maps.Equal(got, want) {
		t.Errorf("grown(%v, %v) = %v, want %v", before, after, got, want)
	}
}
