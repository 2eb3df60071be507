package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A metric is one line of a /metrics page.
type metric struct {
	name   string
	labels map[string]string
	value  float64
}

// metrics are all lines, or some.
type metrics []metric

var (
	metricLine  = regexp.MustCompile(`^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$`)
	metricLabel = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// parseMetrics reads the text format of Prometheus. Values of labels stay escaped.
func parseMetrics(text string) (metrics, error) {
	var all metrics
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := metricLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("metric %.80q: want a name, labels in braces and a value", line)
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %.80q: %w", line, err)
		}
		labels := map[string]string{}
		for _, l := range metricLabel.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[2]
		}
		all = append(all, metric{m[1], labels, value})
	}
	return all, nil
}

// named returns the metrics of one name.
func (all metrics) named(name string) metrics {
	var some metrics
	for _, m := range all {
		if m.name == name {
			some = append(some, m)
		}
	}
	return some
}

func (all metrics) sum() float64 {
	sum := 0.0
	for _, m := range all {
		sum += m.value
	}
	return sum
}

// by returns sums by the values of some labels, with blanks between them.
func (all metrics) by(labels ...string) map[string]float64 {
	sums := map[string]float64{}
	for _, m := range all {
		values := make([]string, len(labels))
		for i, l := range labels {
			values[i] = m.labels[l]
		}
		sums[strings.Join(values, " ")] += m.value
	}
	return sums
}

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
