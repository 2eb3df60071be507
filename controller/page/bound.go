package page

import (
	"fmt"
	"slices"
)

// names returns the first of many names, clean, and how many are left out as the last one.
func names(all []string) []string {
	visible := []string{}
	for _, name := range all[:min(len(all), maxNames)] {
		visible = append(visible, clean(name, maxName))
	}
	if rest := len(all) - len(visible); rest > 0 {
		visible = append(visible, fmt.Sprintf("and %d more", rest))
	}
	return visible
}

// first returns a copy of at most n items, each changed.
func first[T any](all []T, n int, change func(*T)) []T {
	visible := append([]T{}, all[:min(len(all), n)]...)
	for i := range visible {
		change(&visible[i])
	}
	return visible
}

// Bound returns what of s is shown: all texts clean and short, all lists cut. It shares nothing that it changes with s.
func (s Status) Bound() Status {
	s.Instance, s.Version, s.Cluster = clean(s.Instance, maxName), clean(s.Version, maxName), clean(s.Cluster, maxName)
	s.State.Detail, s.Broker.Detail = clean(s.State.Detail, maxText), clean(s.Broker.Detail, maxText)
	s.Frozen = first(s.Frozen, len(s.Frozen), func(f *Freeze) { f.Detail = clean(f.Detail, maxText) })
	s.Failed = first(s.Failed, maxFailed, cleanService)
	if s.DNS != nil {
		s.DNS = &DNS{Service: clean(s.DNS.Service, maxName), Ready: s.DNS.Ready}
	}
	s.Problems = s.problems()
	// Members that need attention are not cut off.
	s.Members = slices.Clone(s.Members)
	slices.SortStableFunc(s.Members, func(a, b Member) int { return a.State.order() - b.State.order() })
	s.Members = first(s.Members, maxMembers, func(m *Member) {
		m.ID, m.Version = clean(m.ID, maxName),
			clean(m.Version, maxName)
	})
	s.Conflicts = first(s.Conflicts, maxConflicts, func(c *Conflict) {
		c.Service, c.Reasons, c.Detail = clean(c.Service, maxName), clean(c.Reasons, maxText), clean(c.Detail, maxText)
	})
	s.Selections = first(s.Selections, maxSelections, func(c *Selection) {
		c.Service, c.Port, c.Clusters = clean(c.Service, maxName), clean(c.Port, maxName), names(c.Clusters)
		c.Prefers = clean(c.Prefers, maxText)
	})
	s.Services.Filter = clean(s.Services.Filter, maxFilter)
	s.Services.Rows = first(s.Services.Rows, perPage, cleanService)
	return s
}

func cleanService(r *Service) {
	r.Name, r.Type, r.State = clean(r.Name, maxName), clean(r.Type, maxName), clean(r.State, maxText)
	r.Addresses, r.Exporters = names(r.Addresses), names(r.Exporters)
}

// order is the place of members in this state in their list.
func (s MemberState) order() int {
	return slices.Index([]MemberState{Self, Expired, NoHeartbeat, Live}, s)
}
