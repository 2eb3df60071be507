package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

	Sections map[string]part `json:"sections"`
	Goals    []goal          `json:"goals"`

	order []string // of the sections
}

func (b *bench) newReport() *report {
	return &report{
		Time: b.progress.began.UTC().Truncate(time.Second), Go: runtime.Version(), CPUs: runtime.NumCPU(),
		LoadStart: loadAverage(), Rounds: b.rounds, Seconds: b.duration.Seconds(), Rate: b.rate,
	}
}

// A part is what a section has found out. Marshalled it is what the JSON report has of it.
type part interface {
	markdown() string // has headings of the second level
	goals() []goal    // may be none
}

// A drawer is a part with further files, by name. They lie beside the report.
type drawer interface{ files() map[string][]byte }

func (r *report) add(name string, p part) {
	if r.Sections == nil {
		r.Sections = make(map[string]part)
	}
	r.Sections[name] = p
	r.order = append(r.order, name)
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
	files := map[string][]byte{"bench.md": []byte(text), "bench.json": append(data, '\n')}
	for _, p := range r.Sections {
		if p, ok := p.(drawer); ok {
			maps.Copy(files, p.files())
		}
	}
	for name, content := range files {
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
	for _, name := range r.order {
		all = append(all, r.Sections[name].goals()...)
	}
	return all
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
	for _, name := range r.order {
		b.WriteString("\n" + r.Sections[name].markdown())
	}
	b.WriteString("\n" + heading("Targets", goalsText(r.Goals)))
	return b.String()
}

// heading puts a title before a text.
func heading(title, text string) string { return "## " + title + "\n\n" + text }

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
