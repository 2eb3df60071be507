package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A row is one kind of question and how much more than the baseline our server may spend on it.
type row struct {
	name      string
	questions []question
	target    float64           // 0 means none
	without   map[string]string // why a peer, by its name, is left out
	notes     []string          // what a reader has to know
}

// rowPeers are compared on each kind of question. The first is what the others are measured by.
var rowPeers = []peer{baselinePeer, inTreePeer, ourPeer}

// A rowResult is a line of the table of questions.
type rowResult struct {
	Mode     string                `json:"mode"`
	Question string                `json:"question"`
	Rounds   int                   `json:"rounds"`
	Target   float64               `json:"target,omitzero"`
	Peers    map[string]peerResult `json:"peers"` // without those that are left out
	Notes    []string              `json:"notes,omitempty"`
}

// rowsPart has a result for each row of each mode, one mode after the other.
type rowsPart []rowResult

type peerResult struct {
	CPU          summary `json:"cpuMicrosecondsPerQuery"`
	OverBaseline summary `json:"cpuOverBaseline,omitzero"` // zero where the baseline is left out
	QPS          summary `json:"queriesPerSecond"`
	Latency      summary `json:"meanLatencyMicroseconds"`
	P50          summary `json:"p50AtHalfLoadMicroseconds,omitzero"`
	P99          summary `json:"p99AtHalfLoadMicroseconds,omitzero"`
	Octets       float64 `json:"answerOctets"`
}

// Sizes of the zone that the rows ask.
const (
	rowVIPs      = 10_000
	rowHeadless  = 100
	rowEndpoints = 30 // of each headless service
	rowLarge     = 10_000

	// With -full only.
	rowWide = 90 // endpoints of as many headless services again
	// Endpoints whose records, with no name compressed, are less than the 16 KiB that dnsperf 2.10 takes of a message.
	rowWhole = 300
)

// A rowZone is what the rows ask for.
type rowZone struct {
	virtual, small, wide []service
	large, whole         service
}

func (b *bench) newRowZone() rowZone {
	first := 0
	next := func(namespace string, n, endpoints int) []service {
		all := headless(namespace, n, endpoints, first)
		first += n * endpoints
		return all
	}
	z := rowZone{virtual: vips(rowVIPs), small: next("headless", rowHeadless, rowEndpoints)}
	z.large = next("large", 1, rowLarge)[0]
	if b.full {
		z.wide = next("wide", rowHeadless, rowWide)
		z.whole = next("whole", 1, rowWhole)[0]
	}
	return z
}

func (z rowZone) services() []service {
	all := slices.Concat(z.virtual, z.small, z.wide, []service{z.large})
	if z.whole.endpoints > 0 {
		all = append(all, z.whole)
	}
	return all
}

// newRows are asked over UDP.
func newRows(z rowZone) []row {
	large := []service{z.large}
	return []row{
		{name: "VIP A, 10,000 services", questions: askVIP(z.virtual), target: 1.1},
		{name: "SRV of a VIP", questions: askSRV(z.virtual), target: 1.15},
		{name: "NXDOMAIN", questions: askUnknown(z.virtual), target: 1.15},
		{name: "headless A, 30 endpoints", questions: askHeadless(z.small), target: 1.15},
		{name: "one host of 10,000 endpoints", questions: askHosts(large, 1), target: 1.1},
		{
			name: "A of 10,000 endpoints, UDP 512", questions: askTruncated(z.large, false), target: 1.3,
			without: lacks(nsdPeer, noPart),
		},
		{
			name: "A of 10,000 endpoints, UDP 1232", questions: askTruncated(z.large, true), target: 1.3,
			without: lacks(nsdPeer, noPart),
		},
	}
}

// rowsSection measures each kind of question at each peer, in each mode.
func (b *bench) rowsSection(ctx context.Context) (_ part, err error) {
	z := b.newRowZone()
	modes, err := b.modes(ctx, z)
	if err != nil {
		return nil, err
	}
	c, err := b.startCluster(ctx, "rows", z.services())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.writeMaster(); err != nil {
		return nil, err
	}
	var results rowsPart
	for _, m := range modes {
		found, err := b.measureMode(ctx, m, c.source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		results = append(results, found...)
	}
	return results, nil
}

// fewOf returns a few questions of each row: a server that answers them right is ready.
func fewOf(rows []row) []question {
	var few []question
	for _, r := range rows {
		few = append(few, some(r.questions, 2)...)
	}
	return few
}

// result has a note for each peer of the mode that is left out of the row.
func (r row) result(m mode, h heat) rowResult {
	result := rowResult{
		Mode: m.name, Question: r.name, Rounds: m.rounds, Target: r.target,
		Peers: map[string]peerResult{}, Notes: slices.Clone(r.notes),
	}
	baseline := h.of(baselinePeer)
	for _, t := range h {
		got := peerResult{
			CPU: summarize(t.cpu), QPS: summarize(t.qps), Latency: summarize(t.latency),
			P50: summarize(t.p50), P99: summarize(t.p99), Octets: summarize(t.octets).Median,
		}
		if baseline != nil {
			got.OverBaseline = summarize(ratios(t.cpu, baseline.cpu))
		}
		result.Peers[t.server.peer.name] = got
	}
	for _, p := range m.peers() {
		if why, out := r.without[p.name]; out {
			result.Notes = append(result.Notes, why)
		}
	}
	return result
}
