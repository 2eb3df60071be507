package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/api/reason"
)

func three(asks bool) []Member {
	return []Member{{"east", asks}, {"west", asks}, {"north", asks}}
}

// docs/spec/operations.md 7: each ordered pair is checked, and without Pods or DNS only what can be.
func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name       string
		pods, asks bool
		want       string // the steps of a pair
	}{
		{"all", true, true,
			"pods ClusterSetIP export, import, dns, tcp, udp Headless export, import, dns, tcp, udp ClusterSetIP withdrawal, name gone Headless withdrawal, name gone"},
		{"no Pods", false, true,
			"ClusterSetIP export, import, dns Headless export, import ClusterSetIP withdrawal, name gone Headless withdrawal"},
		{"no DNS", false, false,
			"ClusterSetIP export, import, dns Headless export, import ClusterSetIP withdrawal, name gone Headless withdrawal"},
	} {
		plan := Plan(three(tt.asks), tt.pods)
		if got := pairs(plan); got != 6 {
			t.Errorf("%s: %d pairs, want 6", tt.name, got)
		}
		for _, from := range three(true) {
			for _, to := range three(true) {
				var got []string
				var kind ServiceKind
				for _, c := range plan {
					if c.From != from.Name || c.To != to.Name {
						continue
					}
					switch {
					case c.Kind != kind:
						got = append(got, string(c.Kind)+" "+string(c.Step))
					case len(got) == 0:
						got = append(got, string(c.Step))
					default:
						got[len(got)-1] += ", " + string(c.Step)
					}
					kind = c.Kind
				}
				want := tt.want
				if from == to {
					want = ""
				}
				if text := strings.Join(got, " "); text != want {
					t.Errorf("%s: %s to %s: %s, want %s", tt.name, from.Name, to.Name, text, want)
				}
			}
		}
	}
}

// A step without a result is skipped because of the first one before it that failed, of its kind or of the Pods.
func TestFill(t *testing.T) {
	plan := Plan([]Member{{"east", true}, {"west", true}}, true)
	results := []Check{
		{From: "east", To: "west", Step: Pods, Mark: OK},
		{From: "east", To: "west", Step: DNS, Kind: Headless, Family: "IPv6", Mark: OK},
		{From: "east", To: "west", Step: DNS, Kind: Headless, Family: "IPv4", Mark: Failed},
		{From: "west", To: "east", Step: Pods, Mark: Failed},
	}
	slices.Reverse(results)
	all := Fill(plan, results)
	if len(all) != len(plan)+1 {
		t.Errorf("%d checks, want one for each of %d places, and one more for the second family", len(all), len(plan))
	}
	for _, c := range all {
		var want string
		switch {
		case c.Mark != Skipped:
		case c.From == "west":
			want = `the step "pods" failed`
		case c.Kind == Headless && (c.Step == TCP || c.Step == UDP || c.Step == Withdrawal || c.Step == NameGone):
			want = `the step "dns" failed`
		default:
			want = "it was not reached"
		}
		if c.Evidence != want {
			t.Errorf("%+v: want evidence %q", c, want)
		}
	}
}

func TestJudge(t *testing.T) {
	var all []Check
	for _, c := range Plan(three(true), true) {
		c.Mark, c.Evidence = OK, "e"
		all = append(all, c)
	}
	fail := func(code reason.Code, of func(Check) bool) func([]Check) {
		return func(checks []Check) {
			for i := range checks {
				if of(checks[i]) {
					checks[i].Mark, checks[i].Code, checks[i].Evidence = Failed, code, "E "+string(checks[i].Step)
				}
			}
		}
	}
	for _, tt := range []struct {
		name     string
		change   func([]Check)
		code     reason.Code
		layer    Layer
		sentence string
	}{
		{"no fault", func([]Check) {}, reason.Verified, "", fmt.Sprintf("%d checks of 6 pairs of members worked.", len(all))},
		{"nothing was checked", func(all []Check) {
			for i := range all {
				all[i].Mark, all[i].Evidence = Skipped, "e"
			}
		}, reason.Unverified, "", "Clusterset verify could not check everything (0 checks of 6 pairs of members worked): e."},
		{"no name was asked", func(all []Check) {
			for i := range all {
				if all[i].Step == DNS {
					all[i].Mark, all[i].Evidence = Skipped, "no DNS server"
				}
			}
		}, reason.Unverified, "", "6 pairs of members worked): no DNS server."},
		{"UDP to one member", fail(reason.NetworkUDP, func(c Check) bool { return c.Step == UDP && c.To == "west" }),
			reason.NetworkUDP, LayerNetwork, "2 of 6 pairs of members, all to west"},
		{"everything from one member", fail(reason.NetworkTCP,
			func(c Check) bool { return (c.Step == TCP || c.Step == UDP) && c.From == "north" }),
			reason.NetworkTCP, LayerNetwork, "2 of 6 pairs of members, all from north"},
		{"DNS of one pair, and what follows", fail(reason.DNSNotWired, func(c Check) bool {
			return c.From == "east" && c.To == "west" && (c.Step == DNS || c.Step == NameGone)
		}), reason.DNSNotWired, LayerDNS, "(only from east to west): E dns."},
		{"the import comes before DNS", fail(reason.ImportMissing,
			func(c Check) bool { return c.Step == Import || c.Step == DNS }),
			reason.ImportMissing, LayerController, "6 of 6 pairs of members): E import."},
		{"Pods come first", fail(reason.PodsNotRunning, func(c Check) bool { return c.Step == Pods || c.Step == Export }),
			reason.PodsNotRunning, LayerPods, "E pods."},
		{"an import that stays", fail(reason.ImportNotWithdrawn, func(c Check) bool { return c.Step == Withdrawal }),
			reason.ImportNotWithdrawn, LayerController, "E withdrawal."},
		{"a name that stays", fail(reason.DNSNotWithdrawn, func(c Check) bool { return c.Step == NameGone }),
			reason.DNSNotWithdrawn, LayerDNS, "E name gone."},
	} {
		checks := slices.Clone(all)
		tt.change(checks)
		got := Judge(checks)
		if got.Code != tt.code || got.Layer != tt.layer || !strings.Contains(got.Sentence, tt.sentence) || got.Remedy == "" {
			t.Errorf("%s: %+v, want code %s, layer %q, a sentence with %q, and a remedy", tt.name, got, tt.code, tt.layer,
				tt.sentence)
		}
	}
}

