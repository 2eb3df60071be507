package cause

import (
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/resolver/denial"
)

// checkQuestion finds out why the service lacks the requested records, if it does.
func checkQuestion(w *walk) {
	const name = "question"
	switch {
	case !w.expected.known:
		w.unknown(name, "what should be answered follows from objects that were not read")
		return
	case w.hasAnswer():
		w.ok(name, "%s", w.expected.text(w.in.Type))
		return
	case w.hasCause():
		w.skip(name, "the answer is "+w.expected.text(w.in.Type))
		return
	}
	if s := w.evaluated.Service; s != nil {
		if code, evidence := missingRecord(w, s); code != "" {
			w.wrong(name, code, "%s", evidence)
			return
		}
	}
	w.skip(name, "the answer is "+w.expected.text(w.in.Type))
}

func missingRecord(w *walk, s *index.Service) (reason.Code, string) {
	switch {
	case w.target.Port != "":
		return missingPort(w, s)
	case w.target.Left != "" && w.expected.outcome == resolver.NXDomain:
		return missingBelow(w, s)
	case w.in.Type == dns.TypeSRV:
		return reason.PortUnnamed, "none of its ports has a name"
	case w.target.Left == "" && denial.LeftOut(s, w.in.Type):
		return reason.ClusterNotSelected, "other clusters have a " + dns.TypeToString[w.in.Type] + " record; " + clustersOf(s)
	case w.in.Type == dns.TypeA:
		return reason.FamilyMissing, "it has no IPv4 address"
	case w.in.Type == dns.TypeAAAA:
		return reason.FamilyMissing, "it has no IPv6 address"
	}
	return "", ""
}

func missingPort(w *walk, s *index.Service) (reason.Code, string) {
	all := denial.Ports(s)
	if w.target.Left != "" && len(all) > 0 {
		if _, ok := s.Cluster(w.target.Left); !ok {
			return reason.ClusterUnknown, w.target.Left + " has no endpoint of the service; " + clustersOf(s)
		}
	}
	code, other := denial.MissedPort(s, &w.target)
	switch code {
	case reason.PortUnnamed:
		return code, "none of its ports has a name"
	case reason.PortProtocol:
		return code, "it has the port " + other
	}
	return code, "it has the ports " + shortList(all)
}

func clustersOf(s *index.Service) string {
	var all []string
	for c := range s.Clusters() {
		if id := s.ClusterID(c); id != "" {
			all = append(all, id)
		}
	}
	return "the clusters with endpoints are " + shortList(all)
}

// missingBelow finds out why a host or cluster does not exist.
func missingBelow(w *walk, s *index.Service) (reason.Code, string) {
	cluster := w.clusterAsked()
	host := strings.TrimSuffix(strings.TrimSuffix(w.target.Left, cluster), ".")
	switch {
	case cluster == "" && denial.HasHost(s, host):
		return reason.HostWithoutCluster, host + " is a host; " + clustersOf(s)
	case cluster == "":
		return reason.ClusterUnknown, w.target.Left + " is no cluster of the service; " + clustersOf(s)
	case host != "" && s.Type() != index.Headless:
		return reason.HostNeedsHeadless, "the service is of type ClusterSetIP"
	case host != "" && hasUnreadyHost(w, cluster, host):
		return reason.HostNotReady, host + " is an endpoint that is not ready"
	case host != "":
		return reason.HostUnknown, host + " is no host; " + cluster + " has " + shortList(hostsOf(s, cluster))
	}
	return "", ""
}

func hostsOf(s *index.Service, cluster string) (all []string) {
	c, ok := s.Cluster(cluster)
	if !ok {
		return nil
	}
	for h := range s.Hosts(c) {
		all = append(all, s.HostLabel(h))
	}
	return all
}

func hasUnreadyHost(w *walk, cluster, host string) bool {
	for _, slice := range w.in.Here.Slices.Value {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if sourceOf(slice) == cluster && !broker.IsReady(e.Conditions) && e.Hostname != nil &&
				strings.EqualFold(*e.Hostname, host) {
				return true
			}
		}
	}
	return false
}
