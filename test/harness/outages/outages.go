// Package outages reads the table of docs/outages.md: which faults the project survives, and which tests prove it. Tests report here what
// they measure of a fault.
package outages

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A Fault is one row of the table.
type Fault struct {
	ID, Name, Bound string
	// Tests prove it.
	Tests []Test
}

// A Test is a test function, with the directory of its package below the root of the repository.
type Test struct {
	Dir, Name string
}

// The columns of the table: id, fault, what happens, bound, proof.
const columns = 5

// proof matches the tests of one package: its directory, and the names that follow.
var (
	proof = regexp.MustCompile("`([a-z0-9/.]+)`((?:,? `(?:Test|Fuzz)[A-Za-z0-9]+`)+)")
	name  = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	// anyName is a name of a test, in whatever form.
	anyName = regexp.MustCompile("(?:Test|Fuzz)[A-Z]")
)

// Read returns the faults of the file in their order.
func Read(path string) ([]Fault, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var faults []Fault
	for number, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| F") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != columns {
			return nil, fmt.Errorf("%s:%d: %d columns, want %d: id, fault, what happens, bound, proof", path, number+1, len(cells), columns)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		f := Fault{ID: cells[0], Name: cells[1], Bound: cells[3]}
		for _, group := range proof.FindAllStringSubmatch(cells[4], -1) {
			for _, test := range name.FindAllStringSubmatch(group[2], -1) {
				f.Tests = append(f.Tests, Test{Dir: group[1], Name: test[1]})
			}
		}
		// Each quoted word is a directory or a test; those in another form would not run, and nothing would say so.
		if quoted := len(anyName.FindAllString(cells[4], -1)); quoted != len(f.Tests) {
			return nil, fmt.Errorf("%s:%d: the proof of %s has %d names of tests, of which %d are in the form `package` `TestA`, `TestB`",
				path, number+1, f.ID, quoted, len(f.Tests))
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Measured reports what a test measured of a fault, for the table of `make faults`.
func Measured(t testing.TB, id, format string, args ...any) {
	t.Helper()
	t.Attr("measured", id+": "+fmt.Sprintf(format, args...))
}

// Within reports how long ago something began, as what a test measured of a fault.
func Within(t testing.TB, id string, begin time.Time, what string) {
	t.Helper()
	Measured(t, id, "%s after %.1f s", what, time.Since(begin).Seconds())
}