func TestReply(t *testing.T) {
	here := func(rcode int, values ...string) cause.Reply {
		return cause.Reply{Asked: true, Rcode: rcode, Zone: "clusterset.local", Values: values}
	}
	for _, tt := range []struct {
		name  string
		want  []string
		gone  bool
		reply cause.Reply
		code  reason.Code
	}{
		{"the address", []string{"10.0.0.1"}, false, here(dns.RcodeSuccess, "10.0.0.1"), ""},
		{"one of two", []string{"10.0.0.1", "10.0.0.2"}, false, here(dns.RcodeSuccess, "10.0.0.2"), ""},
		{"without addresses, the name exists", nil, false, here(dns.RcodeSuccess), ""},
		{"the name lacks", nil, false, here(dns.RcodeNameError), reason.DNSLacksName},
		{"the address lacks", []string{"10.0.0.1"}, false, here(dns.RcodeSuccess), reason.DNSLacksName},
		{"another address", []string{"10.0.0.1"}, false, here(dns.RcodeSuccess, "10.0.0.1", "10.9.0.1"),
			reason.DNSOtherAnswer},
		{"another zone", []string{"10.0.0.1"}, false, cause.Reply{Asked: true, Rcode: dns.RcodeNameError, Zone: ""},
			reason.DNSNotWired},
		{"no reply", nil, false, cause.Reply{Asked: true, Failure: "timeout"}, reason.DNSUnreachable},
		{"SERVFAIL", nil, false, here(dns.RcodeServerFailure), reason.DNSFailure},
		{"gone", nil, true, here(dns.RcodeNameError), ""},
		{"gone without a name server", nil, true, cause.Reply{Asked: true, Failure: "timeout"}, reason.DNSUnreachable},
		{"still there", nil, true, here(dns.RcodeSuccess, "10.0.0.1"), reason.DNSNotWithdrawn},
	} {
		got := Question{Zone: "clusterset.local", Want: tt.want, Gone: tt.gone}.Judge(tt.reply)
		if got.Code != tt.code || got.Evidence == "" {
			t.Errorf("%s: %+v, want code %q and evidence", tt.name, got, tt.code)
		}
	}
}

// The reply at an address tells a lost way from an address that two clusters use.
func TestConnection(t *testing.T) {
	q := Question{From: "east", Kind: Headless, Family: "IPv6", Says: "run east"}
	for _, tt := range []struct {
		network, said, failure string
		code                   reason.Code
	}{
		{"tcp", "run east", "", ""},
		{"tcp", "", "timeout", reason.NetworkTCP},
		{"udp", "", "refused", reason.NetworkUDP},
		{"udp", "run west", "", reason.NetworkOtherCluster},
	} {
		if got := q.JudgeReply(tt.network, "[fd00::1]:8080", tt.said, tt.failure); got.Code != tt.code {
			t.Errorf("%+v: code %q, want %q", tt, got.Code, tt.code)
		}
	}
	checks := q.Checks("west", Answer{TCP: &Outcome{}, UDP: &Outcome{Code: reason.NetworkUDP, Evidence: "refused"}})
	want := []Check{
		{From: "east", To: "west", Step: DNS, Kind: Headless, Family: "IPv6", Mark: OK},
		{From: "east", To: "west", Step: TCP, Kind: Headless, Family: "IPv6", Mark: OK},
		{From: "east", To: "west", Step: UDP, Kind: Headless, Family: "IPv6", Mark: Failed, Code: reason.NetworkUDP,
			Evidence: "refused"},
	}
	if !slices.Equal(checks, want) {
		t.Errorf("checks %+v, want %+v", checks, want)
	}
}
