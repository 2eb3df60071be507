package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// docs/spec/selection.md 6: valid and invalid weights. The error has the bad value and the wanted form.
func TestParseWeights(t *testing.T) {
	var many []string
	for i := range broker.MaxWeights + 1 {
		many = append(many, fmt.Sprintf("c%d=1", i))
	}
	for _, tt := range []struct{ name, text, want, err string }{
		{"two", "west=1, east=3", "east=3,west=1", ""},
		{"none", "", "", ""},
		{"the same weights", "east=1000,a.b=0001", "a.b=1,east=1000", ""},
		{"as many as can be", strings.Join(many[1:], ","), "", ""},
		{"too many", strings.Join(many, ","), "", `"c100=1": want at most 100 clusters`},
		{"no number", "east", "", `weight "east": want CLUSTER=1 to CLUSTER=1000`},
		{"no weight", "east=0", "", `weight "east=0": want CLUSTER=1 to CLUSTER=1000`},
		{"too large", "east=1001", "", "want CLUSTER=1 to CLUSTER=1000"},
		{"larger than a number", "east=99999999999999999999", "", "want CLUSTER=1 to CLUSTER=1000"},
		{"negative", "east=-1", "", "want CLUSTER=1 to CLUSTER=1000"},
		{"a fraction", "east=0.5", "", "want CLUSTER=1 to CLUSTER=1000"},
		{"no cluster ID", "East=1", "", `weight "East=1": want CLUSTER=1 to CLUSTER=1000`},
		{"nothing between commas", "east=1,,west=1", "", `weight "": want`},
		{"twice", "east=1,east=2", "", `weight "east=2": want each cluster once`},
		{"a long entry is cut", strings.Repeat("x", 5000), "", "want CLUSTER=1 to CLUSTER=1000"},
		{"too long", strings.Repeat("x", 9000), "", "weights of 9000 octets: want at most 8192"},
	} {
		w, err := broker.ParseWeights(tt.text)
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || len(err.Error()) > 200):
			t.Errorf("%s: error = %v, want %s", tt.name, err, tt.err)
		case tt.err == "" && (err != nil || tt.want != "" && w.String() != tt.want):
			t.Errorf("%s: %v, %v; want %s", tt.name, w, err, tt.want)
		}
		if again, err := broker.ParseWeights(w.String()); err != nil || again.String() != w.String() {
			t.Errorf("%s: %s reads back as %s, %v", tt.name, w, again, err)
		}
	}
}
