package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK       = 0 // the command succeeded
	exitError    = 1 // the command failed
	exitProblems = 2 // the command succeeded, and something is left
)

const exitCodes = `Exit codes: 0, success; 1, the command failed; 2, it worked, and something is left: problems, a cause,
a change to make, work to do by hand, or what could not be read.`

// errProblems makes run return exitProblems. The problems are printed already.
var errProblems = errors.New("the clusterset has problems")

// showHelp runs a command that only groups other commands. Cobra rejects an unknown subcommand before that.
func showHelp(c *cobra.Command, _ []string) error { return c.Help() }
