package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/reason"
)

func printVerified(w io.Writer, format string, r plan.Report) error {
	switch format {
	case "json", "yaml":
		return printAs(w, format, r)
	case "junit":
		return printJUnit(w, r)
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "FROM\tTO\tCHECK\tRESULT\tEVIDENCE")
	for _, c := range r.Checks {
		evidence := c.Evidence
		if c.Code != "" {
			evidence = string(c.Code) + ": " + evidence
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.From, c.To, checkName(c), c.Mark, evidence)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s: %s\n", r.Verdict.Code, r.Verdict.Sentence)
	if r.Verdict.Code != reason.Verified {
		fmt.Fprintf(w, "What to do: %s\n", r.Verdict.Remedy)
	}
	return nil
}

func checkName(c plan.Check) string {
	return strings.Join(strings.Fields(fmt.Sprint(c.Kind, " ", c.Family, " ", c.Step)), " ")
}

// The format of JUnit, as far as CI systems read it.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
	}
	junitMessage struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
	}
)

func printJUnit(w io.Writer, r plan.Report) error {
	suite := junitSuite{Name: "clusterset verify", Tests: len(r.Checks)}
	for _, c := range r.Checks {
		test := junitCase{Class: c.From + " to " + c.To, Name: checkName(c)}
		switch c.Mark {
		case plan.Failed:
			suite.Failures++
			test.Failure = &junitMessage{Type: string(c.Code), Message: c.Evidence}
		case plan.Skipped:
			suite.Skipped++
			test.Skipped = &junitMessage{Message: c.Evidence}
		}
		suite.Cases = append(suite.Cases, test)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	}
	return err
}
