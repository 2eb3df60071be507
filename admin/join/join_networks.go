package join

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// declareNetworks sets the networks that the cluster will declare: those of the flags, of an earlier join, or those
// found in it.
func (in *joinInput) declareNetworks(id string) (err error) {
	declared, _ := in.declared(id)
	if in.pods, err = declaredCIDRs("pod", in.options.PodCIDRs, declared.PodCIDRs,
		networks.Prefixes(in.found.Pods)); err != nil {
		return err
	}
	if in.services, err = declaredCIDRs("service", in.options.ServiceCIDRs, declared.ServiceCIDRs,
		networks.Prefixes(in.found.Services)); err != nil {
		return err
	}
	if slices.Equal(in.options.LoadBalancerCIDRs, []string{CIDRNone}) {
		return nil
	}
	in.balancers, err = declaredCIDRs("load-balancer", in.options.LoadBalancerCIDRs, declared.LoadBalancerCIDRs, nil)
	return err
}

// admitNetworks adds the networks to an admission, or returns an error if another member has one of them.
func (in *joinInput) admitNetworks(a *Admission) (err error) {
	if err := in.checkNetworks(a.ClusterID); err != nil {
		return err
	}
	a.Spec.PodCIDRs, a.Spec.ServiceCIDRs = prefixStrings(in.pods), prefixStrings(in.services)
	a.Spec.LoadBalancerCIDRs = prefixStrings(in.balancers)
	a.Spec.VIPCIDRs, err = in.vipCIDRs(a.ClusterID)
	return err
}

// checkNetworks returns an error if an exported address of this cluster could be one of another member, or the other
// way round: no cluster imports addresses in its own networks, since the traffic would go to its own Pods and Services
// (docs/spec/controller.md 9.3). Service CIDRs of clusters that export Pods may be the same, and both networks of
// clusters that export load balancers.
func (in *joinInput) checkNetworks(id string) error {
	if in.options.AllowOverlap {
		return nil
	}
	if o := in.overlapping(id); o != "" {
		return errors.New(o +
			": want networks that no other member has, or --endpoints load_balancer for each member; with --allow-overlap no endpoint in both is imported")
	}
	return nil
}

// overlapping describes an overlap of this cluster's networks with those of another member, or is "". The other member
// counts as one that exports the same kind of addresses.
func (in *joinInput) overlapping(id string) string {
	for i := range in.members {
		m := &in.members[i]
		if m.Name == id {
			continue
		}
		pods, services := claimsOf(m.Spec.PodCIDRs, m.Name), claimsOf(m.Spec.ServiceCIDRs, m.Name)
		all, balancers := slices.Concat(pods, services), claimsOf(m.Spec.LoadBalancerCIDRs, m.Name)
		againstPods, againstServices := all, pods
		switch in.options.Endpoints {
		case broker.ServiceIP:
			againstPods, againstServices = services, all
		case broker.LoadBalancer:
			againstPods, againstServices = nil, nil
		}
		for _, own := range []struct {
			kind     string
			networks []netip.Prefix
			against  []claim
		}{
			{"pod", in.pods, slices.Concat(againstPods, balancers)},
			{"service", in.services, slices.Concat(againstServices, balancers)},
			{"load balancer", in.balancers, all},
		} {
			for _, p := range own.networks {
				if other, ok := overlappingClaim(p, own.against); ok {
					return fmt.Sprintf("%s CIDR %s overlaps with %s of %s", own.kind, p, other.network, other.by)
				}
			}
		}
	}
	return ""
}

// claimsOf returns the valid ones of a member's networks.
func claimsOf(cidrs []string, member string) []claim {
	var all []claim
	for _, p := range broker.Prefixes(cidrs) {
		all = append(all, claim{network: p, by: fmt.Sprintf("member %q", member)})
	}
	return all
}

// vipCIDRs returns the networks from which the cluster will allocate clusterset IPs, at most one of each IP family.
func (in *joinInput) vipCIDRs(id string) ([]string, error) {
	pools, err := merge.ParseVIPNetworks(strings.Split(cmp.Or(in.options.VIPPool, merge.DefaultVIPNetworks.String()), ","))
	if err != nil {
		return nil, fmt.Errorf("vip CIDR pool: %w", err)
	}
	var all []netip.Prefix
	switch requested := in.options.VIPCIDR; requested {
	case CIDRNone:
	case "", VIPAuto:
		all, err = in.keptOrFree(id, pools)
	default:
		all, err = in.givenVIPCIDRs(id, strings.Split(requested, ","), pools)
	}
	return prefixStrings(all), err
}

