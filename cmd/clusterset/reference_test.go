package main

import (
	"fmt"
	"os"
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

## Exit codes

| code | meaning |
| --- | --- |
| 0 | success; ` + "`status`" + `: no problems; ` + "`explain`" + `: the name resolves as it should |
| 1 | the command failed; ` + "`status`" + `: not everything could be read; ` + "`explain`" + `: it could not be found out |
| 2 | ` + "`status`, `dns status`" + `: there are problems; ` + "`explain`" + `: a cause was found; ` + "`dns diff`" + `: there is something to do; ` + "`dns apply`, `dns undo`, `join`" + `: something is left to do by hand; ` + "`uninstall`, `broker uninstall`" + `: an object is left; ` + "`gather`" + `: something could not be read; ` + "`verify`" + `: something does not work, or could not be checked or removed |

Commands that write can be run again after a failure or an interruption, and then do the rest.
`

// reference returns the Markdown document for a tree of commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString("\n## Commands\n\n| command | |\n| --- | --- |\n")
	all := documented(root)
	for _, c := range all[1:] {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	for _, c := range all {
		writeCommand(&b, c)
	}
	return b.String()
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

func writeCommand(b *strings.Builder, c *cobra.Command) {
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
	flags, title := c.NonInheritedFlags(), "Flags"
	if !c.HasParent() {
		title = "Flags of all commands; most of them are those of kubectl, and select the cluster"
	}
	if flags.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n\n", title)
		flags.VisitAll(func(f *pflag.Flag) { writeFlag(b, f) })
	}
}

func writeFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden || f.Name == "help" {
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
	wrap(b, "  ", fmt.Sprintf("* `%s`: %s", name, usage))
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
