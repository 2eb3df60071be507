package logging

import (
	"errors"
	"strings"
	"sync"
	"time"
	"unicode"
)

// reasonPeriod is the least time between two lines about one failure.
const reasonPeriod = time.Minute

// A Failure is an [OnChange] for a task that is repeated, such as a request to an API server. It also reports a new
// reason of the same failure, at most once a minute. S is the kind of failure; its zero value is the normal state.
// Typical use:
//
//	var failing logging.Failure[bool]
//	...
//	if failing.Changed(err != nil, err) && err != nil {
//		log.Warningf("heartbeat: %v; trying again", err)
//	}
//
// Its methods may be called by several goroutines.
type Failure[S comparable] struct {
	mu     sync.Mutex
	state  S
	reason string    // of the last line
	logged time.Time // when that was
}

// Changed records the state and its error. It reports whether to log them: the state or the reason of the failure
// changed.
func (f *Failure[S]) Changed(state S, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var normal S
	if state == normal { // each event of a watch comes here
		changed := f.state != normal
		f.state = normal
		return changed
	}
	why, now := reason(err), time.Now()
	if state == f.state && (why == f.reason || now.Sub(f.logged) < reasonPeriod) {
		return false
	}
	f.state, f.reason, f.logged = state, why, now
	return true
}

// reason returns the text of the innermost error, without digits. Outer errors name the request, and ports and times
// differ between attempts.
func reason(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, Text(err))
}
