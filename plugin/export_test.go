package plugin

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/cache/index"
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

// NextCluster calls nextCluster for tests outside of this package.
func (r *Rotation) NextCluster(x *index.Index, service string, qtype uint16) uint64 {
	return r.nextCluster(x, service, qtype)
}

// Len is the number of counters.
func (r *Rotation) Len() (n int) {
	r.clusters.Range(func(any, any) bool { n++; return true })
	return n
}
