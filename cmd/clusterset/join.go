package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

func newJoin(f *factory) *cobra.Command {
	o := join.Defaults()
	c := &cobra.Command{
		Use: "join", Short: "Make a cluster a member of the clusterset", Args: noArguments,
		Long: `Make a cluster a member of the clusterset. On the broker, join creates the Member, a namespace, limits and rights. In
the cluster, it creates missing CRDs, admission policies, a Secret with the credential for the broker, and
ClusterProperty clusterset.k8s.io. Then it installs --components, and waits until they work. Components that Helm or
kubectl have installed stay as they are.

Before it writes, join prints the networks of Pods and Services and where it found them, and how many running Pods have
other addresses.

If the cluster cannot join, the command fails before it writes anything. On a member it applies changed flags and keeps
the other choices.

With --dry-run -o yaml it prints the objects of the cluster without credential and wiring, for Git.

Exit codes: 0, the cluster is a member; 1, the command failed, maybe after it had made the cluster a member: run it
again; 2, it is a member, and something is left to do by hand for its DNS server.`,
		Example: `  clusterset join --context east --broker-context hub --cluster-id east --image registry.example.org/clusterset:1.0
  clusterset join --context west --broker-context hub --cluster-id kube-system-uid \
    --image registry.example.org/clusterset:1.0 --diff
  clusterset join --context west --broker-context hub --cluster-id west --components none`,
	}
	f.brokerFlags(c)
	out := f.outputFlags(c)
	joinFlags(c, &o)
	components := componentFlags(c, &o)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		diff := o.Diff
		if diff && out.dry == "none" {
			out.dry = string(write.DryRunServer)
		}
		o.Options = out.writeOptions()
		o.Diff = diff
		if err := checkJoin(&o); err != nil {
			return err
		}
		if err := readComponents(c, &o, *components); err != nil {
			return err
		}
		onBroker, onMember, err := f.both(errNoBroker)
		if err != nil {
			return err
		}
		result, err := join.Join(c.Context(), onBroker, onMember, o)
		if err != nil {
			out.warn(result.Warnings) // what went wrong may follow from them
			return out.withPartialNote(err)
		}
		return finishJoin(out, &result, &o)
	}
	return c
}

func joinFlags(c *cobra.Command, o *join.Options) {
	f := c.Flags()
	f.StringVar(&o.ClusterID, "cluster-id", "", "`ID` of the cluster; "+join.ByKubeSystem+" uses the UID of Namespace kube-system; default: the id in its ClusterProperty")
	f.StringVar(&o.ClusterSet, "clusterset", "", "`NAME` of the clusterset, the same for all members of a broker; default: the name that the other members have, or "+join.DefaultClusterSet)
	f.StringVar(&o.Prefix, "namespace-prefix", "", "`PREFIX` of the broker namespace, at most 40 octets; default: "+join.DefaultPrefix)
	f.StringVar(&o.Region, "region", "", "`REGION` of the cluster; auto takes the one of all Nodes; default: the one that it has, or none")
	f.StringVar(&o.Namespace, "controller-namespace", o.Namespace, "`NAMESPACE` of the controller in the cluster")
	f.StringArrayVar(&o.PodCIDRs, "pod-cidr", nil, "`CIDR` of Pods, repeatable; default: those found in the cluster, and those declared before")
	f.StringArrayVar(&o.ServiceCIDRs, "service-cidr", nil, "`CIDR` of Services, repeatable; default: those found in the cluster, and those declared before")
	f.StringArrayVar(&o.LoadBalancerCIDRs, "load-balancer-cidr", nil, "`CIDR` of addresses of load balancers, repeatable; \"none\" gives them up; default: those declared before")
	f.BoolVar(
		&o.AllowOverlap, "allow-overlap", false,
		"allow that exported addresses are in networks of other members, which will not import them")
	f.StringVar(&o.VIPCIDR, "vip-cidr", "", "`CIDR[,CIDR]` of clusterset IPs, one of each IP family; auto chooses free ones, none gives them up; default: those that the member has")
	f.StringVar(&o.VIPPool, "vip-cidr-pool", "", "`CIDR[,CIDR]` that contain the --vip-cidr of all members; default: those of the clusterset, or "+merge.DefaultVIPNetworks.String())
	f.StringVar(&o.Values.VIP, "vip", "derived", "vip `MODE` of the controller: derived, cidr or none; cidr implies --vip-cidr auto; "+
		"default: the one given before, cidr if the cluster has a VIP CIDR, the one of the clusterset, or derived")
	f.StringVar(&o.Values.Endpoints, "endpoints", "pod_ip", "`KIND` of exported addresses: pod_ip, service_ip or load_balancer; default: the one given before, or pod_ip")
	for _, name := range []string{"vip", "endpoints"} {
		f.Lookup(name).DefValue = "" // the text has it
	}
	f.StringVar(&o.BrokerServer, "broker-server", "", "`URL` by which the cluster reaches the broker; default: the one in the kubeconfig of the broker")
	credentialLives.flag(f, &o.CredentialLife, "credential-life", "`DURATION` for which a credential is valid, at least 10m; it is renewed daily, or at half of that")
	usual := join.DefaultQuota()
	f.Int64Var(&o.Quota.Exports, "quota-exports", 0, fmt.Sprintf("maximum `NUMBER` of services that the cluster may export; default: that of the member, or %d", usual.Exports))
	f.Int64Var(&o.Quota.Slices, "quota-slices", 0, fmt.Sprintf("maximum `NUMBER` of EndpointSlices that the cluster may export; default: that of the member, or %d", usual.Slices))
	f.Int64Var(&o.Quota.Leases, "quota-leases", 0, fmt.Sprintf("maximum `NUMBER` of Leases that the cluster may have on the broker; default: that of the member, or %d", usual.Leases))
	f.BoolVar(&o.AllowSameCluster, "allow-same-cluster", false,
		"allow that the broker and the cluster are the same; members can then read all EndpointSlices of it")
	f.BoolVar(
		&o.TakeOver, "take-over", false,
		"act for the member even if its original or a copy renews its heartbeat; earlier credentials are revoked")
	f.BoolVar(&o.ReplaceBroker, "replace-broker", false,
		"join although the cluster joined another broker before, which this broker replaces")
	completeWords(c, "vip", "derived", "cidr", "none")
	completeWords(c, "endpoints", broker.EndpointKinds()...)
	completeWords(c, "vip-cidr", join.VIPAuto, join.CIDRNone)
	completeWords(c, "load-balancer-cidr", join.CIDRNone)
	completeWords(c, "region", join.RegionAuto)
	completeWords(c, "cluster-id", join.ByKubeSystem)
}

