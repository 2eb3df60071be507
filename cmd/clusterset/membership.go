package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin"
)

func newBroker(s *session) *cobra.Command {
	c := &cobra.Command{Use: "broker", Short: "Prepare a broker, or take a lost member out of it", Args: cobra.NoArgs, RunE: help}
	c.AddCommand(newBrokerInit(s), newBrokerRemove(s))
	return c
}

func newBrokerInit(s *session) *cobra.Command {
	var aggregateView bool
	c := &cobra.Command{
		Use: "init", Short: "Make an API server a broker: CRDs, rights and policies; none of our programs", Args: cobra.NoArgs,
		Example: "  clusterset broker init --broker-kubeconfig hub.yaml",
	}
	s.brokerFlags(c)
	out := s.outputFlags(c)
	c.Flags().BoolVar(&aggregateView, "aggregate-view", false, "with the CRD of ServiceImport, which members with aggregate_view need")
	c.RunE = func(c *cobra.Command, _ []string) error {
		w, err := out.writing()
		if err != nil {
			return err
		}
		config, err := s.mustBroker()
		if err != nil {
			return err
		}
		if err := admin.Init(c.Context(), config, admin.InitOptions{Writing: w, AggregateView: aggregateView}); err != nil {
			return err
		}
		return out.done(nil, nil, "The broker is ready. Next, for each cluster: clusterset join --cluster-id ID")
	}
	return c
}

func newBrokerRemove(s *session) *cobra.Command {
	var o admin.LeaveOptions
	c := &cobra.Command{
		Use: "remove ID", Short: "Take out a member whose cluster is gone", Args: oneMember,
		Example:           "  clusterset broker remove east --broker-kubeconfig hub.yaml",
		ValidArgsFunction: s.completeMembers,
	}
	s.brokerFlags(c)
	out := s.outputFlags(c)
	c.Flags().BoolVar(&o.Force, "force", false, "even while it renews its heartbeat")
	c.Flags().StringVar(&o.Prefix, "namespace-prefix", admin.DefaultPrefix, "`PREFIX` of its broker namespace, if its Member is gone")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if o.Writing, err = out.writing(); err != nil {
			return err
		}
		config, err := s.mustBroker()
		if err != nil {
			return err
		}
		left, err := admin.Remove(c.Context(), config, args[0], o)
		if err != nil {
			return err
		}
		return out.done(left, left.Warnings, fmt.Sprintf("%s is no member any more, and its id is free. "+
			"Should the cluster come back: clusterset leave --force there.", args[0]))
	}
	return c
}

// oneMember wants a cluster id as the only argument.
func oneMember(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: %d arguments: want ID, that of one member", c.Name(), len(args))
	}
	return nil
}

func newJoin(s *session) *cobra.Command {
	o := admin.JoinDefaults()
	c := &cobra.Command{
		Use: "join", Short: "Make a cluster a member", Args: cobra.NoArgs,
		Long: `Make a cluster a member: its Member, namespace, rights and bounds on the broker, the CRDs and policies in the cluster, a
credential that its controller renews, and ClusterProperty clusterset.k8s.io last.

Run it again at any time: after a crash it does the rest, on a member it changes what the flags say.`,
		Example: `  clusterset join --context east --broker-context hub --cluster-id east --pod-cidr 10.1.0.0/16
  clusterset join --context west --broker-context hub --cluster-id kube-system-uid --vip-cidr auto`,
	}
	s.brokerFlags(c)
	out := s.outputFlags(c)
	joinFlags(c, &o)
	vip := c.Flags().String("vip", "derived", "`MODE` that its controller will have: derived, cidr or none; cidr is --vip-cidr auto")
	offer(c, "vip", "derived", "cidr", "none")
	offer(c, "endpoints", "pod_ip", "service_ip")
	offer(c, "vip-cidr", admin.VIPAuto, admin.VIPNone)
	offer(c, "cluster-id", admin.ByKubeSystem)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if o.Writing, err = out.writing(); err != nil {
			return err
		}
		if err := checkJoin(&o, *vip); err != nil {
			return err
		}
		onBroker, err := s.mustBroker()
		if err != nil {
			return err
		}
		onMember, err := s.member()
		if err != nil {
			return err
		}
		joined, err := admin.Join(c.Context(), onBroker, onMember, o)
		if err != nil {
			return err
		}
		return out.done(joined, joined.Warnings, nextAfterJoin(joined, o.Namespace))
	}
	return c
}

