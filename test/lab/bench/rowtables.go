package main

import (
	"fmt"
	"slices"
	"strings"
)

// inModes returns the results by mode, in their order.
func (rows rowsPart) inModes() [][]rowResult {
	var all [][]rowResult
	for i, r := range rows {
		if i == 0 || rows[i-1].Mode != r.Mode {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all
}

func (rows rowsPart) markdown() string {
	var parts []string
	modes := rows.inModes()
	for _, of := range modes {
		in, rounds := "", ""
		if len(modes) > 1 {
			in, rounds = ", "+of[0].Mode, fmt.Sprintf("%d rounds.\n\n", of[0].Rounds)
		}
		parts = append(parts,
			heading("CPU time of the server per query"+in, rounds+rowsTable(of)+notesText(of)),
			heading(throughputTitle(of)+in, throughputTable(of)))
	}
	return strings.Join(parts, "\n")
}

func (rows rowsPart) goals() []goal {
	var all []goal
	for _, r := range rows {
		if r.Target > 0 {
			all = append(all, r.goal())
		}
	}
	return all
}

func (r rowResult) goal() goal {
	return newGoal(r.Question+": CPU over baseline", r.Peers[ourPeer.name].OverBaseline.Median, r.Target)
}

// measured are the peers that have a figure in one of the rows.
func measured(rows []rowResult) []peer {
	return slices.DeleteFunc(append(slices.Clone(rowPeers), nsdPeer), func(p peer) bool {
		return !slices.ContainsFunc(rows, func(r rowResult) bool { return has(r, p) })
	})
}

func has(r rowResult, p peer) bool {
	_, ok := r.Peers[p.name]
	return ok
}

// notMeasured is a cell without a figure.
const notMeasured = "–"

func rowsTable(rows []rowResult) string {
	peers, head := measured(rows), []string{"question"}
	for _, p := range peers {
		head = append(head, p.name+", µs")
	}
	for _, p := range peers[1:] {
		head = append(head, p.name+" / "+baselinePeer.name)
	}
	lines := [][]string{append(head, "target")}
	for _, r := range rows {
		line := []string{r.Question}
		for _, p := range peers {
			line = append(line, figureOf("%.1f", r.Peers[p.name].CPU))
		}
		for _, p := range peers[1:] {
			line = append(line, figureOf("%.2f", r.Peers[p.name].OverBaseline))
		}
		target := ""
		if r.Target > 0 {
			target = r.goal().cell("%.2f")
		}
		lines = append(lines, append(line, target))
	}
	return table(lines)
}

// notesText has each note once.
func notesText(rows []rowResult) string {
	var b strings.Builder
	var known []string
	for _, r := range rows {
		for _, note := range r.Notes {
			if !slices.Contains(known, note) {
				known = append(known, note)
			}
		}
	}
	for i, note := range known {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("- " + note + "\n")
	}
	return b.String()
}

// atHalfLoad reports whether latencies at half load were measured.
func atHalfLoad(rows []rowResult) bool {
	for _, r := range rows {
		for _, got := range r.Peers {
			if got.P50 != (summary{}) {
				return true
			}
		}
	}
	return false
}

func throughputTitle(rows []rowResult) string {
	if atHalfLoad(rows) {
		return "Throughput, latency, answer size"
	}
	return "Throughput, mean latency, answer size"
}

func throughputTable(rows []rowResult) string {
	half := atHalfLoad(rows)
	lines := [][]string{{"question", "peer", "queries/s", "latency, µs", "octets"}}
	if half {
		lines[0] = slices.Insert(lines[0], 4, "p50 at half load, µs", "p99 at half load, µs")
	}
	for _, r := range rows {
		for _, p := range measured([]rowResult{r}) {
			got := r.Peers[p.name]
			line := []string{
				r.Question, p.name, figure("%.0f", got.QPS), figure("%.0f", got.Latency), fmt.Sprintf("%.0f", got.Octets),
			}
			if half {
				line = slices.Insert(line, 4, figureOf("%.0f", got.P50), figureOf("%.0f", got.P99))
			}
			lines = append(lines, line)
		}
	}
	text := table(lines)
	if half {
		text += fmt.Sprintf(
			"\nHalf load: half of the queries a second that the same round reached, at most %d, since telling each "+
				"latency is a load too.\n", halfLoadMost)
	}
	return text
}

// figureOf is [figure], or a dash if nothing was measured.
func figureOf(format string, s summary) string {
	if s == (summary{}) {
		return notMeasured
	}
	return figure(format, s)
}
