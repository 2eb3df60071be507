// Package outages reads the table of docs/outages.md: which faults the project survives, and which tests prove it.
// Tests report here what they measure of a fault.
package outages

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
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
			return nil, fmt.Errorf("%s:%d: %d columns, want %d: id, fault, what happens, bound, proof", path, number+1,
				len(cells), columns)
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

// A Measurement is what a test measured of a fault.
type Measurement struct {
	ID, What string
	// Took is how long it took, and Bound how long it may take. Without a bound there is no time: the test itself fails if
	// it is too much.
	Took, Bound time.Duration
}

// Over reports whether it took too long. How long something takes depends on the machine, too: `make faults` fails for
// it, a test does not.
func (m Measurement) Over() bool { return m.Bound > 0 && m.Took > m.Bound }

// String returns what was measured in words.
func (m Measurement) String() string {
	switch {
	case m.Bound == 0:
		return m.What
	case m.Over():
		return fmt.Sprintf("%s: %.3g s, over %s", m.What, m.Took.Seconds(), inWords(m.Bound))
	}
	return fmt.Sprintf("%s: %.3g s", m.What, m.Took.Seconds())
}

// inWords returns a time as the table has it.
func inWords(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%g s", d.Seconds())
}

// HasBound reports whether the table has the bound of a measurement of the fault.
func (f Fault) HasBound(m Measurement) bool {
	return m.Bound == 0 || regexp.MustCompile(`(^|[^0-9.])`+regexp.QuoteMeta(inWords(m.Bound))+`([^A-Za-z0-9]|$)`).MatchString(f.Bound)
}

// times matches the times in a bound; "1 request a second" has none.
var times = regexp.MustCompile(`[0-9.]+ (?:ms|s)\b`)

// Unmeasured returns the times in the bound of the fault that none of the measurements compares with.
func (f Fault) Unmeasured(all []Measurement) []string {
	left := times.FindAllString(f.Bound, -1)
	for _, m := range all {
		left = slices.DeleteFunc(left, func(bound string) bool { return m.Bound > 0 && bound == inWords(m.Bound) })
	}
	return left
}

// attr is the key of the attribute of a test that has a Measurement, in JSON.
const attr = "measured"

func (m Measurement) report(t testing.TB) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Attr(attr, string(text))
}

// Reported returns the Measurement in an attribute of a test. ok is false if the attribute is another one.
func Reported(key, value string) (m Measurement, ok bool, err error) {
	if key != attr {
		return m, false, nil
	}
	err = json.Unmarshal([]byte(value), &m)
	return m, true, err
}

// Measured reports what a test measured of a fault, for the table of `make faults`. The test fails by itself if it is
// too much.
func Measured(t testing.TB, id, format string, args ...any) {
	t.Helper()
	Measurement{ID: id, What: fmt.Sprintf(format, args...)}.report(t)
}

// Took reports how long something took, and how long it may take by the table. `make faults` compares them.
func Took(t testing.TB, id string, took, bound time.Duration, what string) {
	t.Helper()
	Measurement{ID: id, What: what, Took: took, Bound: bound}.report(t)
}

// Since is Took for something that began at a time and is over now.
func Since(t testing.TB, id string, begin time.Time, bound time.Duration, what string) {
	t.Helper()
	Took(t, id, time.Since(begin), bound, what)
}

// Env is the environment variable by which `make faults` asks its tests for the numbers in the table.
const Env = "CLUSTERSET_FAULTS"

// Long reports whether a test has the size of the table, which takes minutes: in `make faults`, but not in
// `make test`.
func Long() bool { return os.Getenv(Env) != "" }