// keptOrFree returns the VIP CIDRs that the cluster has, and the first free one of each IP family that it lacks.
func (in *joinInput) keptOrFree(id string, pools merge.VIPNetworks) ([]netip.Prefix, error) {
	claims := slices.Concat(in.vipClaims(id), in.lostVIPClaims(id))
	all := in.keptVIPCIDRs(id)
	for _, v4 := range in.lackedVIPFamilies(id, all) {
		pool := pools.IPv6
		if v4 {
			pool = pools.IPv4
		}
		p, err := firstFree(pool, claims)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// keptVIPCIDRs returns the VIP CIDRs of the cluster, also those from before a restore of the broker, unless another
// member has them.
func (in *joinInput) keptVIPCIDRs(id string) []netip.Prefix {
	spec, since := in.declared(id)
	if m := in.member(id); m != nil && m.Stamp() == since {
		return ownVIPCIDRs(in.members, id)
	}
	had, _ := parseCIDRs(spec.VIPCIDRs) // invalid CIDRs are dropped
	claims := in.vipClaims(id)
	return slices.DeleteFunc(had, func(p netip.Prefix) bool { _, taken := overlappingClaim(p, claims); return taken })
}

// lackedVIPFamilies returns the IP families, true for IPv4, that still need a VIP CIDR: with [VIPAuto] the families of
// the Services, else those of VIP CIDRs that another member took.
func (in *joinInput) lackedVIPFamilies(id string, kept []netip.Prefix) []bool {
	var wanted []bool
	if in.options.VIPCIDR == VIPAuto {
		wanted = familiesOf(in.services)
		if len(wanted) == 0 {
			wanted = []bool{true}
		}
	} else {
		spec, _ := in.declared(id)
		named, _ := parseCIDRs(spec.VIPCIDRs) // invalid CIDRs are dropped
		wanted = familiesOf(named)
	}
	has := familiesOf(kept)
	return slices.DeleteFunc(wanted, func(v4 bool) bool { return slices.Contains(has, v4) })
}

// familiesOf returns the IP families of networks, true for IPv4, which comes first.
func familiesOf(all []netip.Prefix) []bool {
	var families []bool
	for _, v4 := range []bool{true, false} {
		if slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Addr().Is4() == v4 }) {
			families = append(families, v4)
		}
	}
	return families
}

// givenVIPCIDRs returns the VIP CIDRs that the administrator chose, if they are free and parts of the pools.
func (in *joinInput) givenVIPCIDRs(id string, texts []string, pools merge.VIPNetworks) ([]netip.Prefix, error) {
	all, err := parseCIDRs(texts)
	if err != nil {
		return nil, fmt.Errorf("vip CIDR: %w", err)
	}
	if len(all) > len(familiesOf(all)) {
		return nil, fmt.Errorf("vip CIDRs %s: want at most one of each IP family", strings.Join(texts, ","))
	}
	for _, p := range all {
		if pool := pools.ForFamilyOf(p.Addr()); !networks.IsWithin(p, pool) {
			return nil, fmt.Errorf("vip CIDR %s is not in %s: want a part of --vip-cidr-pool", p, pool)
		}
		if other, ok := overlappingClaim(p, in.vipClaims(id)); ok {
			return nil, fmt.Errorf("vip CIDR %s overlaps with %s of %s: want a free network; --vip-cidr=%s chooses one", p,
				other.network, other.by, VIPAuto)
		}
	}
	return all, nil
}

// vipClaims lists the networks that the VIP CIDR of this cluster must not overlap with: those of the cluster and of all
// members.
func (in *joinInput) vipClaims(id string) []claim {
	all := claimsOf(prefixStrings(slices.Concat(in.pods, in.services, in.balancers)), id)
	for i := range in.members {
		m := &in.members[i]
		if m.Name != id {
			all = append(all, claimsOf(slices.Concat(m.Spec.CIDRs(), m.Spec.VIPCIDRs), m.Name)...)
		}
	}
	return all
}

// lostVIPClaims lists the noted VIP CIDRs of members without a Member: they will join again.
func (in *joinInput) lostVIPClaims(id string) []claim {
	var all []claim
	for other, noted := range in.noted.Members {
		if other != id && in.member(other) == nil {
			all = append(all, claimsOf(noted.VIPCIDRs, other)...)
		}
	}
	return all
}

