package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A report is all that one run has found out.
type report struct {
	Time      time.Time `json:"time"`
	Go        string    `json:"go"`
	CPUs      int       `json:"cpus"`
	LoadStart string    `json:"loadAverageAtStart"`
	LoadEnd   string    `json:"loadAverageAtEnd"`
	Rounds    int       `json:"rounds"`
	Seconds   float64   `json:"secondsPerMeasurement"`
	Rate      int       `json:"queriesPerSecondAtMost"`

	Rows   []rowResult    `json:"rows,omitempty"`
	Memory []memoryResult `json:"memory,omitempty"`
	Fresh  []freshResult  `json:"fresh,omitempty"`
	Growth []growthResult `json:"growth,omitempty"`
	Cross  []crossResult  `json:"cross,omitempty"`
	Import *importResult  `json:"import,omitempty"`
	Goals  []goal         `json:"goals"`
}

func (b *bench) newReport() *report {
	return &report{
		Time: b.progress.began.UTC().Truncate(time.Second), Go: runtime.Version(), CPUs: runtime.NumCPU(),
		LoadStart: loadAverage(), Rounds: b.rounds, Seconds: b.duration.Seconds(), Rate: b.rate,
	}
}

func (r *report) empty() bool {
	return r.Rows == nil && r.Memory == nil && r.Fresh == nil && r.Growth == nil && r.Cross == nil && r.Import == nil
}

// write puts the report on w and into the folder.
func (r *report) write(w io.Writer, folder string) error {
	r.LoadEnd, r.Goals = loadAverage(), r.goals()
	text := r.markdown()
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for name, content := range map[string][]byte{"bench.md": []byte(text), "bench.json": append(data, '\n')} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// A goal is a figure of ours and what it may be at most.
type goal struct {
	What   string  `json:"what"`
	Got    float64 `json:"got"`
	Most   float64 `json:"most"`
	Missed bool    `json:"missed"`
}

func newGoal(what string, got, most float64) goal {
	return goal{What: what, Got: got, Most: most, Missed: got > most}
}

// cell shows what is wanted, and if that is missed.
func (g goal) cell(format string) string {
	text := "≤ " + fmt.Sprintf(format, g.Most)
	if g.Missed {
		text += " **missed**"
	}
	return text
}

func (r *report) goals() []goal {
	var all []goal
	for _, row := range r.Rows {
		all = append(all, row.goal())
	}
	if r.Memory != nil {
		heap, resident, peak := memoryGoals(r.Memory)
		all = append(all, heap, resident, peak)
	}
	if r.Fresh != nil {
		p50, p99 := freshGoals(r.Fresh)
		all = append(all, p50, p99)
	}
	for _, c := range r.Cross {
		all = append(all, c.goals()...)
	}
	if r.Import != nil {
		all = append(all, r.Import.goal())
	}
	for _, g := range r.Growth {
		if g.Peer == ourPeer.name {
			all = append(all, g.goal())
		}
	}
	return all
}

func (r rowResult) goal() goal {
	return newGoal(r.Question+": CPU over floor", r.Peers[ourPeer.name].OverFloor.Median, r.Target)
}

func memoryGoals(all []memoryResult) (heap, resident, peak goal) {
	base, our := memoryOf(all, emptyPeer), memoryOf(all, ourPeer)
	return newGoal("live heap over empty, octets", our.Heap.Median-base.Heap.Median, targetHeap),
		newGoal("resident over empty, octets", our.Resident.Median-base.Resident.Median, targetResident),
		newGoal("peak resident over empty, octets", our.Peak.Median-base.Peak.Median, targetPeak)
}

func memoryOf(all []memoryResult, p peer) memoryResult {
	for _, m := range all {
		if m.Peer == p.name {
			return m
		}
	}
	panic("bench: memory of " + p.name + " was not measured")
}

func freshGoals(all []freshResult) (p50, p99 goal) {
	their, our := freshOf(all, inTreePeer), freshOf(all, ourPeer)
	return newGoal("p50 from change to answer over in-tree", our.P50/their.P50, targetFresh),
		newGoal("p99 from change to answer over in-tree", our.P99/their.P99, targetFresh)
}

func freshOf(all []freshResult, p peer) freshResult {
	for _, f := range all {
		if f.Peer == p.name {
			return f
		}
	}
	panic("bench: freshness of " + p.name + " was not measured")
}

func (g growthResult) goal() goal {
	return newGoal(g.Question+": CPU with 1,000,000 endpoints over 1,000", g.Growth.Median, targetGrowth)
}

func (c crossResult) goals() []goal {
	if c.What == rowExport {
		return []goal{
			newGoal("p50 from export to answer in another cluster, ms", c.P50, targetExportP50),
			newGoal("p99 from export to answer in another cluster, ms", c.P99, targetExportP99),
		}
	}
	return []goal{newGoal("p99 from endpoint to answer in another cluster, ms", c.P99, targetEndpointP99)}
}

func (r *importResult) goal() goal {
	return newGoal("first import, s", r.Seconds, targetImport)
}

func (r *report) markdown() string {
	var b strings.Builder
	rate := "as fast as the server answers"
	if r.Rate > 0 {
		rate = fmt.Sprintf("at most %d queries a second", r.Rate)
	}
	_, _ = fmt.Fprintf(&b, "# Benchmark of %s\n\n%s, %d CPUs, load average %s at the start and %s at the end.\n"+
		"%d rounds of %g s for each kind of question, %s.\n"+
		"Medians; in parentheses the range over the rounds in proportion to the median.\n",
		r.Time.Format(time.RFC3339), r.Go, r.CPUs, r.LoadStart, r.LoadEnd, r.Rounds, r.Seconds, rate)
	section := func(title, text string) { b.WriteString("\n## " + title + "\n\n" + text) }
	if r.Rows != nil {
		section("CPU time of the server per query", rowsTable(r.Rows))
		section("Throughput, mean latency, answer size", throughputTable(r.Rows))
	}
	if r.Memory != nil {
		section("Memory with 50,000 VIPs and 280,000 endpoints", memoryTable(r.Memory))
	}
	if r.Fresh != nil {
		section("From a change to its answer", freshTable(r.Fresh))
	}
	if r.Cross != nil {
		section("From a change in one cluster to its answer in another", crossTable(r.Cross))
	}
	if r.Import != nil {
		section("First import", fmt.Sprintf("%d services with %d slices: %.1f s, target %s\n", r.Import.Services, r.Import.Slices,
			r.Import.Seconds, r.Import.goal().cell("%.0f")))
	}
	if r.Growth != nil {
		section("CPU time per query as the zone grows", growthTable(r.Growth))
	}
	section("Targets", goalsText(r.Goals))
	return b.String()
}

func goalsText(all []goal) string {
	var b strings.Builder
	missed := 0
	for _, g := range all {
		if g.Missed {
			missed++
			_, _ = fmt.Fprintf(&b, "- missed: %s: %.4g, want at most %.4g\n", g.What, g.Got, g.Most)
		}
	}
	return fmt.Sprintf("%d of %d met.\n", len(all)-missed, len(all)) + b.String()
}
