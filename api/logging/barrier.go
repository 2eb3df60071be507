package logging

import (
	"fmt"
	"runtime/debug"
)

// A Barrier keeps a panic on one object from ending the process. It is used where one goroutine handles many objects of
// others. A panic is counted, and logged with its stack once for each kind of work. The work has no effect then. The
// zero value counts and logs nothing; several goroutines may call the methods.
type Barrier struct {
	Log      Logger
	Panicked func() // counts; nil if nothing does

	logged OnChangeOf[string, string] // the panic, by kind of work
}

// Do calls work, and reports whether it returned. kind is one of few, name is the name of the object.
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