// componentFlags adds the flags about the installation in the cluster.
func componentFlags(c *cobra.Command, o *join.Options) *[]string {
	f := c.Flags()
	components := f.StringSlice("components", nil, "`LIST` of what to install: controller, dns, all-in-one (both in one process), wiring (of the cluster's DNS server), or none; "+
		"default: those of the join before, or controller,dns,wiring")
	f.StringVar(&o.Values.Image, "image", "", "`IMAGE` with the programs; default: the one that the cluster has")
	f.StringVar(&o.Values.ClusterDomain, "cluster-domain", "", "`DOMAIN` of the cluster; default: the one given before, or cluster.local")
	f.Bool("create-namespaces", false,
		"let the controller create namespaces that imports lack; default: what was given before, or false")
	for _, option := range controller.Options() {
		if option.Name == join.StatusPage { // it checks the value
			f.Var(&optionValue{option: option, config: new(controller.Config)}, "status-page",
				"status page of the controller: on, off or `ADDRESS`; default: what was given before, or off")
		}
	}
	f.Lookup("status-page").DefValue = ""
	f.StringVar(&o.DNS.Ask, "ask", "", "`HOST[:PORT]` of a resolver to ask; default: the cluster IP of the cluster's DNS server, if it can be reached from here")
	restartFlag(c, &o.DNS.Restart)
	f.BoolVar(
		&o.Wait, "wait", true,
		"wait until new Pods run, the controller renews its heartbeat, and DNS answers")
	waits.flag(f, &o.Timeout, "timeout", "`DURATION` of each wait at most")
	f.BoolVar(
		&o.Diff, "diff", false, "show what would change in each object, and change nothing; implies --dry-run=server")
	completeWords(c, "status-page", "on", "off")
	completeWords(c, "components", "controller", "dns", "all-in-one", "wiring", "none")
	return components
}

// readComponents reads the flags about the installation. Without a flag an earlier join may have set the value.
func readComponents(c *cobra.Command, o *join.Options, components []string) (err error) {
	if o.KeepComponents = !c.Flags().Changed("components"); !o.KeepComponents {
		if o.Components, err = join.ParseComponents(components); err != nil {
			return fmt.Errorf("--components: %w", err)
		}
	}
	if c.Flags().Changed("create-namespaces") {
		create, err := c.Flags().GetBool("create-namespaces")
		if err != nil {
			return err
		}
		o.Values.CreateNamespaces = &create
	}
	if c.Flags().Changed("status-page") {
		o.Values.ControllerOptions = map[string]string{join.StatusPage: c.Flags().Lookup("status-page").Value.String()}
	}
	for flag, value := range map[string]*string{"vip": &o.Values.VIP, "endpoints": &o.Values.Endpoints} {
		if !c.Flags().Changed(flag) {
			*value = ""
		}
	}
	return nil
}

