package docs

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestConformance compares docs/conformance/README.md with the report beside it.
func TestConformance(t *testing.T) {
	var report struct {
		Groups []struct {
			Name  string
			Tests []struct{ Passed bool }
		}
		Passed, Total  int
		Implementation struct{ Version string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "docs/conformance/report.yaml")), &report); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("**%d of %d** specs pass", report.Passed, report.Total),
		fmt.Sprintf("| this repository | commit `%s` |", report.Implementation.Version),
	}
	for _, g := range report.Groups {
		passed := 0
		for _, spec := range g.Tests {
			if spec.Passed {
				passed++
			}
		}
		want = append(want, fmt.Sprintf("| %s | %d | %d |", g.Name, len(g.Tests), passed))
	}
	text := read(t, "docs/conformance/README.md")
	for _, line := range want {
		if !strings.Contains(text, line) {
			t.Errorf("docs/conformance/README.md lacks %q, which the report says", line)
		}
	}
}
