package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

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

func memoryTable(all []memoryResult) string {
	lines := [][]string{{"peer", "live heap, MB", "resident, MB", "peak resident, MB", "ready after, s"}}
	for _, m := range all {
		lines = append(lines, []string{
			m.Peer, figure("%.1f", m.Heap.scale(1e-6)), figure("%.1f", m.Resident.scale(1e-6)),
			figure("%.1f", m.Peak.scale(1e-6)), figure("%.1f", m.Ready),
		})
	}
	base := memoryOf(all, emptyPeer)
	over := func(a, b summary) string { return fmt.Sprintf("%.1f", (a.Median-b.Median)/1e6) }
	for _, p := range []peer{inTreePeer, ourPeer} {
		m := memoryOf(all, p)
		lines = append(lines, []string{
			p.name + " over " + base.Peer,
			over(m.Heap, base.Heap), over(m.Resident, base.Resident), over(m.Peak, base.Peak), "",
		})
	}
	heap, resident, peak := memoryGoals(all)
	line := []string{"target"}
	for _, g := range []goal{heap, resident, peak} {
		g.Most /= 1e6
		line = append(line, g.cell("%.0f"))
	}
	return table(append(lines, append(line, "")))
}

func freshTable(all []freshResult) string {
	lines := [][]string{{"peer", "changes", "changes/s", "p50, ms", "p99, ms", "max, ms"}}
	for _, f := range all {
		lines = append(lines, []string{
			f.Peer, fmt.Sprint(f.Changes), fmt.Sprintf("%.0f", f.Rate),
			fmt.Sprintf("%.2f", f.P50), fmt.Sprintf("%.2f", f.P99), fmt.Sprintf("%.2f", f.Max),
		})
	}
	p50, p99 := freshGoals(all)
	ratio := freshOf(all, ourPeer).Max / freshOf(all, inTreePeer).Max
	return table(append(lines,
		[]string{
			ourPeer.name + " / " + inTreePeer.name, "", "",
			fmt.Sprintf("%.2f", p50.Got), fmt.Sprintf("%.2f", p99.Got), fmt.Sprintf("%.2f", ratio),
		},
		[]string{"target", "", "", p50.cell("%.2f"), p99.cell("%.2f"), ""},
	))
}

func crossTable(all []crossResult) string {
	lines := [][]string{{"change", "changes", "changes/s", "p50, ms", "p90, ms", "p99, ms", "max, ms", "targets"}}
	for _, c := range all {
		var targets []string
		for _, g := range c.goals() {
			targets = append(targets, g.cell("%.0f"))
		}
		lines = append(lines, []string{
			c.What, fmt.Sprint(c.Changes), fmt.Sprintf("%.0f", c.Rate), fmt.Sprintf("%.0f", c.P50), fmt.Sprintf("%.0f", c.P90),
			fmt.Sprintf("%.0f", c.P99), fmt.Sprintf("%.0f", c.Max), strings.Join(targets, ", "),
		})
	}
	return table(lines)
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

// figure formats a median and how far the rounds were apart.
func figure(format string, s summary) string {
	return fmt.Sprintf(format+" (%.0f %%)", s.Median, 100*s.spread())
}

// table renders lines, the first of which is the head, as a Markdown table that is also readable as text. The first
// column is flush left, the others flush right.
func table(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	rule := []string{strings.Repeat("-", widths[0])}
	for _, w := range widths[1:] {
		rule = append(rule, strings.Repeat("-", w-1)+":")
	}
	// fmt takes a negative width as flush left.
	widths[0] = -widths[0]
	var b strings.Builder
	write := func(line []string) {
		for i, cell := range line {
			_, _ = fmt.Fprintf(&b, "| %*s ", widths[i], cell)
		}
		b.WriteString("|\n")
	}
	write(lines[0])
	write(rule)
	for _, line := range lines[1:] {
		write(line)
	}
	return b.String()
}
