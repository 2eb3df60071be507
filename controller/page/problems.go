package page

import (
	"cmp"
	"fmt"
	"strings"
)

// problems lists the problems that the leader knows. s is bounded.
func (s Status) problems() []Problem {
	all := []Problem{}
	add := func(run, format string, args ...any) {
		all = append(all, Problem{fmt.Sprintf(format, args...), "clusterset " + run})
	}
	switch {
	case !s.State.Leads:
		return all
	case s.Cluster == "":
		add("status", "This cluster is not a member of a clusterset.")
	case !s.Broker.Connected:
		add("status", "Broker: %s", cmp.Or(s.Broker.Detail, "not connected"))
	}
	if s.Broker.CredentialEnds {
		add("status", "The broker credential expires at %s, and its renewal fails.", stamp(s.Broker.CredentialExpires))
	}
	if s.DNS != nil && s.DNS.Ready == 0 {
		add("dns status", "No DNS server behind Service %s is ready.", s.DNS.Service)
	}
	for _, f := range s.Frozen {
		add("status", "Frozen (%s), for %s: %s; suspended: %s [%s]", f.Reason, duration(max(s.At.Sub(f.Since), 0)), f.Detail,
			f.Suspends, f.Code)
	}
	if s.Counts.Expired > 0 {
		add("status", "%s silent: the heartbeat has expired", count(s.Counts.Expired, "member"))
	}
	for _, f := range s.Failed {
		namespace, name, _ := strings.Cut(f.Name, "/")
		add(fmt.Sprintf("explain %s.%s", name, namespace), "%s: %s", f.Name, f.State)
	}
	if more := s.Counts.Failed - len(s.Failed); more > 0 {
		add("status", "%s more: the export or import failed", count(more, "service"))
	}
	return all
}
