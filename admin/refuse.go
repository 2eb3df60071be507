package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// ByKubeSystem as a cluster id stands for the UID of the namespace kube-system, the value that KEP-2149 recommends.
const ByKubeSystem = "kube-system-uid"

// A scene is all that a join depends on.
type scene struct {
	o       JoinOptions
	local   local
	broker  types.UID
	members []v1alpha1.Member
	records []v1alpha1.ExportedService

	pods, services []netip.Prefix // as found, or as given
}

// clusterID returns the id that the cluster shall have, or why it cannot (section 7).
func (c *scene) clusterID() (string, error) {
	have, want := c.local.clusterID(), c.o.ClusterID
	if want == ByKubeSystem {
		want = string(c.local.uid)
	}
	switch {
	case want == "" && have == "":
		return "", fmt.Errorf("no cluster id: want --cluster-id, such as --cluster-id=%s for the UID of its namespace kube-system", ByKubeSystem)
	case want == "":
		want = have
	case have != "" && want != have && c.local.membership != nil:
		return "", fmt.Errorf("cluster id %q: this cluster is a member as %q; run \"clusterset leave\" first, or join as that", want, have)
	}
	if !broker.IsClusterID(want) {
		return "", fmt.Errorf("cluster id %q: want one RFC 1123 label, or two joined by a dot, of at most 63 octets", want)
	}
	return want, nil
}

// refuseBroker says why this broker is not one to join.
func (c *scene) refuseBroker() error {
	was := c.local.brokerUID()
	switch {
	case c.broker == c.local.uid && !c.o.AllowSameCluster:
		return errors.New("the broker is this cluster itself: want a control plane of its own, as all members can read it " +
			"(--allow-same-cluster, if that is meant)")
	case c.local.membership != nil && !marked(c.local.membership):
		return fmt.Errorf("this cluster is a member of clusterset %q by another hand: leave that first, so that ClusterProperty %s is gone",
			c.local.clusterSet(), c.local.membership.GetName())
	case was != "" && was != c.broker && !c.o.ReplaceBroker:
		return fmt.Errorf("this cluster is a member at the broker with kube-system UID %s, not at this one, %s: "+
			"run \"clusterset leave\" there first, with --force if it is gone, or join with --replace-broker if this one took its place", was, c.broker)
	case c.o.ClusterSet != "" && c.local.membership != nil && c.local.clusterSet() != c.o.ClusterSet:
		return fmt.Errorf("clusterset %q: this cluster is a member of %q; run \"clusterset leave\" first", c.o.ClusterSet, c.local.clusterSet())
	}
	return nil
}

// others returns the name of the clusterset that the other members are in, and one that says so; "" if none does. Should they
// disagree, the oldest counts.
func (c *scene) others(id string) (name, member string) {
	var oldest *v1alpha1.Member
	for i := range c.members {
		m := &c.members[i]
		if m.Name == id || m.Annotations[broker.AnnotationClusterSet] == "" {
			continue
		}
		if oldest == nil || m.CreationTimestamp.Before(&oldest.CreationTimestamp) {
			oldest = m
		}
	}
	if oldest == nil {
		return "", ""
	}
	return oldest.Annotations[broker.AnnotationClusterSet], oldest.Name
}

// clusterSet returns the name of the clusterset that this cluster is to be in, or why it cannot have it: one broker is one
// clusterset. A member keeps the name it has.
func (c *scene) clusterSet(id string) (string, error) {
	others, member := c.others(id)
	has := c.local.clusterSet()
	if m := c.own(id); has == "" && m != nil { // a join that was broken off before it told the cluster
		has = m.Annotations[broker.AnnotationClusterSet]
	}
	if c.o.ClusterSet != "" && others != "" && c.o.ClusterSet != others && c.o.ClusterSet != has {
		return "", fmt.Errorf("clusterset %q: want %q, which member %q of this broker is in, or no --clusterset", c.o.ClusterSet, others, member)
	}
	return cmp.Or(c.o.ClusterSet, has, others, DefaultClusterSet), nil
}

// refuseID says why this cluster cannot have the id.
func (c *scene) refuseID(id string) error {
	for i := range c.members {
		m := &c.members[i]
		own := m.Spec.KubeSystemUID == string(c.local.uid)
		if m.Name == id && !own {
			return fmt.Errorf("cluster id %q is taken by the cluster with kube-system UID %s: leave with that cluster first "+
				"(\"clusterset broker remove %s\" if it is gone), or choose another id", id, m.Spec.KubeSystemUID, id)
		}
		if m.Name != id && own {
			return fmt.Errorf("cluster id %q: this cluster has the id %q on the broker; run \"clusterset leave\" first, or join as that", id, m.Name)
		}
	}
	return nil
}

// own returns the Member that this cluster is already, or nil.
func (c *scene) own(id string) *v1alpha1.Member {
	i := slices.IndexFunc(c.members, func(m v1alpha1.Member) bool { return m.Name == id })
	if i < 0 {
		return nil
	}
	return &c.members[i]
}

