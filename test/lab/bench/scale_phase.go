package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/series"
)

// A scalePhase is what one stretch of time took.
type scalePhase struct {
	What    string             `json:"what"`
	Seconds float64            `json:"seconds"`
	Writes  map[string]float64 `json:"writes"` // of the controller by API server, kind and verb, but for Leases
	Leases  float64            `json:"leaseWrites"`
	// In seconds.
	ControllerCPU float64 `json:"controllerCPU"`
	DNSCPU        float64 `json:"dnsCPU"`
	BrokerCPU     float64 `json:"brokerCPU,omitempty"` // of its API server, 0 if that did not last
	// What the broker sent to watches of what members write, by resource. None if its API server did not last.
	Events map[string]float64 `json:"watchEvents,omitempty"`
	Octets map[string]float64 `json:"watchOctets,omitempty"`
	// Watches is how many got that, if they were the same all the time. Some are those of the API server itself.
	Watches map[string]float64 `json:"watches,omitempty"`

	Asked int `json:"asked,omitempty"` // hosts in DNS meanwhile
	Wrong int `json:"wrong,omitempty"` // answers, or none
}

func (p *scalePhase) written() float64 { return total(p.Writes) }

func total(by map[string]float64) float64 {
	sum := 0.0
	for _, n := range by {
		sum += n
	}
	return sum
}

// A scaleLook is the counters at one moment.
type scaleLook struct {
	at              time.Time
	writes          map[string]float64
	leases          float64
	control, dns    time.Duration // CPU
	broker          float64       // CPU, s
	events, octets  map[string]float64
	watches         map[string]float64
	brokerProcessAt float64 // when the API server of the broker started; counters of two do not compare
}

// brokerKinds are the resources that a controller watches at the broker.
var brokerKinds = []string{"exportedservices", "endpointslices", "members", "namespaces", "leases"}

// look reads all counters. While no controller runs, its are 0.
func (s *scaleRun) look(ctx context.Context) (l scaleLook, err error) {
	l.at = time.Now()
	if s.control.process != nil {
		m, err := s.control.scrape(ctx)
		if err != nil {
			return l, err
		}
		l.writes, l.leases = writes(m)
		if l.control, err = cpuTime(s.control.process.Pid()); err != nil {
			return l, err
		}
	}
	if l.dns, err = s.dns.cpuTime(); err != nil {
		return l, err
	}
	text, err := s.broker.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return l, fmt.Errorf("metrics of the broker: %w", err)
	}
	m, err := series.Parse(string(text))
	if err != nil {
		return l, fmt.Errorf("metrics of the broker: %w", err)
	}
	l.broker, l.brokerProcessAt = m.Named("process_cpu_seconds_total").Sum(), m.Named("process_start_time_seconds").Sum()
	l.events = ofBrokerKinds(m.Named("apiserver_watch_events_total").By("resource"))
	l.octets = ofBrokerKinds(m.Named("apiserver_watch_events_sizes_sum").By("resource"))
	l.watches = ofBrokerKinds(watchesOf(m).By("resource"))
	return l, nil
}

// watchesOf returns the metrics that count watches.
func watchesOf(all series.Set) series.Set {
	return all.Named("apiserver_longrunning_requests").With("verb", "WATCH")
}

func ofBrokerKinds(by map[string]float64) map[string]float64 {
	maps.DeleteFunc(by, func(resource string, _ float64) bool { return !slices.Contains(brokerKinds, resource) })
	return by
}

// phase returns what happened between two looks.
func phase(what string, before, after scaleLook) *scalePhase {
	p := &scalePhase{
		What: what, Seconds: after.at.Sub(before.at).Seconds(),
		Writes: grown(before.writes, after.writes), Leases: after.leases - before.leases,
		ControllerCPU: (after.control - before.control).Seconds(), DNSCPU: (after.dns - before.dns).Seconds(),
	}
	if before.brokerProcessAt == after.brokerProcessAt {
		p.BrokerCPU = after.broker - before.broker
		p.Events, p.Octets = grown(before.events, after.events), grown(before.octets, after.octets)
	}
	return p
}

// counts shows sums by name, "3 leases, 2 members"; the text names what has none.
func counts(by map[string]float64, none string) string {
	if len(by) == 0 {
		return none
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%.0f %s", by[key], key))
	}
	return strings.Join(parts, ", ")
}