func joinFlags(c *cobra.Command, o *admin.JoinOptions) {
	f := c.Flags()
	f.StringVar(&o.ClusterID, "cluster-id", "", "`ID` of the cluster, that of its ClusterProperty if empty; "+admin.ByKubeSystem+" stands for the UID of kube-system")
	f.StringVar(&o.ClusterSet, "clusterset", "", "`NAME` of the clusterset, the one that members of the broker have if empty; "+admin.DefaultClusterSet+" at first")
	f.StringVar(&o.Prefix, "namespace-prefix", "", "`PREFIX` of the broker namespace, of at most 40 octets; "+admin.DefaultPrefix+" at first")
	f.StringVar(&o.Namespace, "controller-namespace", o.Namespace, "`NAMESPACE` of the controller in the cluster")
	f.StringArrayVar(&o.PodCIDRs, "pod-cidr", nil, "`CIDR` of pods, repeatable; those of the nodes that there are, if none")
	f.StringArrayVar(&o.ServiceCIDRs, "service-cidr", nil, "`CIDR` of services, repeatable; those of its ServiceCIDR objects if none")
	f.StringVar(&o.VIPCIDR, "vip-cidr", "", "`CIDR` of clusterset IPs that the cluster allocates, auto for the first free one, or none; what it has if empty")
	f.StringVar(&o.VIPPool, "vip-cidr-pool", o.VIPPool, "`CIDR` that those of all members are part of")
	f.StringVar(&o.Endpoints, "endpoints", "pod_ip", "`KIND` of address its controller will export: pod_ip or service_ip")
	f.StringVar(&o.BrokerServer, "broker-server", "", "`URL` by which the cluster reaches the broker; that of the broker's kubeconfig if empty")
	f.DurationVar(&o.CredentialLife, "credential-life", o.CredentialLife, "`DURATION` that a credential is good for; the controller renews it at half of that")
	f.Int64Var(&o.Quota.Exports, "quota-exports", o.Quota.Exports, "`NUMBER` of services that the cluster may export")
	f.Int64Var(&o.Quota.Slices, "quota-slices", o.Quota.Slices, "`NUMBER` of EndpointSlices that it may export")
	f.Int64Var(&o.Quota.Leases, "quota-leases", o.Quota.Leases, "`NUMBER` of Leases that it may have on the broker")
	f.BoolVar(&o.AllowSameCluster, "allow-same-cluster", false, "even if the broker is the cluster itself, where members could read its slices")
	f.BoolVar(&o.ReplaceBroker, "replace-broker", false, "even if the cluster is a member at another broker, in whose place this one is")
}

func checkJoin(o *admin.JoinOptions, vip string) error {
	switch {
	case vip != "derived" && vip != "cidr" && vip != "none":
		return fmt.Errorf("--vip=%s: want derived, cidr or none", vip)
	case vip == "cidr" && o.VIPCIDR == admin.VIPNone:
		return fmt.Errorf("--vip=cidr beside --vip-cidr=%s: want one of them", o.VIPCIDR)
	case o.Endpoints != "pod_ip" && o.Endpoints != "service_ip":
		return fmt.Errorf("--endpoints=%s: want pod_ip or service_ip", o.Endpoints)
	case o.CredentialLife < 10*time.Minute:
		return fmt.Errorf("--credential-life=%s: want 10m at least", o.CredentialLife)
	case o.Quota.Exports < 1 || o.Quota.Slices < 1 || o.Quota.Leases < 1:
		return fmt.Errorf("quota of %d exports, %d slices, %d leases: want 1 of each at least", o.Quota.Exports, o.Quota.Slices, o.Quota.Leases)
	case vip == "cidr" && o.VIPCIDR == "":
		o.VIPCIDR = admin.VIPAuto
	}
	return nil
}

func nextAfterJoin(j admin.Joined, namespace string) string {
	return fmt.Sprintf(`%[1]s is a member of clusterset %[2]s; its credential is good until %[4]s.
Next:
  start its controller with Secret %[3]s/clusterset-broker mounted, in CoreDNS ("broker FILE") or alone:
  clusterset controller --broker FILE, where FILE is "kubeconfig" in the mounted folder
  clusterset export SERVICE -n NAMESPACE
  clusterset status`, j.ClusterID, j.ClusterSet, namespace, j.CredentialExpires.UTC().Format(time.RFC3339))
}

func newLeave(s *session) *cobra.Command {
	o := admin.LeaveOptions{}
	c := &cobra.Command{
		Use: "leave", Short: "Take a cluster out of its clusterset", Args: cobra.NoArgs,
		Long: `Take a cluster out of its clusterset: what it exports, what it imports, what the broker has for it, its credential, and
ClusterProperty clusterset.k8s.io last. Its cluster id and its ServiceExports stay.

Run it again after a crash: it does the rest.`,
		Example: `  clusterset leave --context east --broker-context hub
  clusterset leave --context east --force    # the broker is gone`,
	}
	s.brokerFlags(c)
	out := s.outputFlags(c)
	c.Flags().BoolVar(&o.Force, "force", false, "without a broker that is gone or does not answer: only the cluster itself is cleaned up")
	c.Flags().StringVar(&o.Namespace, "controller-namespace", admin.DefaultNamespace, "`NAMESPACE` of the controller in the cluster")
	c.Flags().StringVar(&o.Prefix, "namespace-prefix", admin.DefaultPrefix, "`PREFIX` of its broker namespace, if its Member is gone")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if o.Writing, err = out.writing(); err != nil {
			return err
		}
		onBroker, err := s.broker()
		if err == nil && onBroker == nil && !o.Force {
			err = fmt.Errorf("%w, or --force if it is gone", errNoBroker)
		}
		if err != nil {
			return err
		}
		onMember, err := s.member()
		if err != nil {
			return err
		}
		left, err := admin.Leave(c.Context(), onBroker, onMember, o)
		if err != nil {
			return err
		}
		return out.done(left, left.Warnings, "This cluster is no member any more. Its ServiceExports stay, without effect; "+
			"its controller may be stopped.\nTo come back: clusterset join")
	}
	return c
}
