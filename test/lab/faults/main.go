// Command faults runs the tests that docs/outages.md names as the proof of each fault, and prints for each fault the
// bound and what its tests measured (package outages). A time over its bound is a failure here, and only here: tests
// pass on a slow machine, too.
//
// Usage: faults [ID...], such as faults F1 F9; all without an ID. The exit status is 1 if a test failed or did not run,
// if a fault has no test, or if something took longer than its bound.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
)

func main() {
	ok, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ids []string) (ok bool, err error) {
	faults, err := outages.Read("docs/outages.md")
	if err != nil {
		return false, err
	}
	if faults, err = selected(faults, ids); err != nil {
		return false, err
	}
	results := outcomes{status: map[outages.Test]string{}, measured: map[string][]outages.Measurement{}}
	tests := testsByDir(faults)
	for i, dir := range slices.Sorted(maps.Keys(tests)) {
		fmt.Printf("%d of %d: %s: %s\n", i+1, len(tests), dir, strings.Join(tests[dir], ", "))
		if err := results.test(dir, tests[dir]); err != nil {
			return false, err
		}
	}
	return results.print(os.Stdout, faults), nil
}

// selected returns the faults with one of the ids, all if there is none.
func selected(faults []outages.Fault, ids []string) ([]outages.Fault, error) {
	if len(ids) == 0 {
		return faults, nil
	}
	var some []outages.Fault
	for _, id := range ids {
		i := slices.IndexFunc(faults, func(f outages.Fault) bool { return f.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("no fault %q in docs/outages.md: want an id such as F1", id)
		}
		some = append(some, faults[i])
	}
	return some, nil
}

// testsByDir returns the names of all tests of the faults.
func testsByDir(faults []outages.Fault) map[string][]string {
	tests := map[string][]string{}
	for _, f := range faults {
		for _, t := range f.Tests {
			if !slices.Contains(tests[t.Dir], t.Name) {
				tests[t.Dir] = append(tests[t.Dir], t.Name)
			}
		}
	}
	return tests
}

// outcomes are what the tests said.
type outcomes struct {
	status   map[outages.Test]string          // "pass", "fail" or "skip"
	measured map[string][]outages.Measurement // by the id of a fault
}

// test runs tests of one package. Its error is that of go test itself; a test that fails is none.
func (o *outcomes) test(dir string, names []string) error {
	cmd := exec.Command("go", "test", "-json", "-count=1", "-pgo=off", "-timeout=60m", "-run",
		"^("+strings.Join(names, "|")+")$", "./"+dir)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), outages.Env+"=1")
	// Ctrl-C reaches the tests, too: they end what they have started.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := o.add(dir, line); err != nil {
			return err
		}
	}
	err = cmd.Wait()
	select {
	case s := <-interrupted:
		return fmt.Errorf("ended by the signal %s", s)
	default:
	}
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil // The outcomes say so.
	}
	return err
}

// add takes one line of go test -json.
func (o *outcomes) add(dir string, line []byte) error {
	var event struct{ Action, Test, Output, Key, Value string }
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("output of go test: %w", err)
	}
	switch event.Action {
	case "pass", "fail", "skip":
		o.status[outages.Test{Dir: dir, Name: event.Test}] = event.Action
	case "attr":
		m, ok, err := outages.Reported(event.Key, event.Value)
		if err != nil {
			return fmt.Errorf("attribute of %s: %w", event.Test, err)
		}
		if ok {
			o.measured[m.ID] = append(o.measured[m.ID], m)
		}
	case "output", "build-output":
		if strings.Contains(event.Output, "FAIL") || strings.Contains(event.Output, "_test.go:") ||
			event.Action == "build-output" {
			fmt.Print(event.Output)
		}
	}
	return nil
}

// Results besides those of tests.
const (
	untested   = "no test"
	over       = "over"          // something took longer than its bound
	otherBound = "another bound" // a test compares with a bound that the table does not have
	unmeasured = "not measured"  // the table has a time that no test measured
)

// result is the outcome of the first test of f that has not passed, or of a measurement; "pass" if all is well.
func (o *outcomes) result(f outages.Fault) string {
	if len(f.Tests) == 0 {
		return untested
	}
	for _, t := range f.Tests {
		if status := cmp.Or(o.status[t], "did not run"); status != "pass" {
			return status
		}
	}
	for _, m := range o.measured[f.ID] {
		switch {
		case !f.HasBound(m):
			return otherBound
		case m.Over():
			return over
		}
	}
	if len(f.Unmeasured(o.measured[f.ID])) > 0 {
		return unmeasured
	}
	return "pass"
}

// print writes the table, and reports whether each of them has tests, all of which have passed and measured what they
// should.
func (o *outcomes) print(w io.Writer, faults []outages.Fault) bool {
	ok := true
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tRESULT\tBOUND\tMEASURED")
	for _, f := range faults {
		result := o.result(f)
		ok = ok && result == "pass"
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.ID, result, f.Bound, cmp.Or(inWords(o.measured[f.ID]), "-"))
	}
	table.Flush()
	return ok
}

// inWords returns all measurements in one line.
func inWords(all []outages.Measurement) string {
	var texts []string
	for _, m := range all {
		texts = append(texts, m.String())
	}
	return strings.Join(texts, "; ")
}
