package main

import "testing"

func TestHalfRate(t *testing.T) {
	for _, tt := range []struct {
		qps  float64
		want int
	}{{1.5, 1}, {61, 30}, {30_000, 15_000}, {90_000, halfLoadMost}} {
		if got := halfRate(tt.qps); got != tt.want {
			t.Errorf("halfRate(%v) = %d, want %d", tt.qps, got, tt.want)
		}
	}
}
