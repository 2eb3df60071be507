package plugin

import (
	"strings"
	"testing"
)

// ParsedT is the Config of a clusterset block with these directives, for tests outside of this package.
func ParsedT(t testing.TB, zones []string, directives string) Config {
	t.Helper()
	c, err := parse(strings.Join(zones, " ") + " {\nclusterset {\n" + directives + "\n}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Largest is what the metric of endpoints shows of each cluster.
var Largest = largestClusters
