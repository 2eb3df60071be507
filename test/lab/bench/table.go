package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

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
