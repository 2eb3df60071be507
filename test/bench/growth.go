package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Sizes of the zones whose questions should cost the same. Both are asked for as many names.
const (
	growthVIPs      = 1_000
	growthEndpoints = 1_000 // of each headless service
	growthSmall     = 1     // headless services
	growthLarge     = 1_000

	targetGrowth = 1.1
)

var growthPeers = []peer{inTreePeer, ourPeer}

// A growthResult is what a question costs in a large zone, compared with a small one.
type growthResult struct {
	Question string  `json:"question"`
	Peer     string  `json:"peer"`
	Small    summary `json:"cpuMicrosecondsSmall"`
	Large    summary `json:"cpuMicrosecondsLarge"`
	Growth   summary `json:"largeOverSmall"`
}

// growthPart has a result for each question and peer.
type growthPart []growthResult

// growthSection asks zones of 1,000 and of 1,000,000 endpoints in turn.
func (b *bench) growthSection(ctx context.Context) (_ part, err error) {
	sizes := []int{growthSmall, growthLarge}
	rows := make([][]row, len(sizes))
	servers := make([][]*server, len(sizes))
	for i, n := range sizes {
		virtual, many := vips(growthVIPs), headless("headless", n, growthEndpoints, 0)
		c, err := b.startCluster(ctx, fmt.Sprintf("growth-%d", n*growthEndpoints), slices.Concat(virtual, many))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, c.stop()) }()
		rows[i] = []row{
			{name: "VIP A", questions: askVIP(virtual)},
			{name: "one host", questions: askHosts(many, n)},
		}
		var stop func()
		servers[i], stop, err = b.startServers(ctx, "growth", growthPeers, c.source, fewOf(rows[i]))
		defer stop()
		if err != nil {
			return nil, err
		}
	}
	return b.compareGrowth(ctx, rows, servers)
}

// compareGrowth takes the rows and the servers of the small and of the large zone.
func (b *bench) compareGrowth(ctx context.Context, rows [][]row, servers [][]*server) (growthPart, error) {
	var heats []heat
	var results growthPart
	for r := range rows[0] {
		for p, peer := range growthPeers {
			var pair heat
			for size := range rows {
				row := rows[size][r]
				h, err := b.newHeat(ctx, row.name+", "+peer.name, row.questions, servers[size][p:p+1])
				if err != nil {
					return nil, err
				}
				pair = append(pair, h...)
			}
			heats = append(heats, pair)
			results = append(results, growthResult{Question: rows[0][r].name, Peer: peer.name})
		}
	}
	if err := b.run(ctx, "growth", heats); err != nil {
		return nil, err
	}
	for i, h := range heats {
		small, large := h[0].cpu, h[1].cpu
		results[i].Small, results[i].Large = summarize(small), summarize(large)
		results[i].Growth = summarize(ratios(large, small))
	}
	return results, nil
}

func (all growthPart) markdown() string {
	return heading("CPU time per query as the zone grows", growthTable(all))
}

func (all growthPart) goals() []goal {
	var goals []goal
	for _, g := range all {
		if g.Peer == ourPeer.name {
			goals = append(goals, g.goal())
		}
	}
	return goals
}

func (g growthResult) goal() goal {
	return newGoal(g.Question+": CPU with 1,000,000 endpoints over 1,000", g.Growth.Median, targetGrowth)
}

func growthTable(all []growthResult) string {
	lines := [][]string{{"question", "peer", "1,000 endpoints, µs", "1,000,000 endpoints, µs", "growth", "target"}}
	for _, g := range all {
		cell := ""
		if g.Peer == ourPeer.name {
			cell = g.goal().cell("%.2f")
		}
		lines = append(lines, []string{
			g.Question, g.Peer, figure("%.1f", g.Small), figure("%.1f", g.Large), figure("%.2f", g.Growth), cell,
		})
	}
	return table(lines)
}