func checkJoin(o *join.Options) error {
	vip := o.Values.VIP
	o.Endpoints = o.Values.Endpoints
	switch {
	case vip != "derived" && vip != "cidr" && vip != "none":
		return fmt.Errorf("--vip=%s: want derived, cidr or none", vip)
	case vip == "cidr" && o.VIPCIDR == join.CIDRNone:
		return fmt.Errorf("--vip=cidr and --vip-cidr=%s: want only one of them", o.VIPCIDR)
	case !slices.Contains(broker.EndpointKinds(), o.Endpoints):
		return fmt.Errorf("--endpoints=%s: want %s", o.Endpoints, strings.Join(broker.EndpointKinds(), ", "))
	case o.Quota.Exports < 0 || o.Quota.Slices < 0 || o.Quota.Leases < 0:
		return fmt.Errorf("quota of %d exports, %d slices, %d leases: want at least 1 of each, or 0 to leave it as it is",
			o.Quota.Exports, o.Quota.Slices, o.Quota.Leases)
	case vip == "cidr" && o.VIPCIDR == "":
		o.VIPCIDR = join.VIPAuto
	}
	return nil
}

// finishJoin prints the result, and the remaining manual steps.
func finishJoin(out *output, result *join.Result, o *join.Options) error {
	if result.DNS != nil {
		result.Warnings = append(result.Warnings, result.DNS.Warnings...)
	}
	if out.dry != "none" && out.format == "yaml" {
		out.warn(result.Warnings)
		return printObjects(out.Out, out.steps)
	}
	next := afterJoin(result, o, *out.kube.Context)
	if err := out.finish(result, result.Warnings, next); err != nil || result.DNS == nil {
		return err
	}
	if o.Diff && out.format == "" {
		for _, text := range dnsChanges(result.DNS).text() {
			fmt.Fprint(out.Out, text)
		}
	}
	return out.leftByHand(result.DNS)
}

func afterJoin(j *join.Result, o *join.Options, context string) string {
	if context != "" {
		context = " --context " + context
	}
	member := fmt.Sprintf("%s is a member of clusterset %s. Its credential is valid until %s.\n", j.ClusterID,
		j.ClusterSet, j.CredentialExpires.UTC().Format(time.RFC3339))
	if j.RegionOfNodes != "" {
		member += fmt.Sprintf(
			"All its Nodes are in the region %s. To let services prefer clusters of their region: clusterset join --region=auto\n", j.RegionOfNodes)
	}
	if j.DNS != nil && len(j.DNS.Problems) == 0 {
		member += afterDNSApply(j.DNS, true) + "\n"
	}
	if slices.ContainsFunc(j.Components, func(c join.Component) bool {
		return c == join.ComponentController || c == join.ComponentAllInOne
	}) {
		return member + fmt.Sprintf("Next:\n  clusterset export SERVICE -n NAMESPACE%[1]s\n  clusterset status%[1]s", context)
	}
	options := ""
	if j.VIP != string(merge.Derived) {
		options = fmt.Sprintf(" Its option vip has to be %q.", j.VIP)
	}
	if j.Merge != string(merge.KEP) {
		options += fmt.Sprintf(" Its option merge has to be %q.", j.Merge)
	}
	return member + fmt.Sprintf(`Next:
  1. Install the controller and the DNS server with Helm or kubectl (docs/deployment.md). The controller reads the file
     "kubeconfig" of Secret %s/clusterset-broker.%s
  2. clusterset dns apply%[3]s
  3. clusterset export SERVICE -n NAMESPACE%[3]s
  4. clusterset status%[3]s`, o.Namespace, options, context)
}

// printObjects prints the objects of a member that a join applies. A step with a note is about something else: what
// others have installed, or an edit of the cluster's DNS server.
func printObjects(w io.Writer, steps []write.Step) error {
	for _, s := range steps {
		if s.Cluster != read.RoleMember || s.Action == write.Deleted || s.Note != "" ||
			s.Kind == "Secret" || s.Kind == "Lease" {
			continue
		}
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
		if err := printAs(w, "yaml", s.Content); err != nil {
			return err
		}
	}
	return nil
}
