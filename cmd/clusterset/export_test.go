package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A late context is past its deadline and has not ended yet, as on a busy machine.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// The error of a request that the deadline stops reports the deadline, whatever the client calls it.
func TestPollDeadline(t *testing.T) {
	refused := errors.New("rate: Wait(n=1) would exceed context deadline")
	check := func(context.Context) (bool, error) { return false, refused }
	var e exportCommand
	if err := e.poll(late{t.Context()}, "x", check); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past the deadline: error %v, want %v", err, context.DeadlineExceeded)
	}
	if err := e.poll(t.Context(), "x", check); !errors.Is(err, refused) {
		t.Errorf("without a deadline: error %v, want %v", err, refused)
	}
}
