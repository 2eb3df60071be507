package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/controller"
)

// TestFlagsAreDocumented finds every flag of ours in docs/cli.md; those of the controller are directives.
func TestFlagsAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	directives := map[string]bool{"help": true, "output": true, "cluster-id": true}
	for _, o := range controller.Options() {
		directives[strings.ReplaceAll(o.Name, "_", "-")] = true
	}
	checked := 0
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			checked++
			if !directives[f.Name] && !strings.Contains(string(document), "`--"+f.Name) {
				t.Errorf("%s: docs/cli.md does not have --%s", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(newRoot("clusterset", genericiooptions.NewTestIOStreamsDiscard()))
	if checked < 40 {
		t.Errorf("%d flags: want those of all commands", checked)
	}
}
