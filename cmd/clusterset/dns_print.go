package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/clusterset-dns/clusterset/admin/dns"
)

// printDNS prints the state of the resolvers for people; wide adds what led to it.
func printDNS(out io.Writer, s *dns.State, wide bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintf(w, "Zone:\t%s\n", s.Zone)
	var addresses []string
	for _, a := range s.Server.Addresses {
		addresses = append(addresses, a.String())
	}
	ready := "ready"
	if !s.Server.Ready {
		ready = "not ready"
	}
	fmt.Fprintf(w, "DNS server:\t%s, %s, %s\n", s.Server.Service, cmp.Or(strings.Join(addresses, " "), "no address"),
		ready)
	for i := range s.Answers {
		fmt.Fprintf(w, "Answer:\t%s\n", &s.Answers[i])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nRESOLVER\tKIND\tSTATE")
	for i := range s.Resolvers {
		r := &s.Resolvers[i]
		fmt.Fprintf(w, "%s\t%s\t%s\n", cmp.Or(r.Workload, "-"), r.Kind, r.State)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range s.Resolvers {
		if r := &s.Resolvers[i]; wide && len(r.Evidence) > 0 {
			fmt.Fprintf(out, "\n%s:\n  %s\n", r.Name(), strings.Join(r.Evidence, "\n  "))
		}
	}
	printResult(out, &s.Result)
	return nil
}
