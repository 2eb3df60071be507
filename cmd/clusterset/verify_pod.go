package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin/verify"
	"github.com/clusterset-dns/clusterset/admin/verify/plan"
)

// newVerifyPod returns the command of the Pods of "verify" and "helm test". It is hidden: its flags may change with
// each version.
func newVerifyPod(f *factory) *cobra.Command {
	c := &cobra.Command{Use: "verify-pod", Short: "What the Pods of clusterset verify run", Hidden: true,
		Args: noArguments, RunE: showHelp}
	c.AddCommand(newVerifyServe(f), newVerifyAsk(f))
	return c
}

func newVerifyServe(f *factory) *cobra.Command {
	var addresses, say string
	var port int
	c := &cobra.Command{Use: "serve", Short: "Reply by TCP and UDP", Args: noArguments}
	c.Flags().StringVar(&addresses, "address", "", "`IP,...` to listen at")
	c.Flags().IntVar(&port, "port", 8080, "`PORT` to listen at")
	c.Flags().StringVar(&say, "say", "", "`TEXT` to reply")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var all []string
		for address := range strings.SplitSeq(addresses, ",") {
			if net.ParseIP(address) == nil {
				return fmt.Errorf("--address=%s: want IP addresses", addresses)
			}
			all = append(all, net.JoinHostPort(address, fmt.Sprint(port)))
		}
		return verify.Serve(c.Context(), all, say, func() { fmt.Fprintln(f.Out, "listening at", all) })
	}
	return c
}

func newVerifyAsk(f *factory) *cobra.Command {
	var server string
	patience := time.Minute
	c := &cobra.Command{Use: "ask QUESTIONS", Short: "Ask DNS, connect, and print the answers", Args: cobra.ExactArgs(1)}
	c.Flags().StringVar(&server, "dns-server", "", "`ADDRESS:PORT` of the DNS server; default: the first of /etc/resolv.conf")
	waits.flag(c.Flags(), &patience, "patience", "`DURATION` for which what fails is tried again")
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.verifyAsk(c.Context(), args[0], server, patience)
	}
	return c
}

func (f *factory) verifyAsk(ctx context.Context, text, server string, patience time.Duration) error {
	var questions []plan.Question
	if err := json.Unmarshal([]byte(text), &questions); err != nil {
		return fmt.Errorf("questions: %w", err)
	}
	if server == "" {
		config, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return err
		}
		if len(config.Servers) == 0 {
			return fmt.Errorf("/etc/resolv.conf: no name server: want one, or --dns-server")
		}
		server = net.JoinHostPort(config.Servers[0], config.Port)
	}
	answers := verify.Ask(ctx, questions, server, patience)
	if err := json.NewEncoder(f.Out).Encode(answers); err != nil {
		return err
	}
	if slices.ContainsFunc(answers, func(a plan.Answer) bool { return !a.Worked() }) {
		return errProblems
	}
	return nil
}
