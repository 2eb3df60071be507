package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/admin"
)

// An output prints what a writing verb did, line by line, or all of it at the end.
type output struct {
	*session
	dry, format string
	steps       []admin.Step
}

// outputFlags adds the flags of a writing verb.
func (s *session) outputFlags(c *cobra.Command) *output {
	o := &output{session: s, steps: []admin.Step{}}
	c.Flags().StringVar(&o.dry, "dry-run", "none", "`HOW` to only try it: none, client (guess from what is there) or server (the API servers check)")
	c.Flags().Lookup("dry-run").NoOptDefVal = "client"
	c.Flags().StringVarP(&o.format, "output", "o", "", "`FORMAT` of what was done: name, json or yaml; lines to read if empty")
	offer(c, "dry-run", "none", "client", "server")
	offer(c, "output", "name", "json", "yaml")
	return o
}

// writing reads the flags.
func (o *output) writing() (admin.Writing, error) {
	w := admin.Writing{Report: o.report}
	switch o.dry {
	case "none":
	case "client", "server":
		w.DryRun = admin.DryRun(o.dry)
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

func (o *output) report(step admin.Step) {
	o.steps = append(o.steps, step)
	switch o.format {
	case "":
		fmt.Fprintln(o.Out, step.String()+o.suffix())
	case "name":
		fmt.Fprintln(o.Out, step.Object())
	}
}

func (o *output) suffix() string {
	if o.dry == "none" {
		return ""
	}
	return " (dry run by " + o.dry + ")"
}

// done prints the result, and for a person what deserves attention and what to do next.
func (o *output) done(result any, warnings []string, next string) error {
	switch o.format {
	case "json", "yaml":
		return printAs(o.Out, o.format, struct {
			DryRun string       `json:"dryRun"`
			Steps  []admin.Step `json:"steps"`
			Result any          `json:"result,omitempty"`
		}{o.dry, o.steps, result})
	}
	for _, w := range warnings {
		fmt.Fprintln(o.ErrOut, "warning: "+w)
	}
	if o.format == "" && o.dry == "none" && next != "" {
		fmt.Fprintf(o.Out, "\n%s\n", next)
	}
	return nil
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
