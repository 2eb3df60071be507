package main

import (
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
	began              time.Time
	loadStart, loadEnd string // load average
	rounds             int
	duration           time.Duration // of a measurement
	parts              []part        // of each section
}

func (b *bench) newReport() *report {
	return &report{began: b.progress.began, loadStart: loadAverage(), rounds: b.rounds, duration: b.duration}
}

// A part is what a section has found out.
type part interface {
	markdown() string // has headings of the second level
	goals() []goal    // may be none
}

// A drawer is a part with further files, by name. They lie beside the report.
type drawer interface{ files() map[string][]byte }

// write puts the report on w and into the folder.
func (r *report) write(w io.Writer, folder string) error {
	r.loadEnd = loadAverage()
	text := r.markdown()
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	files := map[string][]byte{"bench.md": []byte(text)}
	for _, p := range r.parts {
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
	What   string
	Got    float64
	Most   float64
	Missed bool
}

func newGoal(what string, got, most float64) goal {
	return goal{What: what, Got: got, Most: most, Missed: got > most}
}

// cell shows the target, and whether it is missed.
func (g goal) cell(format string) string {
	text := "≤ " + fmt.Sprintf(format, g.Most)
	if g.Missed {
		text += " **missed**"
	}
	return text
}

func (r *report) goals() []goal {
	var all []goal
	for _, p := range r.parts {
		all = append(all, p.goals()...)
	}
	return all
}

func (r *report) markdown() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "# Benchmark of %s\n\n%s, %d CPUs, load average %s at the start and %s at the end.\n"+
		"%d rounds of %g s for each kind of question.\n"+
		"Medians; in parentheses the range over the rounds in proportion to the median.\n",
		r.began.UTC().Format(time.RFC3339), runtime.Version(), runtime.NumCPU(), r.loadStart, r.loadEnd, r.rounds,
		r.duration.Seconds())
	for _, p := range r.parts {
		b.WriteString("\n" + p.markdown())
	}
	b.WriteString("\n" + heading("Targets", goalsText(r.goals())))
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
