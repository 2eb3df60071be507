// Command summary reads the output of `go test -json` and prints the part of it that a reader needs: a line for each
// package, and all output of the tests that failed. It ends with the list of the skipped tests, by reason, with one
// line that counts the tests of higher tiers, and with one that counts the others. The exit status is 1 if a test
// failed or if no test passed, whatever the exit status of go test is.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

func main() {
	ok, err := summarise(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func summarise(r io.Reader, w io.Writer) (ok bool, err error) {
	s := summary{w: w, packages: map[string]*results{}, reasons: map[string][]string{}, left: map[string]int{}}
	for in := json.NewDecoder(r); ; {
		var e event
		err := in.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, fmt.Errorf("output of go test: %w", err)
		}
		s.add(e)
	}
	// What has not ended by now was cut off: its process, or go test itself, died.
	for _, name := range slices.Sorted(maps.Keys(s.packages)) {
		s.endPackage(event{Action: "fail", Package: name})
	}
	s.listSkipped()
	if len(s.left) > 0 {
		var tiers []string
		for _, name := range slices.Sorted(maps.Keys(s.left)) {
			tiers = append(tiers, fmt.Sprintf("%d to %s", s.left[name], tier.Target(name)))
		}
		fmt.Fprintf(w, "tests left to higher tiers: %s\n", strings.Join(tiers, ", "))
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return s.failed == 0 && s.passed > 0, nil
}

// An event is one line of input: see `go doc test2json` and `go help buildjson`.
type event struct {
	Action, Package, Test, Output string
}

type summary struct {
	w                       io.Writer
	packages                map[string]*results // those that have not ended
	reasons                 map[string][]string // of skipped tests: "package test" by reason
	left                    map[string]int      // tests of higher tiers, by tier
	passed, failed, skipped int
}

// results are of one package.
type results struct {
	printed map[string][]byte // by the tests that have not ended, and by the package itself under ""
	failed  int
}

func (s *summary) add(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(s.w, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := s.packages[e.Package]
	if p == nil {
		p = &results{printed: map[string][]byte{}}
		s.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.printed[e.Test] = append(p.printed[e.Test], e.Output...)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(p, e)
		}
	}
}

func (s *summary) endTest(p *results, e event) {
	text := p.printed[e.Test]
	delete(p.printed, e.Test)
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		reason := skipReason(text)
		if tier, ok := strings.CutPrefix(reason, tier.SkipPrefix); ok {
			s.left[tier]++
			return
		}
		s.skipped++
		s.reasons[reason] = append(s.reasons[reason], e.Package+" "+e.Test)
	case "fail":
		s.failed++
		p.failed++
		fmt.Fprintf(s.w, "%s: failed %s\n%s", e.Package, e.Test, text)
	}
}

// logLine is a line that a test logs; the submatch is the text.
var logLine = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*)$`)

// skipReason returns the argument of t.Skip: the last line that the test logged.
func skipReason(output []byte) string {
	lines := logLine.FindAllSubmatch(output, -1)
	if len(lines) == 0 {
		return "no reason given"
	}
	return string(lines[len(lines)-1][1])
}

// listSkipped prints each reason with its tests.
func (s *summary) listSkipped() {
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		fmt.Fprintf(s.w, "skipped, %s:\n", reason)
		for _, test := range slices.Sorted(slices.Values(s.reasons[reason])) {
			fmt.Fprintf(s.w, "  %s\n", test)
		}
	}
}

func (s *summary) endPackage(e event) {
	p := s.packages[e.Package]
	delete(s.packages, e.Package)
	if e.Action != "fail" {
		// The last line is go test's own; before it stands what the package printed.
		lines := strings.SplitAfter(strings.TrimSuffix(string(p.printed[""]), "\n"), "\n")
		fmt.Fprintln(s.w, lines[len(lines)-1])
		return
	}
	// A package can fail without a failed test: it does not build, a goroutine leaks, it took too long.
	if p.failed == 0 {
		s.failed++
	}
	for _, test := range slices.Sorted(maps.Keys(p.printed)) {
		if test != "" {
			fmt.Fprintf(s.w, "%s: not ended %s\n%s", e.Package, test, p.printed[test])
		}
	}
	fmt.Fprintf(s.w, "%s", p.printed[""])
}
