package main

import (
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// The clusterset that the section scale simulates: 10,000 records, 10,000 slices, 100,000 endpoints.
var fullScale = scaleSize{Members: 100, Services: 5_000, Namespaces: 50, Exporters: 2, Endpoints: 10}

const (
	scaleBeat     = 10 * time.Second // the default of the option lease
	scaleIdle     = 30 * time.Second
	scaleRate     = 100 // changes a second
	scaleChanging = 20 * time.Second
	// More changes than these are not under way at once.
	scaleOutstanding = 200
	scaleAway        = 5 * time.Second // the broker at its restart
	// What is still to be written after a restart is written within this time.
	scaleSettle = 10 * time.Second
	scaleAsk    = 10 * time.Millisecond // between two questions at restarts
)

// A scalePart is what one member of a large clusterset takes.
type scalePart struct {
	Size   scaleSize
	Import float64 // from the start of the controller until all imports and slices are there
	Synced float64 // until it has nothing left to do but to write Events

	Phases  []*scalePhase
	Watches map[string]float64 // at the broker, by resource
	Delays  crossResult        // from the broker to DNS
	Memory  []scaleMemory

	BrokerBack     float64 // from when it serves again until a change is in DNS
	ControllerBack float64 // from its start until it has nothing left to do
}

// A scaleMemory is what the two programs take at one moment, in octets.
type scaleMemory struct {
	When         string
	Control      int64
	ControlPeak  int64
	ControlInUse int64 // with garbage that is not collected yet
	DNS          int64
	DNSPeak      int64
	DNSHeap      int64
}

// A scaleRun is one member with a controller and a DNS server in a clusterset of simulated ones.
type scaleRun struct {
	b          *bench
	clusterset *testclusterset.Clusterset
	importer   *testclusterset.Member
	broker     kubernetes.Interface
	others     *simulation
	control    *control
	dns        *server
	held       int // EndpointSlices that the member had before
	part       *scalePart
}

// A scalePhase is what one stretch of time took.
type scalePhase struct {
	What    string
	Seconds float64
	Writes  map[string]float64 // of the controller by API server, kind and verb, but for Leases
	Leases  float64
	// In seconds.
	ControllerCPU float64
	DNSCPU        float64
	BrokerCPU     float64 // of its API server, 0 if that did not last
	// What the broker sent to watches of what members write, by resource. None if its API server did not last.
	Events map[string]float64
	Octets map[string]float64
	// Watches is how many got that, if they were the same all the time. Some are those of the API server itself.
	Watches map[string]float64

	Asked int // hosts in DNS meanwhile
	Wrong int // answers, or none
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
