package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
)

// TestOutages finds each test that docs/outages.md names, in the package that it names.
func TestOutages(t *testing.T) {
	faults, err := outages.Read(filepath.Join(root, "docs/outages.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources, proven := texts(t), 0
	for i, f := range faults {
		if want := fmt.Sprint("F", i+1); f.ID != want {
			t.Errorf("row %d is %s, want %s", i+1, f.ID, want)
		}
		if len(f.Tests) > 0 {
			proven++
		}
		for _, test := range f.Tests {
			declared := regexp.MustCompile(`(?m)^func ` + test.Name + `\(`)
			found := false
			for file, text := range sources {
				found = found || filepath.Dir(file) == test.Dir && declared.MatchString(text)
			}
			if !found {
				t.Errorf("%s: %s has no test %s", f.ID, test.Dir, test.Name)
			}
		}
	}
	if len(faults) != 35 || proven != len(faults) {
		t.Errorf("%d faults, %d of them with a test; want 35, each with one", len(faults), proven)
	}
}
