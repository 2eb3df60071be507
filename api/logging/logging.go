// Package logging holds what every part of the project logs through: a [Logger], and [OnChange], which keeps a log to
// changes of state.
package logging

// A Logger takes lines for an operator. Package log of CoreDNS has one. Its methods may be called by several
// goroutines.
type Logger interface {
	Infof(format string, args ...any)
	Warningf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Discard drops every line.
var Discard Logger = discard{}

type discard struct{}

func (discard) Infof(string, ...any)    {}
func (discard) Warningf(string, ...any) {}
func (discard) Errorf(string, ...any)   {}
