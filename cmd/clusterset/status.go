package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin"
)

func newStatus(s *session) *cobra.Command {
	o := admin.StatusDefaults()
	var format string
	var brokerOnly bool
	c := &cobra.Command{
		Use: "status", Short: "Show members, heartbeats, services, conflicts and credential", Args: cobra.NoArgs,
		Long: `Show the clusterset from the cluster that kubectl's flags name: its controller and credential, and with that credential, or
the broker's flags, all members. With --broker-only the cluster is not asked, and conflicts are found by merging the records.

Exit codes: 0, nothing is wrong; 1, not all could be found out; 2, something is wrong: a heartbeat or credential expired, no
controller acts, the broker is not the one joined, or has no Member for the cluster. Conflicts, exports that are not ready
and merge options that differ are warnings.`,
		Example: `  clusterset status --context east
  clusterset status --broker-only --broker-context hub -o json`,
	}
	s.brokerFlags(c)
	c.Flags().StringVarP(&format, "output", "o", "", "`FORMAT`: wide, json or yaml; a table if empty")
	offer(c, "output", "wide", "json", "yaml")
	c.Flags().BoolVar(&brokerOnly, "broker-only", false, "ask the broker alone")
	c.Flags().StringVar(&o.Namespace, "controller-namespace", o.Namespace, "`NAMESPACE` of the controller in the cluster")
	c.Flags().DurationVar(&o.TTL, "lease-ttl", o.TTL, "`DURATION` from which on a heartbeat is expired")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := checkFormat(format, "", "wide", "json", "yaml"); err != nil {
			return err
		}
		onBroker, onMember, err := s.sides(brokerOnly)
		if err != nil {
			return err
		}
		state, failed := admin.Status(c.Context(), onBroker, onMember, o)
		if format == "json" || format == "yaml" {
			err = printAs(s.Out, format, state)
		} else {
			err = printState(s.Out, &state, o.Now(), format == "wide")
		}
		switch {
		case failed != nil:
			return failed
		case err == nil && len(state.Problems) > 0:
			return errWrong
		}
		return err
	}
	return c
}

func (s *session) sides(brokerOnly bool) (onBroker, onMember *rest.Config, err error) {
	if brokerOnly {
		onBroker, err = s.mustBroker()
		return onBroker, nil, err
	}
	if onBroker, err = s.broker(); err != nil {
		return nil, nil, err
	}
	onMember, err = s.member()
	return onBroker, onMember, err
}

// printState prints what a person wants to know first.
func printState(w io.Writer, s *admin.State, now time.Time, wide bool) error {
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	if s.Cluster != nil {
		printCluster(table, s.Cluster, now)
	}
	if s.Broker != nil {
		fmt.Fprintf(table, "Broker:\t%s\n", s.Broker.Server)
	}
	// Columns of what comes now are their own.
	if err := table.Flush(); err != nil {
		return err
	}
	if len(s.Members) > 0 {
		fmt.Fprintln(w)
		printMembers(table, s.Members, wide)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(s.Conflicts) > 0 {
		fmt.Fprintln(w)
		printConflicts(table, s.Conflicts, wide)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(s.Problems)+len(s.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, p := range s.Problems {
		fmt.Fprintln(w, "problem: "+p)
	}
	for _, p := range s.Warnings {
		fmt.Fprintln(w, "warning: "+p)
	}
	return nil
}

func printCluster(w io.Writer, c *admin.ClusterState, now time.Time) {
	fmt.Fprintf(w, "Cluster:\t%s\n", or(c.ClusterID, "without an id"))
	if c.ClusterSet == "" {
		fmt.Fprintln(w, "Clusterset:\tno member of any")
		return
	}
	fmt.Fprintf(w, "Clusterset:\t%s\n", c.ClusterSet)
	controller := "none acts"
	if c.LeaderRenewed != nil {
		controller = fmt.Sprintf("%s, renewed %s ago", or(c.Leader, "none"), age(now.Sub(*c.LeaderRenewed)))
	}
	fmt.Fprintf(w, "Controller:\t%s\n", controller)
	credential := "none"
	switch {
	case c.CredentialExpires == nil:
	case c.CredentialExpires.After(now):
		credential = "good for " + age(c.CredentialExpires.Sub(now))
	default:
		credential = "expired " + age(now.Sub(*c.CredentialExpires)) + " ago"
	}
	fmt.Fprintf(w, "Credential:\t%s\n", credential)
	fmt.Fprintf(w, "Exports:\t%d, %d ready\n", c.Exports.Total, c.Exports.Ready)
}

func printMembers(w io.Writer, members []admin.MemberState, wide bool) {
	fmt.Fprint(w, "MEMBER\tHEARTBEAT\tSERVICES\tVERSION\tMERGE OPTIONS")
	if wide {
		fmt.Fprint(w, "\tNAMESPACE\tPOD CIDRS\tSERVICE CIDRS\tVIP CIDR")
	}
	fmt.Fprintln(w)
	for i := range members {
		m := &members[i]
		name, heartbeat, options := m.ClusterID, "none", or(m.MergeOptions, "-")
		if m.This {
			name += " *"
		}
		if m.Heartbeat != nil {
			heartbeat = m.HeartbeatAge + " ago"
			if m.Expired {
				heartbeat += ", expired"
			}
		}
		if m.OptionsDiffer {
			options += " (differ)"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s", name, heartbeat, m.Services, or(m.Version, "-"), options)
		if wide {
			list := func(s []string) string { return or(strings.Join(s, ","), "-") }
			fmt.Fprintf(w, "\t%s\t%s\t%s\t%s", m.Namespace, list(m.PodCIDRs), list(m.ServiceCIDRs), or(m.VIPCIDR, "-"))
		}
		fmt.Fprintln(w)
	}
}

func printConflicts(w io.Writer, conflicts []admin.ConflictState, wide bool) {
	fmt.Fprint(w, "CONFLICT\tREASON")
	if wide {
		fmt.Fprint(w, "\tMESSAGE")
	}
	fmt.Fprintln(w)
	for _, c := range conflicts {
		fmt.Fprintf(w, "%s/%s\t%s", c.Namespace, c.Name, c.Reason)
		if wide {
			fmt.Fprintf(w, "\t%s", c.Message)
		}
		fmt.Fprintln(w)
	}
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// age shows a duration as roughly as a person would.
func age(d time.Duration) string {
	if d >= time.Hour {
		return d.Round(time.Minute).String()
	}
	return max(d, 0).Round(time.Second).String()
}
