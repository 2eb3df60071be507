package logging

import (
	"fmt"
	"runtime/debug"
)

// A Barrier keeps a panic on one object from ending the process. It is used around whatever handles objects that others
// wrote, in goroutines that handle many of them. A panic is counted, and logged with its stack once for each kind of
// work. What the work would have changed stays as it was. The zero value counts and logs nothing; the methods may be
// called by several goroutines.
type Barrier struct {
	Log      Logger
	Panicked func() // counts; nil if nothing does

	logged OnChangeOf[string, string] // the panic, by kind of work
}

// Do calls work, and reports whether it returned. kind is one of few, name says which object it is about.
func (b *Barrier) Do(kind string, name func() string, work func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			b.report(kind, name, p)
		}
	}()
	work()
	return true
}

// report is called by the deferred function of Do: the stack is that of the panic.
func (b *Barrier) report(kind string, name func() string, p any) {
	if b.Panicked != nil {
		b.Panicked()
	}
	text := Line(fmt.Errorf("%v", p))
	if b.Log != nil && b.logged.Changed(kind, text) {
		b.Log.Errorf("%s %s: panic: %s\n%s", kind, name(), text, debug.Stack())
	}
}
