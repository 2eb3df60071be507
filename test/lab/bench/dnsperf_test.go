package main

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

const dnsperfReport = `DNS Performance Testing Tool
Version 2.10.0

[Status] Command line: dnsperf -f inet -s 127.0.0.1 -p 15353 -B -d vip.bin -l 3
[Status] Sending queries (to 127.0.0.1:15353)
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         125743
  Queries completed:    125723 (99.98%)
  Queries lost:         12 (0.01%)
  Queries interrupted:  8 (0.01%)

  Response codes:       NOERROR 125720 (99.99%), NXDOMAIN 3 (0.01%)
  Average packet size:  request 50, response 99
  Run time (s):         3.007235
  Queries per second:   41806.189110

  Average Latency (s):  0.002105 (min 0.000012, max 0.086364)
  Latency StdDev (s):   0.001800
`

func TestParseStats(t *testing.T) {
	got, err := parseStats(dnsperfReport)
	if err != nil {
		t.Fatal(err)
	}
	if got.sent != 125743 || got.completed != 125723 || got.lost != 12 {
		t.Errorf("queries %d sent, %d completed, %d lost, want 125743, 125723, 12", got.sent, got.completed, got.lost)
	}
	if want := map[string]int{"NOERROR": 125720, "NXDOMAIN": 3}; !maps.Equal(got.rcodes, want) {
		t.Errorf("rcodes %v, want %v", got.rcodes, want)
	}
	if got.octets != 99 || got.qps != 41806.189110 || got.latency != 2105*time.Microsecond {
		t.Errorf("octets %d, qps %f, latency %s, want 99, 41806.189110, 2.105ms", got.octets, got.qps, got.latency)
	}
}

func TestParseStatsOfOther(t *testing.T) {
	for _, report := range []string{"", "Error: no input", strings.ReplaceAll(dnsperfReport, "per second", "per hour")} {
		if got, err := parseStats(report); err == nil {
			t.Errorf("parseStats(%q) = %v, want an error", report, got)
		}
	}
}

func TestVerify(t *testing.T) {
	tests := []struct {
		name  string
		stats stats
		want  string // "" means right
	}{
		{name: "all right", stats: stats{sent: 1000, completed: 1000, rcodes: map[string]int{"NOERROR": 1000}}},
		{
			name:  "the last ones were not awaited",
			stats: stats{sent: 1000, completed: 900, rcodes: map[string]int{"NOERROR": 900}},
		},
		{
			name: "one answer is another", want: "want parts",
			stats: stats{sent: 1000, completed: 1000, rcodes: map[string]int{"NOERROR": 999, "SERVFAIL": 1}},
		},
		{name: "silence", want: "no answers", stats: stats{sent: 100, lost: 100}},
		{
			name: "lost", want: "2 of 1000 queries without an answer",
			stats: stats{sent: 1000, completed: 998, lost: 2, rcodes: map[string]int{"NOERROR": 998}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.stats.verify(map[string]float64{"NOERROR": 1})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("verify(%+v) = %v, want %q", tt.stats, err, tt.want)
			}
		})
	}
}

const verboseReport = `[Status] Sending queries (to 127.0.0.1:15353)
> NOERROR binary input 0.000843
> NXDOMAIN binary input 0.012000
> T binary input
> I binary input
> NOERROR pod-1.a.b 0.5 1.000001
[Status] Testing complete (time limit)
  Average Latency (s):  0.000140 (min 0.000027, max 0.007644)
`

func TestParseLatencies(t *testing.T) {
	got, err := parseLatencies(verboseReport)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = math.Round(got[i])
	}
	if want := []float64{843, 12_000, 1_000_001}; !slices.Equal(got, want) {
		t.Errorf("latencies = %v, want %v", got, want)
	}
	if got, err := parseLatencies(dnsperfReport); err == nil {
		t.Errorf("latencies of a report without = %v, want an error", got)
	}
}