// namespace returns the broker namespace of this cluster.
func (c *scene) namespace(id string) (string, error) {
	prefix := c.o.Prefix
	if prefix == "" {
		if m := c.own(id); m != nil {
			return m.Spec.Namespace, nil
		}
		prefix = DefaultPrefix
	}
	if !broker.IsLabel(prefix) || len(prefix) > 40 {
		return "", fmt.Errorf("namespace prefix %q: want an RFC 1123 label of at most 40 octets", prefix)
	}
	namespace := broker.NamespaceName(prefix, id)
	if m := c.own(id); m != nil && m.Spec.Namespace != namespace {
		return "", fmt.Errorf("namespace prefix %q: the broker namespace of this member is %s; run \"clusterset leave\" first", prefix, m.Spec.Namespace)
	}
	return namespace, nil
}

// refuseServiceCIDRs says why the cluster IPs of this cluster could be mistaken for those of another (section 9).
func (c *scene) refuseServiceCIDRs(id string) error {
	if c.o.Endpoints != "service_ip" {
		return nil
	}
	var claims []claim
	for i := range c.members {
		if m := &c.members[i]; m.Name != id {
			claims = append(claims, claimsOf(m.Spec.ServiceCIDRs, m.Name)...)
		}
	}
	for _, p := range c.services {
		if other, ok := overlap(p, claims); ok {
			return fmt.Errorf("service CIDR %s overlaps with %s of %s: with --endpoints=service_ip every member needs its own", p, other.network, other.by)
		}
	}
	return nil
}

// claimsOf ignores what is no network: an admin wrote it past us.
func claimsOf(cidrs []string, member string) []claim {
	var all []claim
	for _, text := range cidrs {
		if p, err := broker.ParsePrefix(text); err == nil {
			all = append(all, claim{p, fmt.Sprintf("member %q", member)})
		}
	}
	return all
}

// The values of [JoinOptions].VIPCIDR that are no network.
const (
	VIPAuto = "auto" // the one it has, or the first that is free
	VIPNone = "none"
)

// vipWanted returns what of VIP CIDR is asked for: a network, [VIPAuto], or "" for none. A member that has one keeps having
// one.
func (c *scene) vipWanted(id string) string {
	own := c.own(id)
	switch {
	case c.o.VIPCIDR == VIPNone:
		return ""
	case c.o.VIPCIDR == "" && own != nil && own.Spec.VIPCIDR != "":
		return VIPAuto
	}
	return c.o.VIPCIDR
}

// vipCIDR returns the network that the cluster shall allocate clusterset IPs from, "" for none, or why it cannot have it.
func (c *scene) vipCIDR(id string) (string, error) {
	claims, want := c.vipClaims(id), c.vipWanted(id)
	switch {
	case want == "":
		return "", nil
	case want == VIPAuto && holdsVIPCIDR(c.members, id):
		return c.own(id).Spec.VIPCIDR, nil
	}
	pool, err := broker.ParsePrefix(c.o.VIPPool)
	if err != nil {
		return "", fmt.Errorf("vip cidr pool: %w", err)
	}
	if want == VIPAuto {
		p, err := firstFree(pool, claims)
		return p.String(), err
	}
	p, err := broker.ParsePrefix(want)
	if err != nil {
		return "", fmt.Errorf("vip cidr: %w", err)
	}
	if !within(p, pool) {
		return "", fmt.Errorf("vip CIDR %s is not in %s: want a part of --vip-cidr-pool", p, pool)
	}
	if other, ok := overlap(p, claims); ok {
		return "", fmt.Errorf("vip CIDR %s overlaps with %s of %s: want one that is free, such as --vip-cidr=%s picks", p, other.network, other.by, VIPAuto)
	}
	return p.String(), nil
}

// vipClaims lists what no VIP of this cluster may lie in: the networks of all members, and what a member that left has
// allocated while a record names it (section 5).
func (c *scene) vipClaims(id string) []claim {
	all := claimsOf(slices.Concat(texts(c.pods), texts(c.services)), id)
	current := map[string]bool{id: true}
	for i := range c.members {
		m := &c.members[i]
		current[m.Name] = true
		if m.Name != id {
			all = append(all, claimsOf(slices.Concat(m.Spec.PodCIDRs, m.Spec.ServiceCIDRs, []string{m.Spec.VIPCIDR}), m.Name)...)
		}
	}
	for i := range c.records {
		vip := c.records[i].Spec.VIP
		if vip == nil || vip.AllocatedBy == "" || current[vip.AllocatedBy] {
			continue
		}
		for _, ip := range vip.IPs {
			if addr, err := broker.ParseAddress(ip); err == nil {
				by := fmt.Sprintf("%q, which left and whose addresses are in use", vip.AllocatedBy)
				all = append(all, claim{netip.PrefixFrom(addr, addr.BitLen()), by})
			}
		}
	}
	return all
}

// holdsVIPCIDR reports whether a member has a VIP CIDR that none before it had.
func holdsVIPCIDR(members []v1alpha1.Member, id string) bool {
	return slices.ContainsFunc(merge.Pools(members, netip.Prefix{}), func(p merge.Pool) bool {
		return p.Cluster == id && p.Prefix.IsValid()
	})
}
