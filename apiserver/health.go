package apiserver

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// A WatchState is how far a watch has come.
//
//	Pending    a list is to be requested, or is requested and not answered
//	Listing    the API server sends a list
//	Opening    the list is complete, and a watch from its version is to be opened; also between two watches, since the API
//	           server ends each after some minutes
//	Watching   the list is complete and the watch is open
//	Failing    the last attempt failed, or a rollback was found: Health.Class and Health.Err say why
//
// The events come from the requests of the reflector, from the open watch, and from the server check. An event in a
// state where it cannot happen is late, and changes nothing: that is "–".
//
//	          listing   listed    streamed   opened     ended     expired   failed
//	Pending   Listing   –         –          Watching   –         –         Failing
//	Listing   –         Opening   Watching   Watching   Pending   Pending   Failing
//	Opening   Listing   –         –          Watching   –         Pending   Failing
//	Watching  Listing   –         –          –          Opening   Pending   Failing
//	Failing   Listing   –         –          Watching   –         Pending   –
type WatchState uint8

// The states.
const (
	Pending WatchState = iota
	Listing
	Opening
	Watching
	Failing
	states
)

// String is the state as a word.
func (s WatchState) String() string {
	return [states]string{"pending", "listing", "opening", "watching", "failing"}[s]
}

// An event moves a watch from state to state.
type event uint8

const (
	listing  event = iota // the API server accepted a request for a list, or for a watch that begins with one
	listed                // it sent the list, all of it, and no watch is open
	streamed              // it sent the list, all of it, by the watch that is open
	opened                // it accepted a watch that goes on from a known version
	ended                 // the open watch ended
	expired               // a list has to be requested: an error of class Expired
	failed                // any other error, or a rollback
	events
)

// next is the transition function of [WatchState].
func (s WatchState) next(e event) WatchState {
	switch {
	case e == failed:
		return Failing
	case e == listing:
		return Listing
	case e == expired:
		return Pending
	case e == opened:
		return Watching
	case s == Listing && e == listed:
		return Opening
	case s == Listing && e == streamed:
		return Watching
	case s == Listing && e == ended:
		return Pending
	case s == Watching && e == ended:
		return Opening
	}
	return s
}

// A WatchID names one watch of a [Set].
type WatchID struct {
	Kind      string // as in the API
	Namespace string // "" for all
}

// String is the kind, and the namespace if it is one.
func (w WatchID) String() string {
	if w.Namespace == "" {
		return w.Kind
	}
	return w.Kind + " in " + w.Namespace
}

// A Health is the state of one watch. The zero value: not started.
type Health struct {
	State WatchState
	// LastContact is the time of the last list, event, bookmark or passed server check; zero before the first. An error
	// is no contact.
	LastContact time.Time
	// Listed: a list was complete once, so the content of the store was true at LastContact.
	Listed bool
	// Class and Err are those of the last failure, of this watch or of the server check. They are OK and nil again once
	// the watch is open.
	Class Class
	Err   error
	// Version is the API version that is followed, "<group>/<version>" or "<version>".
	Version string
}

// Healthy reports whether the store follows the API server: it has a complete list, and the watch is open or about to
// be.
func (h Health) Healthy() bool {
	return h.Class == OK && (h.State == Watching || h.State == Opening)
}

// after returns the health after an event; err is the reason of a failed one.
func (h Health) after(e event, err error) Health {
	h.State = h.State.next(e)
	h.Listed = h.Listed || h.State == Opening || h.State == Watching
	switch {
	case e == failed:
		h.Class, h.Err = Classify(err), err
	case h.State == Watching:
		h.Class, h.Err = OK, nil
	}
	return h
}

// A watchHealth keeps the [Health] of one watch, and logs its changes and notifies of them.
type watchHealth struct {
	subject string // the server and the watch, at the beginning of log lines
	log     logging.Logger
	changed func(Health) // may be nil; called with mu taken
	contact *Contact
	logged  logging.Failure[Class] // the normal state is OK

	mu  sync.Mutex
	now Health // with the LastContact of the last change
}

// handleEvent moves the state of the watch. err is the reason of a failed event.
func (w *watchHealth) handleEvent(e event, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.now
	w.now = before.after(e, err)
	w.now.LastContact = w.contact.Last()
	switch class := w.now.Class; {
	case w.now.State == Watching:
		if w.logged.Changed(OK, nil) {
			w.log.Infof("%s: watching %s", w.subject, w.now.Version)
		}
	case !class.ofServer(): // see logFailure
		w.logClass()
	}
	if w.changed != nil && (w.now.State != before.State || w.now.Class != before.Class) {
		w.changed(w.now)
	}
}

// logFailure logs a failure of the server's kind that the server check after it did not find.
func (w *watchHealth) logFailure() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logClass()
}

func (w *watchHealth) logClass() {
	if class := w.now.Class; class != OK && w.logged.Changed(class, w.now.Err) {
		class.log(w.log, w.subject, w.now.Err)
	}
}

// setVersion notes which API version is followed.
func (w *watchHealth) setVersion(gv schema.GroupVersion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now.Version = gv.String()
}

func (w *watchHealth) current() Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.now
	h.LastContact = w.contact.Last()
	return h
}
