// Package until waits in tests for a state that a program reaches by itself, however slow the machine is.
//
// A test must not assume that a second effect of a change (a log line, a metric, an Event, another object) is there as
// soon as the first one is: it waits for each.
package until

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Patience bounds each wait. It is far more than anything takes that works, on a machine that is busy with other
// things; only a test that fails waits so long.
const Patience = 8 * time.Minute

// pause returns how long to wait after a check: a tenth of what has been waited so far. A test that waits for long
// leaves the machine to what it waits for; checks of an API server a hundred times a second would take a good part of
// it.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/10, 10*time.Millisecond), 250*time.Millisecond)
}

// OK returns when check returns nil. After [Patience] it ends the test with the last error; what names the state that
// is waited for.
//
// The context of a check lives longer than Patience, so that the last error is about the state and not about a check
// that was cut short.
func OK(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Patience)
	defer cancel()
	begin := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		waited := time.Since(begin)
		if waited > Patience {
			t.Fatalf("%s, after %s: %v", what, Patience, err)
		}
		time.Sleep(pause(waited))
	}
}

// errFalse is the error of a condition that does not hold.
var errFalse = errors.New("it is not so")

// True is [OK] for a condition. It returns when holds returns true.
func True(t testing.TB, what string, holds func() bool) {
	t.Helper()
	OK(t, what, func(context.Context) error {
		if holds() {
			return nil
		}
		return errFalse
	})
}
