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
	c.Flags().StringVarP(&o.format, "output", "o", "", "`FORMAT` of the output: name, json or yaml; default: text")
	completeWords(c, "dry-run", "none", "client", "server")
	completeWords(c, "output", "name", "json", "yaml")
	return o
}

// writeOptions checks the flags.
func (o *output) writeOptions() (write.Options, error) {
	w := write.Options{Report: o.report, Progress: o.progress}
	switch o.dry {
	case "none":
	case "client", "server":
		w.DryRun = write.DryRun(o.dry)
	default:
		return w, fmt.Errorf("--dry-run=%s: want none, client or server", o.dry)
	}
	return w, checkFormat(o.format, "", "name", "json", "yaml")
}

func checkFormat(format string, known ...string) error {
	if !slices.Contains(known, format) {
		return fmt.Errorf("--output=%s: want one of %s", format, strings.Join(known[1:], ", "))
	}
	return nil
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

// rest completes an error that ends a command after its first write: earlier writes stay. Formats that print the steps
// in the end have printed nothing yet.
func (o *output) rest(err error) error {
	var written []write.Step
	for _, s := range o.steps {
		if s.Action != write.Unchanged {
			written = append(written, s)
		}
	}
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
