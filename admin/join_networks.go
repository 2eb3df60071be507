package admin

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

// checkNetworks returns an error if an address that this cluster exports could be one of another member, or the other way round: no
// cluster imports addresses in its own networks, whose traffic would go to its own Pods and Services (docs/spec/controller.md 9.3).
// Service CIDRs of clusters that export Pods may be the same.
func (in *joinInput) checkNetworks(id string) error {
	if in.options.AllowOverlap {
		return nil
	}
	if o := in.overlapping(id); o != "" {
		return errors.New(o + ": want networks that no other member has; with --allow-overlap no endpoint in both is imported")
	}
	return nil
}

// overlapping says which network that this cluster declares overlaps with one of another member, "" if none does.
func (in *joinInput) overlapping(id string) string {
	for i := range in.members {
		m := &in.members[i]
		if m.Name == id {
			continue
		}
		pods, services := claimsOf(m.Spec.PodCIDRs, m.Name), claimsOf(m.Spec.ServiceCIDRs, m.Name)
		againstPods, againstServices := slices.Concat(pods, services), pods
		if in.options.Endpoints == "service_ip" {
			againstPods, againstServices = services, slices.Concat(pods, services)
		}
		for _, p := range in.pods {
			if other, ok := overlap(p, againstPods); ok {
				return fmt.Sprintf("pod CIDR %s overlaps with %s of %s", p, other.network, other.by)
			}
		}
		for _, p := range in.services {
			if other, ok := overlap(p, againstServices); ok {
				return fmt.Sprintf("service CIDR %s overlaps with %s of %s", p, other.network, other.by)
			}
		}
	}
	return ""
}

// claimsOf skips texts that are not networks: an administrator edited that Member by hand.
func claimsOf(cidrs []string, member string) []claim {
	var all []claim
	for _, text := range cidrs {
		if p, err := broker.ParsePrefix(text); err == nil {
			all = append(all, claim{p, fmt.Sprintf("member %q", member)})
		}
	}
	return all
}

// requestedVIP returns the VIP CIDR that is asked for: a network, [VIPAuto], or "" for none. Without the option, a member keeps its
// VIP CIDR.
func (in *joinInput) requestedVIP(id string) string {
	own := in.member(id)
	switch {
	case in.options.VIPCIDR == VIPNone:
		return ""
	case in.options.VIPCIDR == "" && own != nil && own.Spec.VIPCIDR != "":
		return VIPAuto
	}
	return in.options.VIPCIDR
}

// needsRecords reports whether vipCIDR needs the records of all members, of which there may be tens of thousands.
func (in *joinInput) needsRecords(id string) bool {
	requested := in.requestedVIP(id)
	return requested != "" && (requested != VIPAuto || !ownsVIPCIDR(in.members, id))
}

// vipCIDR returns the network from which the cluster will allocate clusterset IPs, "" for none.
func (in *joinInput) vipCIDR(id string) (string, error) {
	claims, requested := in.vipClaims(id), in.requestedVIP(id)
	switch {
	case requested == "":
		return "", nil
	case requested == VIPAuto && ownsVIPCIDR(in.members, id):
		return in.member(id).Spec.VIPCIDR, nil
	}
	pool, err := broker.ParsePrefix(in.options.VIPPool)
	if err != nil {
		return "", fmt.Errorf("vip CIDR pool: %w", err)
	}
	if requested == VIPAuto {
		p, err := firstFree(pool, claims)
		return p.String(), err
	}
	p, err := broker.ParsePrefix(requested)
	if err != nil {
		return "", fmt.Errorf("vip CIDR: %w", err)
	}
	if !within(p, pool) {
		return "", fmt.Errorf("vip CIDR %s is not in %s: want a part of --vip-cidr-pool", p, pool)
	}
	if other, ok := overlap(p, claims); ok {
		return "", fmt.Errorf("vip CIDR %s overlaps with %s of %s: want a free network; --vip-cidr=%s chooses one", p, other.network, other.by, VIPAuto)
	}
	return p.String(), nil
}

