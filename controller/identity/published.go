package identity

import (
	"cmp"
	"slices"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// Published returns the ClusterProperties of this cluster for the selectors of other members, sorted by name, and why
// others are left out (docs/spec/selection.md 2). Its Member has its id and clusterset. If a property never decoded
// since this process began, its value in before, the Member of this cluster or nil, counts.
func Published(c *member.Cluster, before *v1alpha1.Member) (properties []v1alpha1.Property, leftOut []string) {
	var all v1alpha1.MemberStatus
	for _, p := range c.Properties() {
		if p.Name != about.ClusterIDName && p.Name != about.ClusterSetName {
			all.Properties = append(all.Properties, v1alpha1.Property{Name: p.Name, Value: p.Spec.Value})
		}
	}
	all.Properties = append(all.Properties, unreadable(c, all.Properties, before)...)
	slices.SortFunc(all.Properties, func(a, b v1alpha1.Property) int { return cmp.Compare(a.Name, b.Name) })
	valid, rejected := all.ValidProperties()
	for _, p := range all.Properties {
		if _, ok := valid[p.Name]; ok {
			properties = append(properties, p)
		}
	}
	for _, err := range rejected {
		leftOut = append(leftOut, err.Error())
	}
	return properties, leftOut
}

// unreadable returns what before has of the ClusterProperties that do not decode and that known lacks.
func unreadable(c *member.Cluster, known []v1alpha1.Property, before *v1alpha1.Member) (all []v1alpha1.Property) {
	names := c.UnreadableProperties()
	if len(names) == 0 || before == nil {
		return nil
	}
	for _, p := range before.Status.Properties {
		same := func(q v1alpha1.Property) bool { return q.Name == p.Name }
		if slices.Contains(names, p.Name) && !slices.ContainsFunc(known, same) {
			all = append(all, p)
		}
	}
	return all
}
