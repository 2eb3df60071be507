package dns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/wiring"
)

// CheckZone returns an error if another zone is served than the one to forward.
func (s *State) CheckZone() error {
	if len(s.Server.Zones) == 0 || slices.Contains(s.Server.Zones, s.Zone) || s.InProcess() {
		return nil
	}
	return fmt.Errorf("zone %q: the DNS server of the clusterset serves %s", s.Zone, strings.Join(s.Server.Zones, ", "))
}

// evaluate lists the faults. An answer decides: a configuration that is not as we would write it is no fault if all
// Pods of the cluster's DNS server answer with it.
func (s *State) evaluate() {
	wired, answered := true, s.answered(cause.ClusterDNS)
	for i := range s.Resolvers {
		r := &s.Resolvers[i]
		text := problem(r, s.Zone)
		switch {
		case text != "" && answered && r.Kind != wiring.NodeLocal:
			s.Warnings = append(s.Warnings, text)
		case text != "":
			wired = false
			s.Problems = append(s.Problems, text)
		}
		for _, text := range r.Diverted {
			s.Problems = append(s.Problems, r.Name()+": "+text)
		}
		for _, text := range r.Warnings {
			s.Warnings = append(s.Warnings, r.Name()+": "+text)
		}
	}
	// A zone that is served in the process of the resolver needs no server.
	named := s.Server.Problem != "" && (!wired || len(s.Server.Addresses) > 0)
	if named {
		s.Problems = append(s.Problems, s.Server.Problem)
	}
	for _, a := range s.Answers {
		switch {
		case a.Unread != "":
			s.Unread = append(s.Unread, a.Server+": "+a.Unread)
		case a.Error != "" && a.Role == cause.ClusterSetDNS && named:
		case a.Error != "":
			s.Problems = append(s.Problems, a.String())
		case !a.Wired && (wired || a.Role == cause.ClusterSetDNS):
			s.Problems = append(s.Problems, fmt.Sprintf("%s to dns-version.%s TXT: want NOERROR and a version", a, s.Zone))
		}
	}
}

// byHand lists the resolvers that an edit does not wire.
func (s *State) byHand() {
	for i := range s.Resolvers {
		if r := &s.Resolvers[i]; r.State == wiring.Taken || r.State == wiring.Manual {
			s.Problems = append(s.Problems, problem(r, s.Zone))
		}
	}
}

// problem returns the fault of a resolver, or "" if it is wired.
func problem(r *wiring.Resolver, zone string) string {
	switch r.State {
	case wiring.Missing:
		return r.Name() + " does not forward " + zone + ": run \"clusterset dns apply\""
	case wiring.Outdated:
		return r.Name() + " does not forward " + zone + " as is wanted now: run \"clusterset dns apply\""
	case wiring.Taken:
		return r.Name() + " is left alone: " + r.Reason
	case wiring.Manual:
		return r.Name() + " needs an edit by hand: " + r.Reason
	}
	return ""
}
