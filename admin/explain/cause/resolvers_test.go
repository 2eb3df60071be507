package cause

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/api/reason"
)

func TestResolvers(t *testing.T) {
	const dns, node = "deployment/coredns", "daemonset/node-local-dns"
	wanted := []netip.Addr{netip.MustParseAddr("10.96.0.53")}
	for name, tt := range map[string]struct {
		resolvers []wiring.Resolver
		wanted    []netip.Addr
		problem   string
		unread    string
		code      reason.Code
		step      string // in the chain: "<mark> <name>: <beginning of the evidence>"
	}{
		"wired": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteWanted, Evidence: []string{"a block"}}},
			wanted:    wanted,
			code:      reason.Resolves, step: "ok " + dns + ": it has the zone: a block",
		},
		"missing": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteNone}}, wanted: wanted,
			code: reason.DNSNotWired, step: "wrong " + dns +
				": deployment/coredns does not forward clusterset.local: its configuration lacks the zone",
		},
		"missing behind a node cache": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteNone},
				{Kind: wiring.NodeLocal, Workload: node, Route: wiring.RouteWanted}}, wanted: wanted,
			code: reason.DNSNotWired, step: "warning " + dns + ": ",
		},
		"missing in the node cache": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteWanted},
				{Kind: wiring.NodeLocal, Workload: node, Route: wiring.RouteNone}}, wanted: wanted,
			code: reason.DNSNotWired, step: "wrong " + node + ": ",
		},
		"by hand": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteNone, Reason: "Helm writes it"}}, wanted: wanted,
			code: reason.DNSNotWired, step: "wrong " + dns +
				": deployment/coredns does not forward clusterset.local: Helm writes it",
		},
		"not understood": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteUnknown, Reason: "line 3"}}, wanted: wanted,
			code: reason.NotReadable, step: "unknown " + dns + ": line 3",
		},
		"not read": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteUnknown,
				Warnings: []string{"it imports /zones/*"}}}, wanted: wanted,
			code: reason.NotReadable, step: "unknown " + dns + ": it imports /zones/*",
		},
		"no DNS server": {
			resolvers: []wiring.Resolver{{Route: wiring.RouteUnknown, Reason: "no Service"}}, code: reason.NotReadable,
			step: "unknown resolver: no Service",
		},
		"no DNS server, but perhaps another kind": {
			resolvers: []wiring.Resolver{{Route: wiring.RouteUnknown, Reason: "no Service"}}, unread: "cannot get dnses",
			code: reason.NotReadable, step: "unknown resolver: cannot get dnses",
		},
		"not ours": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteOther, Reason: "line 3 forwards it"}},
			wanted:    wanted,
			code:      reason.Resolves, step: "ok " + dns + ": it has the zone: line 3 forwards it",
		},
		"not ours in the node cache": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteWanted},
				{Kind: wiring.NodeLocal, Workload: node, Route: wiring.RouteOther, Reason: "line 3 forwards it"}}, wanted: wanted,
			code: reason.NotReadable, step: "unknown " + node + ": others have wired the zone, and a node cache cannot be asked",
		},
		"elsewhere": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteElsewhere},
				{Kind: wiring.NodeLocal, Workload: node, Route: wiring.RouteElsewhere}},
			wanted: wanted, code: reason.DNSWiredElsewhere,
			step: "wrong " + dns + ": deployment/coredns does not forward clusterset.local to 10.96.0.53",
		},
		"elsewhere, and no Service to compare with": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteElsewhere}}, problem: "it does not exist",
			code: reason.DNSWiredElsewhere, step: "warning " + dns +
				": deployment/coredns forwards clusterset.local, and what it forwards to could not be compared: it does not exist",
		},
		"no endpoint": {
			resolvers: []wiring.Resolver{{Workload: dns, State: wiring.Outdated, Route: wiring.RouteWanted}}, wanted: wanted,
			problem: "no ready endpoint",
			code:    reason.DNSNoEndpoint, step: "wrong dns service: no ready endpoint",
		},
		"no endpoint, and none is needed": {
			resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteWanted, InProcess: true}}, wanted: wanted,
			problem: "no ready endpoint",
			code:    reason.Resolves, step: "ok " + dns,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input()
			answered(in, ClusterSetDNS)
			in.Wiring = present(Wiring{Resolvers: tt.resolvers, Wanted: tt.wanted, Problem: tt.problem, Unread: tt.unread})
			wantStep(t, in, tt.code, tt.step)
		})
	}
	in := input()
	in.Wiring = present(Wiring{Resolvers: []wiring.Resolver{{Workload: dns, Route: wiring.RouteNone,
		Addresses: []string{"10.96.0.10"}}}, Wanted: wanted})
	answer := Reply{Asked: true, Values: []string{"10.1.0.1"}}
	in.Servers = []Server{{Name: "10.96.0.10:53", UDP: answer, TCP: answer}}
	wantStep(t, in, reason.Resolves, "ok "+dns+": it answers as it should")

	in = input()
	answered(in, ClusterSetDNS)
	in.Wiring = Read[Wiring]{State: Forbidden, Why: "list deployments"}
	wantStep(t, in, reason.NotReadable, "unknown resolver: list deployments")
}

func TestPods(t *testing.T) {
	in := input()
	answered(in, ClusterSetDNS)
	in.Wiring = present(Wiring{Resolvers: []wiring.Resolver{
		{Workload: "deployment/coredns", Addresses: []string{"10.96.0.10", "fd00::a"}, Route: wiring.RouteWanted},
		{Kind: wiring.NodeLocal, Workload: "daemonset/node-local-dns", Route: wiring.RouteWanted},
	}})
	wantStep(t, in, reason.Resolves,
		"ok pods: Pods ask 10.96.0.10 or fd00::a or node-local-dns on their Node for the name in their search domains first, "+
			"unless it ends with a dot: it has 4 dots, and the usual ndots is 5")
	const ask = " pods: Pods ask for the name in their search domains first, unless it ends with a dot: it has 4 dots, and the usual ndots is 5; "
	in.Wiring = present(Wiring{Kubelet: wiring.Kubelet{Addresses: []string{"169.254.20.10", "10.96.0.10"}}})
	wantStep(t, in, reason.Resolves,
		"ok"+ask+"clusterDNS in ConfigMap kube-system/kubelet-config has 169.254.20.10 and 10.96.0.10")
	in.Wiring.Value.Kubelet.Unknown = []string{"10.96.0.10"}
	wantStep(t, in, reason.Resolves,
		"skipped"+ask+"but clusterDNS in ConfigMap kube-system/kubelet-config has 10.96.0.10, which no DNS Service there and no node cache has")
	in.Wiring = Read[Wiring]{}
	in.Name = "db-0.east.db.shop.svc.clusterset.local."
	answered(in, ClusterSetDNS)
	wantStep(t, in, reason.Resolves,
		"ok pods: Pods ask for the name as it is first: it has 6 dots, and the usual ndots is 5")
}

// wantStep fails the test unless the verdict has the code and a step begins so.
func wantStep(t *testing.T, in *Input, code reason.Code, step string) {
	t.Helper()
	r := Find(*in)
	if r.Verdict.Code != code {
		t.Errorf("verdict %+v, want %s", r.Verdict, code)
	}
	var all []string
	for _, s := range r.Chain {
		all = append(all, string(s.Mark)+" "+s.Name+": "+s.Evidence)
		if strings.HasPrefix(all[len(all)-1], step) {
			return
		}
	}
	t.Errorf("chain:\n%s\nwant a step that begins with %s", strings.Join(all, "\n"), step)
}
