package dns

import (
	"context"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/admin/ask"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/wiring"
)

// Ask asks all ready Pods of the cluster's DNS server and of the clusterset's. It skips the latter if the former serves
// the zone itself. A part of a state that could be read suffices.
func (s *State) Ask(ctx context.Context, c *read.Cluster, q ask.Question) []cause.Server {
	var ofCluster, ofClusterSet []cause.Server
	read.Parallel(func() {
		if s.clusterService != nil {
			ofCluster = ask.Service(ctx, c, q, s.clusterService, cause.ClusterDNS)
			unforwarded(ofCluster, slices.ContainsFunc(s.Resolvers, func(r wiring.Resolver) bool {
				return r.Bound && r.Kind != wiring.NodeLocal
			}))
		}
	}, func() {
		if s.Server.object != nil && !s.InProcess() {
			ofClusterSet = ask.Service(ctx, c, q, s.Server.object, cause.ClusterSetDNS)
			unforwarded(ofClusterSet, s.Server.bound)
		}
	})()
	return slices.Concat(ofClusterSet, ofCluster)
}

// unforwarded marks servers that rejected the connection as not asked, if their Corefile binds other addresses.
func unforwarded(servers []cause.Server, bound bool) {
	for i := range servers {
		if s := &servers[i]; bound && strings.Contains(s.TCP.Failure, "refused") {
			s.TCP, s.Unread = cause.Reply{}, "its Corefile binds addresses without loopback, to which its port is forwarded"
		}
	}
}

// InProcess reports whether a resolver serves the zone itself.
func (s *State) InProcess() bool {
	return slices.ContainsFunc(s.Resolvers, func(r wiring.Resolver) bool { return r.InProcess })
}

// ask asks the resolver that the user named or else all DNS servers.
func (w *wirer) ask(ctx context.Context, s *State) {
	q := ask.Question{Name: "dns-version." + s.Zone, Type: dns.TypeTXT}
	var asked []cause.Server
	if w.o.Ask != "" {
		asked = ask.Addresses(ctx, q, []string{w.o.Ask})
	} else {
		asked = s.Ask(ctx, w.Cluster, q)
	}
	s.Answers = nil
	for i := range asked {
		s.Answers = append(s.Answers, answerOf(&asked[i]))
	}
}

func answerOf(s *cause.Server) Answer {
	a := Answer{Server: s.Name, Role: s.Role, Unread: s.Unread}
	r := s.Reply()
	if a.Error = r.Failure; r.Asked && r.Failure == "" {
		a.Response = dns.RcodeToString[r.Rcode]
		if len(r.Values) > 0 && r.Rcode == dns.RcodeSuccess {
			a.Response += " " + r.Values[0]
			a.Wired = true
		}
	}
	return a
}

// answered reports whether servers with a role were asked, and each answers for a DNS server of a clusterset.
func (s *State) answered(role cause.Role) bool {
	asked := false
	for _, a := range s.Answers {
		if a.Role == role {
			if !a.Wired {
				return false
			}
			asked = true
		}
	}
	return asked
}

// replied reports whether a resolver replied: then it will to another question.
func (a Answer) replied() bool { return a.Role != cause.ClusterSetDNS && a.Response != "" }

// unanswered returns the first resolver without the answer of a DNS server of a clusterset, or nil.
func (s *State) unanswered() *Answer {
	for i := range s.Answers {
		if a := &s.Answers[i]; a.Role != cause.ClusterSetDNS && a.Unread == "" && !a.Wired {
			return a
		}
	}
	return nil
}

// Answered reports whether resolvers were asked, and each gave the answer of a DNS server of a clusterset.
func (s *State) Answered() bool { return s.answered(cause.ClusterDNS) || s.answered(cause.Named) }

// String is a clause.
func (a Answer) String() string {
	switch {
	case a.Unread != "":
		return a.Server + " was not asked: " + a.Unread
	case a.Response == "":
		return a.Server + " does not answer: " + a.Error
	}
	return a.Server + " answers " + a.Response
}

// installed reports whether the cluster has the clusterset's DNS server, serves the zone in its own, or has an edit of
// ours.
func (s *State) installed() bool {
	return s.Server.object != nil || s.InProcess() ||
		slices.ContainsFunc(s.Resolvers, func(r wiring.Resolver) bool { return r.Undo != nil })
}
