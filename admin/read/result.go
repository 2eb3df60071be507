package read

import "fmt"

// A Result holds the findings of a command that reads. It is well if there is no problem and all was read. Well, not
// well and not read have an exit code each.
type Result struct {
	Problems []string `json:"problems"`         // something does not work
	Warnings []string `json:"warnings"`         // everything works, and an administrator should know this
	Unread   []string `json:"unread,omitempty"` // failed reads and questions, with the reason
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
