package read

import "fmt"

// A Result is what a command that reads found. It is well only if nothing is wrong and all was read: commands call
// nothing else well, and end with an exit code of their own for each of the three.
type Result struct {
	Problems []string `json:"problems"`         // something does not work
	Warnings []string `json:"warnings"`         // everything works, and an administrator should know this
	Unread   []string `json:"unread,omitempty"` // what could not be read or asked, and why
}

// NewResult returns a Result that is well.
func NewResult() Result { return Result{Problems: []string{}, Warnings: []string{}} }

// Well reports whether nothing is wrong and all was read.
func (r *Result) Well() bool { return len(r.Problems)+len(r.Unread) == 0 }

// Problem adds a problem.
func (r *Result) Problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// Warn adds a warning.
func (r *Result) Warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}
