package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK       = 0 // the command succeeded
	exitError    = 1 // the command failed
	exitProblems = 2 // "status" and "dns" succeeded and found problems, or "explain" a cause
)

const exitCodes = `Exit codes: 0, success; 1, the command failed; 2, "status" or "dns" found problems, or "explain" a cause.`

// errProblems makes run return exitProblems. The problems are printed already.
var errProblems = errors.New("the clusterset has problems")

// help runs a command that only groups other commands. Cobra rejects an unknown subcommand before that.
func help(c *cobra.Command, _ []string) error { return c.Help() }
