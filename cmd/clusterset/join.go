package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin"
)

func newJoin(f *factory) *cobra.Command {
	o := admin.JoinDefaults()
	c := &cobra.Command{
		Use: "join", Short: "Make a cluster a member of the clusterset", Args: cobra.NoArgs,
		Long: `Make a cluster a member of the clusterset. On the broker, join creates the Member, a namespace, limits and rights. In the cluster, it
creates the missing CRDs, admission policies, a Secret with the credential for the broker, and last ClusterProperty clusterset.k8s.io.

If the cluster cannot join, for example because another cluster has its id, the command fails before it writes anything. You can run
it again at any time: after an interruption it does the rest, and on a member it applies changed flags.`,
		Example: `  clusterset join --context east --broker-context hub --cluster-id east --pod-cidr 10.1.0.0/16
  clusterset join --context west --broker-context hub --cluster-id kube-system-uid --vip-cidr auto`,
	}
	f.brokerFlags(c)
	out := f.outputFlags(c)
	joinFlags(c, &o)
	vip := c.Flags().String("vip", "derived", "vip `MODE` that the controller of the cluster will have: derived, cidr or none; cidr implies --vip-cidr auto")
	completeWords(c, "vip", "derived", "cidr", "none")
	completeWords(c, "endpoints", "pod_ip", "service_ip")
	completeWords(c, "vip-cidr", admin.VIPAuto, admin.VIPNone)
	completeWords(c, "cluster-id", admin.ByKubeSystem)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if o.WriteOptions, err = out.writeOptions(); err != nil {
			return err
		}
		if err := checkJoin(&o, *vip); err != nil {
			return err
		}
		onBroker, err := f.requireBroker()
		if err != nil {
			return err
		}
		onMember, err := f.member()
		if err != nil {
			return err
		}
		result, err := admin.Join(c.Context(), onBroker, onMember, o)
		if err != nil {
			return err
		}
		return out.finish(result, result.Warnings, afterJoin(result, o.Namespace))
	}
	return c
}

func joinFlags(c *cobra.Command, o *admin.JoinOptions) {
	f := c.Flags()
	f.StringVar(&o.ClusterID, "cluster-id", "", "`ID` of the cluster; "+admin.ByKubeSystem+" uses the UID of Namespace kube-system; default: the id in its ClusterProperty")
	f.StringVar(&o.ClusterSet, "clusterset", "", "`NAME` of the clusterset, the same for all members of a broker; default: the name that the other members have, or "+admin.DefaultClusterSet)
	f.StringVar(&o.Prefix, "namespace-prefix", "", "`PREFIX` of the broker namespace, at most 40 octets; default: "+admin.DefaultPrefix)
	f.StringVar(&o.Namespace, "controller-namespace", o.Namespace, "`NAMESPACE` of the controller in the cluster")
	f.StringArrayVar(&o.PodCIDRs, "pod-cidr", nil, "`CIDR` of pods, repeatable; other members accept only addresses in it; default: the pod CIDRs of the current Nodes")
	f.StringArrayVar(&o.ServiceCIDRs, "service-cidr", nil, "`CIDR` of Services, repeatable; default: the networks of the ServiceCIDR objects")
	f.BoolVar(&o.AllowOverlap, "allow-overlap", false, "allow that exported addresses are in networks of other members, which will not import them")
	f.StringVar(&o.VIPCIDR, "vip-cidr", "", "`CIDR` from which the cluster allocates clusterset IPs; auto chooses a free one, none gives it up; default: the one that the member has")
	f.StringVar(&o.VIPPool, "vip-cidr-pool", o.VIPPool, "`CIDR` that contains the --vip-cidr of all members")
	f.StringVar(&o.Endpoints, "endpoints", "pod_ip", "`KIND` of address that the controller of the cluster will export: pod_ip or service_ip")
	f.StringVar(&o.BrokerServer, "broker-server", "", "`URL` by which the cluster reaches the broker; default: the one in the kubeconfig of the broker")
	f.DurationVar(&o.CredentialLife, "credential-life", o.CredentialLife, "longest `DURATION` for which a credential is valid, at least 10m; the controller renews it daily, or at half of that")
	usual := admin.DefaultQuota()
	f.Int64Var(&o.Quota.Exports, "quota-exports", 0, fmt.Sprintf("maximum `NUMBER` of services that the cluster may export; default: that of the member, or %d", usual.Exports))
	f.Int64Var(&o.Quota.Slices, "quota-slices", 0, fmt.Sprintf("maximum `NUMBER` of EndpointSlices that the cluster may export; default: that of the member, or %d", usual.Slices))
	f.Int64Var(&o.Quota.Leases, "quota-leases", 0, fmt.Sprintf("maximum `NUMBER` of Leases that the cluster may have on the broker; default: that of the member, or %d", usual.Leases))
	f.BoolVar(&o.AllowSameCluster, "allow-same-cluster", false, "allow that the broker and the cluster are the same; members can then read all EndpointSlices of it")
	f.BoolVar(&o.ReplaceBroker, "replace-broker", false, "join although the cluster joined another broker before, which this broker replaces")
}

func checkJoin(o *admin.JoinOptions, vip string) error {
	switch {
	case vip != "derived" && vip != "cidr" && vip != "none":
		return fmt.Errorf("--vip=%s: want derived, cidr or none", vip)
	case vip == "cidr" && o.VIPCIDR == admin.VIPNone:
		return fmt.Errorf("--vip=cidr and --vip-cidr=%s: want only one of them", o.VIPCIDR)
	case o.Endpoints != "pod_ip" && o.Endpoints != "service_ip":
		return fmt.Errorf("--endpoints=%s: want pod_ip or service_ip", o.Endpoints)
	case o.CredentialLife < 10*time.Minute:
		return fmt.Errorf("--credential-life=%s: want at least 10m", o.CredentialLife)
	case o.Quota.Exports < 0 || o.Quota.Slices < 0 || o.Quota.Leases < 0:
		return fmt.Errorf("quota of %d exports, %d slices, %d leases: want at least 1 of each, or 0 to leave it as it is", o.Quota.Exports, o.Quota.Slices, o.Quota.Leases)
	case vip == "cidr" && o.VIPCIDR == "":
		o.VIPCIDR = admin.VIPAuto
	}
	return nil
}

func afterJoin(j admin.JoinResult, namespace string) string {
	return fmt.Sprintf(`%[1]s is a member of clusterset %[2]s. Its credential is valid until %[4]s.
Next:
  1. Start the controller of the cluster, with Secret %[3]s/clusterset-broker mounted. Either in CoreDNS, with
     "broker FILE" in the clusterset block, or alone: clusterset controller --broker FILE
     FILE is the file "kubeconfig" in the folder of the Secret.
  2. clusterset export SERVICE -n NAMESPACE
  3. clusterset status`, j.ClusterID, j.ClusterSet, namespace, j.CredentialExpires.UTC().Format(time.RFC3339))
}
