package identity

import (
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// Published returns the ClusterProperties of this cluster that other members may select it by, sorted by name, and why others are left out
// (docs/spec/selection.md 2). Those of its id and its clusterset are known from its Member.
func Published(c *member.Cluster) (properties []v1alpha1.Property, leftOut []string) {
	var all v1alpha1.MemberStatus
	for _, p := range c.Properties() {
		if p.Name != about.ClusterIDName && p.Name != about.ClusterSetName {
			all.Properties = append(all.Properties, v1alpha1.Property{Name: p.Name, Value: p.Spec.Value})
		}
	}
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