// ownVIPCIDRs returns the VIP CIDRs of a member that no older Member claims, in the order of its list.
func ownVIPCIDRs(members []v1alpha1.Member, id string) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range merge.Pools(members, merge.VIPNetworks{}) {
		if p.Cluster == id {
			all = append(all, p.Prefix)
		}
	}
	return all
}

// warnings lists what an administrator should know although the cluster can join with this admission.
func (in *joinInput) warnings(a Admission) []string {
	var all []string
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	serviceIPs := in.options.Endpoints == broker.ServiceIP
	switch {
	case in.options.Endpoints == broker.LoadBalancer:
		if len(in.balancers) == 0 {
			warn("no load balancer CIDRs: other members will accept no address of this cluster; join again with --load-balancer-cidr")
		}
	case serviceIPs && len(in.services) == 0:
		warn("no service CIDRs found: other members will accept no address of this cluster; join again with --service-cidr")
	case !serviceIPs && len(in.pods) == 0:
		warn("no pod CIDRs found: other members will accept no pod address of this cluster; join again with --pod-cidr")
	case !serviceIPs && slices.ContainsFunc(in.networkStates(), func(n networks.Declared) bool { return n.PerNode }):
		warn("pod CIDRs are those of the current nodes: join again when nodes with other pod CIDRs are added, or give the whole network with --pod-cidr")
	}
	all = append(all, in.outsideWarnings()...)
	if others, member := in.otherClusterSet(a.ClusterID); others != "" && others != a.ClusterSet {
		warn("this cluster is in clusterset %q, but member %q of this broker is in %q: run \"clusterset leave\" and join again to have one name",
			a.ClusterSet, member, others)
	}
	if families := familiesOf(in.services); len(families) == 2 && len(a.Spec.VIPCIDRs) == 1 {
		warn("the VIP CIDR %s is of one IP family, and this cluster has Services of both: with vip cidr they get clusterset IPs of that family alone; "+
			"join with --vip-cidr auto to have one of each", a.Spec.VIPCIDRs[0])
	}
	if o := in.overlapping(a.ClusterID); o != "" {
		warn("%s: no endpoint in both is imported by a cluster that has that network", o)
	}
	return all
}

// networkStates lists the networks that will be declared, with their sources.
func (in *joinInput) networkStates() []networks.Declared {
	return slices.Concat(
		statesOf("Pods", in.pods, in.found.Pods, in.options.PodCIDRs, "--pod-cidr"),
		statesOf("Services", in.services, in.found.Services, in.options.ServiceCIDRs, "--service-cidr"),
		statesOf("load balancers", in.balancers, nil, in.options.LoadBalancerCIDRs, "--load-balancer-cidr"),
	)
}

// statesOf lists networks with their source: a flag that was given, objects of the cluster, or an earlier join.
func statesOf(of string, declared []netip.Prefix, found []networks.Network, given []string,
	flag string) []networks.Declared {
	if len(given) == 0 {
		flag = ""
	}
	var all []networks.Declared
	for _, p := range declared {
		var sources []string
		perNode := false
		for _, n := range found {
			if networks.IsWithin(n.Prefix, p) && !slices.Contains(sources, n.Source) {
				sources = append(sources, n.Source)
			}
			perNode = perNode || n.PerNode && n.Prefix == p
		}
		source := cmp.Or(flag, strings.Join(sources, ", "), "declared by an earlier join")
		all = append(all, networks.Declared{Of: of, CIDR: p.String(), Source: source, PerNode: perNode && flag == ""})
	}
	return all
}

// outsideWarnings lists Pods with addresses that will not be declared, and failed reads.
func (in *joinInput) outsideWarnings() []string {
	var all []string
	if in.podsOutside.Count > 0 {
		all = append(all, fmt.Sprintf("%s: other members will not accept them; run %s",
			in.podsOutside.Phrase("networks of this cluster"), in.podsOutside.JoinWith(prefixStrings(in.pods))))
	}
	if in.podsUnread != "" {
		all = append(all, in.podsUnread)
	}
	if len(in.options.PodCIDRs) == 0 || len(in.options.ServiceCIDRs) == 0 {
		for _, text := range in.found.Unread {
			all = append(all, "networks are looked for without "+text)
		}
	}
	return all
}
