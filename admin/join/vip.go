package join

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// chooseVIP decides on the option "vip" of the controller of the cluster (docs/spec/controller.md 7.9): given by a flag
// or an earlier join, else cidr if the cluster has a VIP CIDR, else that of the clusterset, else derived. It completes
// the options about VIP CIDRs accordingly.
func (in *joinInput) chooseVIP(given string) error {
	o := &in.options
	chosen, err := merge.ParseVIPSetting(strings.Fields(cmp.Or(given, string(merge.Derived))))
	if err != nil {
		return fmt.Errorf("vip: %w", err)
	}
	switch {
	case given != "" || o.VIPCIDR == CIDRNone:
	case in.hasVIPCIDR(): // the controller was started otherwise before
		chosen.Mode = merge.CIDR
	case in.clustersetVIP.Mode != "":
		chosen, in.vipFromClusterset = in.clustersetVIP, true
		if chosen.Mode == merge.CIDR && o.VIPCIDR == "" {
			o.VIPCIDR = VIPAuto
		}
	}
	switch {
	case o.VIPPool != "":
		if chosen.Networks, err = merge.ParseVIPNetworks(strings.Split(o.VIPPool, ",")); err != nil {
			return fmt.Errorf("vip CIDR pool: %w", err)
		}
	case in.clustersetVIP.Mode == merge.CIDR && (given == "" || o.Values.VIP != ""):
		chosen.Networks = in.clustersetVIP.Networks
	}
	in.vip, o.VIPPool = chosen, chosen.Networks.String()
	return nil
}

func (in *joinInput) hasVIPCIDR() bool {
	id, err := in.clusterID() // without an id, decide has the error
	return err == nil && len(in.keptVIPCIDRs(id)) > 0
}

// vipWarnings lists differences from the clusterset, or the pool.
func (in *joinInput) vipWarnings(spec v1alpha1.MemberSpec) []string {
	var all []string
	if in.clustersetVIP.Mode != "" && in.vip.String() != in.clustersetVIP.String() {
		all = append(all, fmt.Sprintf("this cluster has vip %s, and the clusterset has vip %s: run \"%s\" to have the same",
			in.vip, in.clustersetVIP, read.JoinWithVIP(in.clustersetVIP)))
	}
	if in.vip.Mode != merge.CIDR {
		return all
	}
	named, _ := parseCIDRs(spec.VIPCIDRs)
	for _, p := range named {
		if pool := in.vip.Networks.ForFamilyOf(p.Addr()); !networks.IsWithin(p, pool) {
			all = append(all, fmt.Sprintf(
				"the VIP CIDR %s is not in %s, the pool of all members: nothing is allocated from it; join with --vip-cidr=NETWORK, a free part of the pool", p, pool))
		}
	}
	return all
}
