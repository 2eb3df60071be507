package cause

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// checkResolvers follows a query of a Pod to the DNS server of the clusterset, by the configuration of the resolvers on
// its way.
func checkResolvers(w *walk) {
	const name = "resolver"
	switch w.in.Wiring.State {
	case NotAsked:
		return
	case Present:
	default:
		w.unknown(name, w.in.Wiring.Why)
		return
	}
	s := &w.in.Wiring.Value
	for i := range s.Resolvers {
		w.checkResolver(s, &s.Resolvers[i])
	}
	forwards := slices.ContainsFunc(s.Resolvers, func(r wiring.Resolver) bool {
		return r.Route == wiring.RouteWanted && !r.InProcess
	})
	if forwards && s.Problem != "" && len(s.Wanted) > 0 {
		w.fault(slices.ContainsFunc(s.Resolvers, func(r wiring.Resolver) bool { return w.answersFor(&r) }),
			"dns service", reason.DNSNoEndpoint, "%s", s.Problem)
	}
}

func (w *walk) checkResolver(s *Wiring, r *wiring.Resolver) {
	step := cmp.Or(r.Workload, "resolver")
	if w.answersFor(r) {
		w.ok(step, "it answers as it should")
		return
	}
	switch r.Route {
	case wiring.RouteNone:
		w.fault(s.behindCache(r), step, reason.DNSNotWired, "%s does not forward %s: %s", r.Name(), w.in.Zone,
			cmp.Or(r.Reason, "its configuration lacks the zone"))
	case wiring.RouteElsewhere:
		if len(s.Wanted) == 0 {
			w.fault(true, step, reason.DNSWiredElsewhere, "%s forwards %s, and what it forwards to could not be compared: %s",
				r.Name(), w.in.Zone, s.Problem)
			return
		}
		w.fault(s.behindCache(r), step, reason.DNSWiredElsewhere, "%s does not forward %s to %s", r.Name(),
			w.in.Zone, addressText(s))
	case wiring.RouteOther:
		if r.Kind == wiring.NodeLocal && w.asked() {
			w.unknown(step, "others have wired the zone, and a node cache cannot be asked: "+r.Reason)
			return
		}
		fallthrough
	case wiring.RouteWanted:
		w.ok(step, "it has the zone: %s", strings.Join(append([]string{cmp.Or(r.Reason, strings.Join(r.Evidence, "; "))},
			r.Diverted...), "; but "))
	default:
		why := cmp.Or(r.Reason, strings.Join(r.Warnings, "; "))
		switch found := r.Workload != "" || len(r.Addresses) > 0; {
		case found:
			w.unknown(step, why)
		case s.Unread != "":
			w.unknown(step, s.Unread)
		case w.askedRole(ClusterSetDNS): // and not the server that Pods ask
			w.unknown(step, why)
		default:
			w.skip(step, why)
		}
	}
}

// answersFor reports whether a resolver was asked, and each of its servers replied as it should: then its configuration
// does not matter.
func (w *walk) answersFor(r *wiring.Resolver) bool {
	asked := false
	for i := range w.in.Servers {
		s := &w.in.Servers[i]
		at, err := netip.ParseAddrPort(s.Name)
		switch {
		case s.Role == ClusterDNS && r.Kind != wiring.NodeLocal,
			err == nil && slices.Contains(r.Addresses, at.Addr().String()):
			if s.Unread != "" || w.serverFault(s).code != "" {
				return false
			}
			asked = true
		}
	}
	return asked
}

func addressText(s *Wiring) string {
	var all []string
	for _, a := range s.Wanted {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
}

// ndots is the kubelet's value for Pods without one in their dnsConfig.
const ndots = 5

// checkPods checks how a Pod completes the name.
func checkPods(w *walk) {
	var ask []string
	for i := range w.in.Wiring.Value.Resolvers {
		r := &w.in.Wiring.Value.Resolvers[i]
		if r.Kind == wiring.NodeLocal {
			ask = append(ask, "node-local-dns on their Node")
		} else {
			ask = append(ask, r.Addresses...)
		}
	}
	whom := ""
	if len(ask) > 0 {
		whom = " " + strings.Join(ask, " or ")
	}
	dots := strings.Count(strings.TrimSuffix(w.in.Name, "."), ".")
	order := "for the name in their search domains first, unless it ends with a dot"
	if dots >= ndots {
		order = "for the name as it is first"
	}
	step := Step{Name: "pods", Mark: OK}
	if len(w.in.Wiring.Value.Kubelet.Unknown) > 0 {
		step.Mark = Skipped
		if w.askedRole(ClusterDNS) {
			step.Mark = Unknown // other Pods ask a server that was not
		}
	}
	w.add(step, "Pods ask%s %s: it has %d dots, and the usual ndots is %d%s", whom, order, dots, ndots,
		kubeletText(&w.in.Wiring.Value.Kubelet))
}

// kubeletText names the DNS servers that the kubelets give to Pods.
func kubeletText(k *wiring.Kubelet) string {
	switch {
	case len(k.Unknown) > 0:
		return fmt.Sprintf(
			"; but clusterDNS in ConfigMap kube-system/kubelet-config has %s, which no DNS Service there and no node cache has: "+
				"Pods on Nodes with that configuration ask another server", strings.Join(k.Unknown, " and "))
	case len(k.Addresses) > 0:
		return "; clusterDNS in ConfigMap kube-system/kubelet-config has " + strings.Join(k.Addresses, " and ")
	}
	return ""
}
