package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/status"
)

// printState prints a state for people: the cluster, the members, the conflicts, and last, next to the prompt, the
// problems.
func printState(w io.Writer, s *status.State, now time.Time, wide bool) error {
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	if s.Cluster != nil {
		printCluster(table, s.Cluster, now)
	}
	if s.Broker != nil {
		version := "" // not known
		if s.Broker.Version != 0 {
			version = fmt.Sprintf(", CRDs and policies of version %d", s.Broker.Version)
		}
		fmt.Fprintf(table, "Broker:\t%s%s\n", s.Broker.Server, version)
	}
	// Flush ends a table, so that each of them has column widths of its own.
	err := table.Flush()
	section := func(rows int, write func()) {
		if rows > 0 && err == nil {
			fmt.Fprintln(w)
			write()
			err = table.Flush()
		}
	}
	section(len(s.Members), func() { printMembers(table, s.Members, wide) })
	if s.Cluster != nil {
		section(len(s.Cluster.Selection), func() { printSelection(table, s.Cluster.Selection, now) })
	}
	section(len(s.Conflicts), func() { printConflicts(table, s.Conflicts, wide) })
	if err == nil {
		printResult(w, &s.Result)
	}
	return err
}

func printResult(w io.Writer, r *read.Result) {
	fmt.Fprintln(w)
	for _, p := range r.Problems {
		fmt.Fprintln(w, "problem: "+p)
	}
	for _, p := range r.Warnings {
		fmt.Fprintln(w, "warning: "+p)
	}
	for _, p := range r.Unread {
		fmt.Fprintln(w, "not read: "+p)
	}
	if r.Well() {
		fmt.Fprintln(w, "No problems found.")
	}
}

func printCluster(w io.Writer, c *status.ClusterState, now time.Time) {
	fmt.Fprintf(w, "Cluster:\t%s\n", cmp.Or(c.ClusterID, "no cluster id"))
	if c.ClusterSet == "" {
		fmt.Fprintln(w, "Clusterset:\tnot a member")
		return
	}
	leaving := ""
	if c.Leaving {
		leaving = " (leaving)"
	}
	fmt.Fprintf(w, "Clusterset:\t%s%s\n", c.ClusterSet, leaving)
	fmt.Fprintf(w, "Controller:\t%s\n", controllerText(c, now))
	credential := "none"
	switch {
	case c.CredentialExpires == nil:
	case c.CredentialExpires.After(now):
		credential = "expires in " + roundedText(c.CredentialExpires.Sub(now))
	default:
		credential = "expired " + roundedText(now.Sub(*c.CredentialExpires)) + " ago"
	}
	fmt.Fprintf(w, "Credential:\t%s\n", credential)
	exports := fmt.Sprintf("%d of %d ready", c.Exports.Ready, c.Exports.Total)
	if c.Exports.Unread != "" {
		exports = "not known: " + c.Exports.Unread
	}
	fmt.Fprintf(w, "Exports:\t%s\n", exports)
}

// controllerText names the leader. A controller that ends gives its Lease up, which leaves no holder.
func controllerText(c *status.ClusterState, now time.Time) string {
	switch {
	case c.LeaderRenewed == nil || c.Leader == "":
		return "no leader"
	case c.LeaderExpired:
		return fmt.Sprintf("no leader; the last one, %s, renewed its lease %s ago", c.Leader,
			roundedText(now.Sub(*c.LeaderRenewed)))
	}
	text := fmt.Sprintf("leader %s, lease renewed %s ago", c.Leader, roundedText(now.Sub(*c.LeaderRenewed)))
	for _, f := range c.Frozen {
		text += fmt.Sprintf("; frozen (%s) for %s", f.Reason, roundedText(now.Sub(f.Since)))
	}
	return text
}

func printMembers(w io.Writer, members []status.MemberState, wide bool) {
	printRow(w, wide, "MEMBER\tHEARTBEAT\tSERVICES\tVERSION",
		"NAMESPACE\tPOD CIDRS\tSERVICE CIDRS\tLOAD BALANCER CIDRS\tVIP CIDRS")
	for i := range members {
		m := &members[i]
		name, heartbeat := m.ClusterID, "none"
		if m.This {
			name += " (this)"
		}
		if m.Heartbeat != nil {
			heartbeat = m.HeartbeatAge + " ago"
			if m.Expired {
				heartbeat += " (expired)"
			}
		}
		printRow(w, wide, fmt.Sprintf("%s\t%s\t%d\t%s", name, heartbeat, m.Services, cmp.Or(m.Version, "-")),
			m.Namespace, joinedList(m.PodCIDRs), joinedList(m.ServiceCIDRs), joinedList(m.LoadBalancerCIDRs),
			joinedList(m.VIPCIDRs))
	}
}

// printRow prints the cells of a row that a wide table alone has after the others.
func printRow(w io.Writer, wide bool, cells string, further ...string) {
	if wide {
		cells += "\t" + strings.Join(further, "\t")
	}
	fmt.Fprintln(w, cells)
}

func printSelection(w io.Writer, selection []status.SelectionState, now time.Time) {
	fmt.Fprintln(w, "SERVICE\tIN USE\tNOT IN USE\tPREFERRED\tFOR AT LEAST")
	for _, s := range selection {
		since := "-"
		if s.Since != nil {
			since = roundedText(now.Sub(*s.Since))
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\n", s.Namespace, s.Name, joinedList(s.InUse), joinedList(s.Hidden),
			s.Preferred, since)
	}
}

func printConflicts(w io.Writer, conflicts []status.ServiceState, wide bool) {
	printRow(w, wide, "CONFLICT\tREASON", "MESSAGE")
	for _, c := range conflicts {
		printRow(w, wide, fmt.Sprintf("%s/%s\t%s", c.Namespace, c.Name, c.Reason), c.Message)
	}
}

// joinedList fills a cell with a list.
func joinedList(all []string) string { return cmp.Or(strings.Join(all, ","), "-") }

// roundedText prints a duration with two units at most: "23h30m", "5m0s", "3s".
func roundedText(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return max(d, 0).Round(time.Second).String()
}
