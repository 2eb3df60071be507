package dns

import (
	"testing"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/wiring"
)

// docs/spec/dns-wiring.md 7: an answer decides, and a Pod that was not asked is never well.
func TestEvaluate(t *testing.T) {
	good := Answer{Server: "pod/a", Role: cause.ClusterDNS, Response: "NOERROR 1.0.0", Wired: true}
	bad := Answer{Server: "pod/b", Role: cause.ClusterDNS, Response: "NXDOMAIN"}
	dead := Answer{Server: "pod/b", Role: cause.ClusterDNS, Error: "refused"}
	ours := Answer{Server: "pod/c", Role: cause.ClusterSetDNS, Error: "refused"}
	unread := Answer{Server: "pod/b", Role: cause.ClusterDNS, Unread: "no right"}
	for name, tt := range map[string]struct {
		state                      wiring.State
		answers                    []Answer
		problems, warnings, unread int
		answered                   bool
	}{
		"all answer":                        {wiring.Wired, []Answer{good}, 0, 0, 0, true},
		"taken by others, who answer":       {wiring.Taken, []Answer{good}, 0, 1, 0, true},
		"taken by others, who do not":       {wiring.Taken, []Answer{bad}, 1, 0, 0, false},
		"wired, and one has not read it":    {wiring.Wired, []Answer{good, bad}, 1, 0, 0, false},
		"missing, and so is the answer":     {wiring.Missing, []Answer{bad}, 1, 0, 0, false},
		"one does not answer":               {wiring.Wired, []Answer{good, dead}, 1, 0, 0, false},
		"the clusterset's does not answer":  {wiring.Wired, []Answer{good, ours}, 1, 0, 0, true},
		"one was not asked":                 {wiring.Wired, []Answer{good, unread}, 0, 0, 1, false},
		"one was not asked, and is missing": {wiring.Missing, []Answer{unread}, 1, 0, 1, false},
	} {
		s := State{Zone: "clusterset.local", Result: read.NewResult(), Answers: tt.answers,
			Resolvers: []wiring.Resolver{{State: tt.state}}}
		s.evaluate()
		if len(s.Problems) != tt.problems || len(s.Warnings) != tt.warnings || len(s.Unread) != tt.unread ||
			s.Answered() != tt.answered {
			t.Errorf("%s: %+v, answered %t, want %+v", name, s.Result, s.Answered(), tt)
		}
	}
}
