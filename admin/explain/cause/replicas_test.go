package cause

import (
	"maps"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/api/reason"
)

// docs/spec/explain.md 2: replicas that serve different states are a warning.
func TestReplicas(t *testing.T) {
	one := func(name, east, west string) Replica {
		return Replica{Name: name, Hashes: map[string]string{`zone="east"`: east, `zone="west"`: west}}
	}
	same := []Replica{one("a", "1", "2"), one("b", "1", "2"), one("c", "1", "2")}
	other := []Replica{one("a", "1", "2"), one("b", "1", "3"), one("c", "1", "2")}
	for _, tt := range []struct {
		name     string
		read     Read[Replicas]
		mark     Mark // "" for no step
		verdict  reason.Code
		evidence string
	}{
		{name: "not read", verdict: reason.Resolves},
		{name: "no DNS server", read: Read[Replicas]{State: Absent}, verdict: reason.Resolves},
		{name: "no right", read: Read[Replicas]{State: Forbidden, Why: "no right"}, mark: Unknown, verdict: reason.Resolves,
			evidence: "no right"},
		{name: "one replica", read: present(Replicas{All: same[:1]}), mark: Skipped, verdict: reason.Resolves,
			evidence: "no two running Pods"},
		{name: "the same state", read: present(Replicas{All: same}), mark: OK, verdict: reason.Resolves,
			evidence: "3 serve the same state"},
		{name: "labels that no two have", read: present(Replicas{All: []Replica{{"a", map[string]string{"x": "1"}},
			{"b", map[string]string{"y": "2"}}}}),
			mark: OK, verdict: reason.Resolves},
		{name: "another state", read: present(Replicas{All: other}), mark: Warning, verdict: reason.DNSReplicasDiffer,
			evidence: `b serve another state than the others: hashes of coredns_clusterset_state_hash{zone="west"} differ`},
		{name: "another state, while it changes", read: present(Replicas{All: other, Changed: true}), mark: Skipped,
			verdict: reason.Resolves},
	} {
		in := input()
		in.Replicas = tt.read
		r := Find(*in)
		var step Step
		for _, s := range r.Chain {
			if s.Name == "replicas" {
				step = s
			}
		}
		if step.Mark != tt.mark || r.Verdict.Code != tt.verdict || !r.Verdict.Resolves ||
			!strings.Contains(step.Evidence, tt.evidence) {
			t.Errorf("%s: step %+v, verdict %+v, want mark %q, verdict %s, evidence %q", tt.name, step, r.Verdict, tt.mark,
				tt.verdict, tt.evidence)
		}
	}
}

func TestParseHashes(t *testing.T) {
	const text = `# TYPE coredns_clusterset_state_hash gauge
coredns_clusterset_state_hash{region="",source="local",zone="a} b"} 4.2e+15
coredns_clusterset_state_hash{region="r",source="local",zone=""} 7
coredns_clusterset_state_hashes{zone=""} 1
`
	want := map[string]string{`region="",source="local",zone="a} b"`: "4.2e+15", `region="r",source="local",zone=""`: "7"}
	if got := ParseHashes(text); !maps.Equal(got, want) {
		t.Errorf("ParseHashes = %v, want %v", got, want)
	}
}
