package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A row is one kind of question and how much more than the floor our server may spend on it.
type row struct {
	name      string
	questions []question
	target    float64
}

// rowPeers are compared on each kind of question. The first is what the others are measured by.
var rowPeers = []peer{floorPeer, inTreePeer, ourPeer}

// A rowResult is a line of the table of questions.
type rowResult struct {
	Question string                `json:"question"`
	Target   float64               `json:"target"`
	Peers    map[string]peerResult `json:"peers"`
}

// rowsPart has a result for each row.
type rowsPart []rowResult

type peerResult struct {
	CPU       summary `json:"cpuMicrosecondsPerQuery"`
	OverFloor summary `json:"cpuOverFloor"`
	QPS       summary `json:"queriesPerSecond"`
	Latency   summary `json:"meanLatencyMicroseconds"`
	Octets    float64 `json:"answerOctets"`
}

// Sizes of the zone that the rows ask.
const (
	rowVIPs      = 10_000
	rowHeadless  = 100
	rowEndpoints = 30 // of each headless service
	rowLarge     = 10_000
)

func rowServices() (virtual, small []service, large service) {
	virtual = vips(rowVIPs)
	small = headless("headless", rowHeadless, rowEndpoints, 0)
	large = headless("large", 1, rowLarge, rowHeadless*rowEndpoints)[0]
	return virtual, small, large
}

func newRows(virtual, small []service, large service) []row {
	return []row{
		{"VIP A, 10,000 services", askVIP(virtual), 1.1},
		{"SRV of a VIP", askSRV(virtual), 1.15},
		{"NXDOMAIN", askUnknown(virtual), 1.15},
		{"headless A, 30 endpoints", askHeadless(small), 1.15},
		{"one host of 10,000 endpoints", askHosts([]service{large}, 1), 1.1},
		{"A of 10,000 endpoints, UDP 512", askTruncated(large, false), 1.3},
		{"A of 10,000 endpoints, UDP 1232", askTruncated(large, true), 1.3},
	}
}

// rowsSection measures each kind of question at each peer.
func (b *bench) rowsSection(ctx context.Context) (_ part, err error) {
	virtual, small, large := rowServices()
	all := slices.Concat(virtual, small, []service{large})
	c, err := b.startCluster(ctx, "rows", all)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.writeMaster(); err != nil {
		return nil, err
	}
	rows := newRows(virtual, small, large)
	servers, stop, err := b.startServers(ctx, "rows", rowPeers, c.source, fewOf(rows))
	defer stop()
	if err != nil {
		return nil, err
	}
	heats := make([]heat, len(rows))
	for i, r := range rows {
		if heats[i], err = b.newHeat(ctx, r.name, r.questions, servers); err != nil {
			return nil, err
		}
	}
	if err := b.run(ctx, "rows", heats); err != nil {
		return nil, err
	}
	results := make(rowsPart, len(rows))
	for i, r := range rows {
		results[i] = r.result(heats[i])
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

func (r row) result(h heat) rowResult {
	result := rowResult{Question: r.name, Target: r.target, Peers: map[string]peerResult{}}
	for _, t := range h {
		result.Peers[t.server.peer.name] = peerResult{
			CPU: summarize(t.cpu), OverFloor: summarize(ratios(t.cpu, h.of(floorPeer).cpu)),
			QPS: summarize(t.qps), Latency: summarize(t.latency), Octets: summarize(t.octets).Median,
		}
	}
	return result
}

func (rows rowsPart) markdown() string {
	return heading("CPU time of the server per query", rowsTable(rows)) + "\n" +
		heading("Throughput, mean latency, answer size", throughputTable(rows))
}

func (rows rowsPart) goals() []goal {
	var all []goal
	for _, r := range rows {
		all = append(all, r.goal())
	}
	return all
}

func (r rowResult) goal() goal {
	return newGoal(r.Question+": CPU over floor", r.Peers[ourPeer.name].OverFloor.Median, r.Target)
}

func rowsTable(rows []rowResult) string {
	head := []string{"question"}
	for _, p := range rowPeers {
		head = append(head, p.name+", µs")
	}
	for _, p := range rowPeers[1:] {
		head = append(head, p.name+" / floor")
	}
	lines := [][]string{append(head, "target")}
	for _, r := range rows {
		line := []string{r.Question}
		for _, p := range rowPeers {
			line = append(line, figure("%.1f", r.Peers[p.name].CPU))
		}
		for _, p := range rowPeers[1:] {
			line = append(line, figure("%.2f", r.Peers[p.name].OverFloor))
		}
		lines = append(lines, append(line, r.goal().cell("%.2f")))
	}
	return table(lines)
}

func throughputTable(rows []rowResult) string {
	lines := [][]string{{"question", "peer", "queries/s", "latency, µs", "octets"}}
	for _, r := range rows {
		for _, p := range rowPeers {
			got := r.Peers[p.name]
			lines = append(lines, []string{
				r.Question, p.name, figure("%.0f", got.QPS), figure("%.0f", got.Latency), fmt.Sprintf("%.0f", got.Octets),
			})
		}
	}
	return table(lines)
}
