package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/admin/write"
)

// An output prints the steps and the result of a command that writes: line by line, or with -o json and yaml all at the
// end.
type output struct {
	*factory
	dry, format string
	steps       []write.Step
}

// outputFlags adds the flags of a command that writes.
func (f *factory) outputFlags(c *cobra.Command) *output {
	o := &output{factory: f, steps: []write.Step{}}
	c.Flags().StringVar(&o.dry, "dry-run", "none", "report what would change, and change nothing: `MODE` client predicts it, server lets the API servers validate it")
	c.Flags().Lookup("dry-run").NoOptDefVal = "client"
	completeWords(c, "dry-run", "none", "client", "server")
	formatFlag(c, &o.format, "text", "name", "json", "yaml")
	c.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"none", "client", "server"}, o.dry) {
			return fmt.Errorf("--dry-run=%s: want none, client or server", o.dry)
		}
		return nil
	}
	return o
}

// formatFlag adds --output with these formats. Before the command runs, it rejects others.
func formatFlag(c *cobra.Command, format *string, otherwise string, known ...string) {
	last := len(known) - 1
	c.Flags().StringVarP(format, "output", "o", "", fmt.Sprintf("`FORMAT` of the output: %s or %s; default: %s",
		strings.Join(known[:last], ", "), known[last], otherwise))
	completeWords(c, "output", known...)
	c.PersistentPreRunE = func(*cobra.Command, []string) error {
		if *format != "" && !slices.Contains(known, *format) {
			return fmt.Errorf("--output=%s: want one of %s", *format, strings.Join(known, ", "))
		}
		return nil
	}
}

// writeOptions returns what the flags choose. Before the command runs, their values were checked.
func (o *output) writeOptions() write.Options {
	return write.Options{Report: o.report, Progress: o.progress, DryRun: write.DryRun(strings.TrimPrefix(o.dry, "none"))}
}

func (o *output) report(step write.Step) {
	o.steps = append(o.steps, step)
	switch o.format {
	case "":
		fmt.Fprintln(o.Out, step.String()+o.suffix())
		fmt.Fprint(o.Out, step.Diff)
	case "name":
		fmt.Fprintln(o.Out, step.Object())
	}
}

func (o *output) suffix() string {
	if o.dry == "none" {
		return ""
	}
	return " (" + o.dry + " dry run)"
}

// progress shows that a command waits for something.
func (o *output) progress(what string) { fmt.Fprintln(o.ErrOut, what) }

// withPartialNote completes an error that ends a command after its first write: earlier writes stay. Formats that print
// the steps in the end have printed nothing yet.
func (o *output) withPartialNote(err error) error {
	written := o.written()
	if err == nil || o.dry != "none" || len(written) == 0 {
		return err
	}
	if o.format == "json" || o.format == "yaml" {
		for _, s := range written {
			fmt.Fprintln(o.ErrOut, s.String())
		}
	}
	return fmt.Errorf("%w; what the steps above name is written and stays: run the same command again to do the rest", err)
}

// written returns the steps that changed something, or would without the dry run.
func (o *output) written() (all []write.Step) {
	for _, s := range o.steps {
		if s.Action != write.Unchanged {
			all = append(all, s)
		}
	}
	return all
}

// finish prints the result. In text format it prints warnings and, after a real run, what to do next.
func (o *output) finish(result any, warnings []string, next string) error {
	switch o.format {
	case "json", "yaml":
		return printAs(o.Out, o.format, struct {
			DryRun string       `json:"dryRun"`
			Steps  []write.Step `json:"steps"`
			Result any          `json:"result,omitempty"`
		}{o.dry, o.steps, result})
	}
	o.warn(warnings)
	if o.format == "" && o.dry == "none" && next != "" {
		fmt.Fprintf(o.Out, "\n%s\n", next)
	}
	return nil
}

func (o *output) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(o.ErrOut, "warning: "+w)
	}
}

func printAs(w io.Writer, format string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil && format == "yaml" {
		text, err = yaml.Marshal(v)
	}
	if err == nil {
		_, err = fmt.Fprintln(w, strings.TrimSuffix(string(text), "\n"))
	}
	return err
}
