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

// A Failure is an [OnChange] for what is tried again and again, such as to reach an API server. A failure that goes on for another reason is to be
// logged, too, at most once a minute. S is the kind of failure; its zero value is the normal state. Typical use:
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

// Changed records the state and the error behind it, and reports whether to log them: the state is another one, or the reason of the failure is.
func (f *Failure[S]) Changed(state S, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var normal S
	why, now := reason(err), time.Now()
	other := state != normal && why != f.reason && now.Sub(f.logged) >= reasonPeriod
	if state == f.state && !other {
		return false
	}
	f.state, f.reason, f.logged = state, why, now
	return true
}

// reason returns the text of the innermost error without digits: the errors around it name the request, and numbers, such as those of ports and
// times, differ from one attempt to the next.
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
