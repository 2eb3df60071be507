package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// A completion returns the words that can complete prefix, the word at the cursor; args are the arguments before it.
type completion = func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// completeWords completes the value of a flag with fixed words.
func completeWords(c *cobra.Command, flag string, values ...string) {
	completeBy(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func completeBy(c *cobra.Command, flag string, by completion) {
	if err := c.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic("clusterset: each completed flag exists and is registered once: " + err.Error())
	}
}

// completeContexts completes the names of contexts in a kubeconfig.
func completeContexts(load func() clientcmd.ClientConfig) completion {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		raw, err := load().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(slices.Sorted(maps.Keys(raw.Contexts)), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// unquoteUsage removes the backquotes from the usage of all flags. pflag finds the name of the value by them; a shell
// would show them.
func unquoteUsage(c *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	c.PersistentFlags().VisitAll(plain)
	c.Flags().VisitAll(plain)
	for _, sub := range c.Commands() {
		unquoteUsage(sub)
	}
}

func withPrefix(words []string, prefix string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, prefix) })
}
