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

// brokerKinds are the resources that a controller watches at the broker.
var brokerKinds = []string{"exportedservices", "inventories", "endpointslices", "members", "namespaces", "leases"}

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
