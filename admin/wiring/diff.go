package wiring

import (
	"fmt"
	"strings"
)

// context is how many lines of a diff stand around what changes.
const context = 3

// Diff prints the edit as a unified diff with one hunk; all edits of this package change one place.
func (e *Edit) Diff() string {
	name := fmt.Sprintf("%s/%s %s", strings.ToLower(e.Object().GetKind()), e.Object().GetName(), e.Field)
	before, after := splitLines(e.Old), splitLines(e.New)
	head := 0
	for head < len(before) && head < len(after) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	from, shown := max(0, head-context), min(tail, context)
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", name, name)
	fmt.Fprintf(&b, "@@ -%s +%s @@\n", hunkRange(from, len(before)-tail+shown), hunkRange(from, len(after)-tail+shown))
	write := func(sign string, lines []string) {
		for _, line := range lines {
			b.WriteString(sign + line)
			if !strings.HasSuffix(line, "\n") {
				b.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
	write(" ", before[from:head])
	write("-", before[head:len(before)-tail])
	write("+", after[head:len(after)-tail])
	write(" ", before[len(before)-tail:len(before)-tail+shown])
	return b.String()
}

// splitLines returns the lines of a text, each with the newline that it has.
func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// hunkRange prints the lines of a hunk, which are counted from 1; an empty hunk is named by the line before it.
func hunkRange(from, to int) string {
	if from == to {
		return fmt.Sprintf("%d,0", from)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
