package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// near returns the names that are like a mistyped one, as cobra finds commands.
func near(typed string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return all.SuggestionsFor(typed)
}

// there returns a clause with names, or "" without a name.
func there(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", there is " + strings.Join(names, ", ")
}

// forArguments annotates a command without arguments with the command that takes some.
const forArguments = "forArguments"

// noArguments is [cobra.NoArgs], which calls each argument an unknown command and suggests no other one.
func noArguments(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.HasSubCommands():
		c.SuggestionsMinimumDistance = 2
		return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), there(c.SuggestionsFor(args[0])))
	}
	return fmt.Errorf("argument %q: %s takes no arguments%s", args[0], c.CommandPath(), c.Annotations[forArguments])
}
