// Package series reads in tests and tools what a program counts: the time series of Prometheus.
package series

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// Controller begins the names of the metrics of the controller.
const Controller = "coredns_clusterset_controller_"

// A Series is one time series with its value.
type Series struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// A Set is all time series of a program, or some of them.
type Set []Series

// Gather returns the time series of a registry: counters and gauges, and the counts of histograms under the name that
// they have in the text format, NAME_count.
func Gather(metrics prometheus.Gatherer) (Set, error) {
	families, err := metrics.Gather()
	if err != nil {
		return nil, err
	}
	var all Set
	for _, f := range families {
		for _, m := range f.GetMetric() {
			s := Series{Name: f.GetName(), Labels: map[string]string{},
				Value: m.GetCounter().GetValue() + m.GetGauge().GetValue()}
			if h := m.GetHistogram(); h != nil {
				s.Name, s.Value = s.Name+"_count", float64(h.GetSampleCount())
			}
			for _, l := range m.GetLabel() {
				s.Labels[l.GetName()] = l.GetValue()
			}
			all = append(all, s)
		}
	}
	return all, nil
}

var (
	line  = regexp.MustCompile(`^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$`)
	label = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// OfAPIServer returns the time series of an API server.
func OfAPIServer(ctx context.Context, server *rest.Config) (Set, error) {
	client, err := rest.HTTPClientFor(server)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.Host+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	return Parse(string(text))
}

// Parse reads the text format of a page /metrics. Values of labels stay escaped.
func Parse(text string) (Set, error) {
	var all Set
	for text := range strings.Lines(text) {
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		m := line.FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("metric %.80q: want a name, labels in braces and a value", text)
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %.80q: %w", text, err)
		}
		s := Series{Name: m[1], Labels: map[string]string{}, Value: value}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			s.Labels[l[1]] = l[2]
		}
		all = append(all, s)
	}
	return all, nil
}

// Named returns the time series of one metric.
func (all Set) Named(name string) Set {
	return all.which(func(s Series) bool { return s.Name == name })
}

// With returns the time series of which a label has one of these values.
func (all Set) With(label string, values ...string) Set {
	return all.which(func(s Series) bool { return slices.Contains(values, s.Labels[label]) })
}

// Of returns the time series of which any label has the value; all for "".
func (all Set) Of(value string) Set {
	return all.which(func(s Series) bool {
		return value == "" || slices.Contains(slices.Collect(maps.Values(s.Labels)), value)
	})
}

func (all Set) which(is func(Series) bool) Set {
	var some Set
	for _, s := range all {
		if is(s) {
			some = append(some, s)
		}
	}
	return some
}

// Sum adds the values up.
func (all Set) Sum() float64 {
	sum := 0.0
	for _, s := range all {
		sum += s.Value
	}
	return sum
}

// By returns sums by the values of some labels, with blanks between them: "local EndpointSlice patch".
func (all Set) By(labels ...string) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range all {
		values := make([]string, len(labels))
		for i, l := range labels {
			values[i] = s.Labels[l]
		}
		sums[strings.Join(values, " ")] += s.Value
	}
	return sums
}
