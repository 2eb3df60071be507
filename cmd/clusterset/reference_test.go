package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// referenceFile is generated from the commands by "go generate".
//
// The generator is a part of this test and not cobra/doc: that package writes one file for each command, and importing
// it adds the Markdown and man page libraries that it needs to our module. Nothing here is linked into a program.
const referenceFile = "../../docs/cli.md"

// TestReference compares docs/cli.md with the commands. With -update it writes the file.
func TestReference(t *testing.T) {
	t.Setenv("HOME", "~") // it appears in the default of --cache-dir
	t.Setenv("KUBECACHEDIR", "")
	got := reference(newRoot("clusterset", genericiooptions.NewTestIOStreamsDiscard()))
	if *update {
		if err := os.WriteFile(referenceFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not up to date: run \"make generate\"", referenceFile)
	}
}

const referenceHead = `# The command line

<!-- Generated from cmd/clusterset by "make generate". Do not edit. -->

` + "`make build`" + ` builds ` + "`bin/clusterset`" + `. Installed as ` + "`kubectl-clusterset`" + ` in a folder of ` + "`PATH`" + `, it is a plugin of kubectl:
` + "`kubectl clusterset status`" + `.

All commands have the flags of kubectl, such as ` + "`--kubeconfig`, `--context` and `--namespace`" + `: they select the cluster. ` + "`kubectl options`" + ` lists them.
Commands that write can be run again after a failure or an interruption, and then do the rest.
`

// reference returns the Markdown document for a tree of commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	all := documented(root)
	shared := sharedFlags(all)
	b.WriteString("\n## Flags of several commands\n\n")
	for _, line := range slices.Sorted(maps.Keys(shared)) {
		wrap(&b, "  ", line)
	}
	for _, c := range all {
		writeCommand(&b, c, shared)
	}
	return b.String()
}

// sharedFlags returns the lines of flags that at least three commands have: of a flag with several lines, the most
// common one.
func sharedFlags(all []*cobra.Command) map[string]int {
	count := map[string]int{}
	for _, c := range all {
		for _, line := range flagLines(c) {
			count[line]++
		}
	}
	flagOf := func(line string) string { flag, _, _ := strings.Cut(line, "`:"); return flag }
	most := map[string]int{}
	for line, n := range count {
		most[flagOf(line)] = max(most[flagOf(line)], n)
	}
	maps.DeleteFunc(count, func(line string, n int) bool { return n < 3 || n < most[flagOf(line)] })
	return count
}

// documented returns c and the commands below it, without commands that only cobra needs. The shells of "completion"
// have no sections of their own: their texts are those of cobra, and long.
func documented(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	if c.Name() == "completion" {
		return all
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, documented(sub)...)
		}
	}
	return all
}

func writeCommand(b *strings.Builder, c *cobra.Command, shared map[string]int) {
	fmt.Fprintf(b, "\n## %s\n\n", c.CommandPath())
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		wrap(b, "", paragraph)
		b.WriteString("\n")
	}
	usage := c.UseLine()
	if c.HasAvailableSubCommands() {
		usage = c.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(b, "~~~\n%s\n~~~\n", usage)
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n~~~ sh\n%s\n~~~\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ",
			"\n"))
	}
	lines := flagLines(c)
	if len(lines) == 0 {
		return
	}
	b.WriteString("\nFlags:\n\n")
	var names []string
	for _, line := range lines {
		if shared[line] == 0 {
			wrap(b, "  ", line)
			continue
		}
		_, long, _ := strings.Cut(line, "--")
		names = append(names, "`"+long[:strings.IndexAny(long, " `")]+"`")
	}
	if len(names) > 0 {
		wrap(b, "  ", "* [of several commands](#flags-of-several-commands): "+strings.Join(names, ", "))
	}
}

// flagLines returns a line for each flag of a command, except the flags of kubectl, which the root has, and the options
// of "clusterset controller", which docs/controller.md has.
func flagLines(c *cobra.Command) (lines []string) {
	if !c.HasParent() {
		return nil
	}
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Value.(*optionValue); ok && c.Name() == "controller" || f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		if !strings.HasSuffix(usage, "...") {
			usage = strings.TrimSuffix(usage, ".")
		}
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" && !strings.Contains(usage, "; default: ") {
			usage += fmt.Sprintf("; default: `%s`", f.DefValue)
		}
		lines = append(lines, fmt.Sprintf("* `%s`: %s", name, usage))
	})
	return lines
}

// wrap writes words in lines of at most 120 octets, and indents all lines but the first.
func wrap(b *strings.Builder, indent, text string) {
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > 120:
			b.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	b.WriteString(line + "\n")
}