// vipClaims lists the networks that the VIP CIDR of this cluster must not overlap with: those of all members, and addresses that a
// former member allocated and that a record still uses (docs/spec/controller.md 5).
func (in *joinInput) vipClaims(id string) []claim {
	all := claimsOf(slices.Concat(prefixStrings(in.pods), prefixStrings(in.services)), id)
	current := map[string]bool{id: true}
	for i := range in.members {
		m := &in.members[i]
		current[m.Name] = true
		if m.Name != id {
			all = append(all, claimsOf(slices.Concat(m.Spec.PodCIDRs, m.Spec.ServiceCIDRs, []string{m.Spec.VIPCIDR}), m.Name)...)
		}
	}
	for i := range in.records {
		vip := in.records[i].Spec.VIP
		if vip == nil || vip.AllocatedBy == "" || current[vip.AllocatedBy] {
			continue
		}
		for _, ip := range vip.IPs {
			if addr, err := broker.ParseAddress(ip); err == nil {
				by := fmt.Sprintf("former member %q, whose address is still in use", vip.AllocatedBy)
				all = append(all, claim{netip.PrefixFrom(addr, addr.BitLen()), by})
			}
		}
	}
	return all
}

// ownsVIPCIDR reports whether a member has a VIP CIDR that no older Member claims.
func ownsVIPCIDR(members []v1alpha1.Member, id string) bool {
	return slices.ContainsFunc(merge.Pools(members, netip.Prefix{}), func(p merge.Pool) bool {
		return p.Cluster == id && p.Prefix.IsValid()
	})
}

// warnings lists what an administrator should know although the cluster can join with this admission.
func (in *joinInput) warnings(a Admission) []string {
	var all []string
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	serviceIPs := in.options.Endpoints == "service_ip"
	switch {
	case serviceIPs && len(in.services) == 0:
		warn("no service CIDRs found: other members will accept no address of this cluster; join again with --service-cidr")
	case !serviceIPs && len(in.pods) == 0:
		warn("no pod CIDRs found: other members will accept no pod address of this cluster; join again with --pod-cidr")
	case !serviceIPs && slices.ContainsFunc(in.networkStates(), func(n NetworkState) bool { return n.PerNode }):
		warn("pod CIDRs are those of the current nodes: join again when nodes with other pod CIDRs are added, or give the whole network with --pod-cidr")
	}
	all = append(all, in.outsideWarnings()...)
	if others, member := in.otherClusterSet(a.ClusterID); others != "" && others != a.ClusterSet {
		warn("this cluster is in clusterset %q, but member %q of this broker is in %q: run \"clusterset leave\" and join again to have one name",
			a.ClusterSet, member, others)
	}
	if o := in.overlapping(a.ClusterID); o != "" {
		warn("%s: no endpoint in both is imported by a cluster that has that network", o)
	}
	return all
}

// networkStates lists the networks that will be declared, with their sources.
func (in *joinInput) networkStates() []NetworkState {
	return slices.Concat(
		statesOf("Pods", in.pods, in.found.Pods, given(in.options.PodCIDRs, "--pod-cidr")),
		statesOf("Services", in.services, in.found.Services, given(in.options.ServiceCIDRs, "--service-cidr")),
	)
}

// given returns the flag if it was given.
func given(cidrs []string, flag string) string {
	if len(cidrs) == 0 {
		return ""
	}
	return flag
}

func statesOf(of string, declared []netip.Prefix, found []networks.Network, flag string) []NetworkState {
	var all []NetworkState
	for _, p := range declared {
		var sources []string
		perNode := false
		for _, n := range found {
			if within(n.Prefix, p) && !slices.Contains(sources, n.Source) {
				sources = append(sources, n.Source)
			}
			perNode = perNode || n.PerNode && n.Prefix == p
		}
		source := cmp.Or(flag, strings.Join(sources, ", "), "declared by an earlier join")
		all = append(all, NetworkState{of, p.String(), source, perNode && flag == ""})
	}
	return all
}

// outsideWarnings says which Pods have addresses that will not be declared, and what could not be read to find that out.
func (in *joinInput) outsideWarnings() []string {
	var all []string
	if in.podsOutside.Count > 0 {
		all = append(all, fmt.Sprintf("%s: other members will not accept them; run %s",
			have(in.podsOutside, "running Pod", "networks of this cluster"), joinWith(prefixStrings(in.pods), in.podsOutside)))
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

// nodesNotice says that addresses of Nodes will not be declared, which is usual: they matter to Pods in the network of the host alone.
func (in *joinInput) nodesNotice() []string {
	if in.nodesOutside.Count == 0 {
		return nil
	}
	return []string{have(in.nodesOutside, "Node", "networks of this cluster") +
		": endpoints in the network of the host will not be exported, unless --pod-cidr has that network, too"}
}
