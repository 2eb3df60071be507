package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin/read"
)

// The exit codes.
const (
	exitOK       = 0 // the command succeeded
	exitError    = 1 // the command failed
	exitProblems = 2 // the command succeeded, and something is left
	exitUnread   = 3 // no problem was found, and something could not be read
)

const exitCodes = `Exit codes: 0, success; 1, the command failed; 2, it worked, and something is left: problems, a cause,
a change to make, work to do by hand; 3, no problem was found, and not all could be read.`

// errProblems makes run return exitProblems. The problems are printed already.
var errProblems = errors.New("the clusterset has problems")

// errUnread makes run return exitUnread. What could not be read is printed already.
var errUnread = errors.New("not all could be read")

// judge returns the error for the exit code of a command that reads (docs/spec/explain.md 5).
func judge(r *read.Result) error {
	switch {
	case len(r.Problems) > 0:
		return errProblems
	case !r.Well():
		return errUnread
	}
	return nil
}

// showHelp runs a command that only groups other commands. Cobra rejects an unknown subcommand before that.
func showHelp(c *cobra.Command, _ []string) error { return c.Help() }
