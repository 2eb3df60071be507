package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The error of a request that the deadline stops reports the deadline, whatever the client calls it.
func TestPollDeadline(t *testing.T) {
	refused := errors.New("rate: Wait(n=1) would exceed context deadline")
	e := exportCommand{timeout: time.Minute}
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := e.poll(late, "x", func(ctx context.Context) (bool, error) {
		<-ctx.Done()
		return false, refused
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past the deadline: error %v, want %v", err, context.DeadlineExceeded)
	}
	err = e.poll(t.Context(), "x", func(context.Context) (bool, error) { return false, refused })
	if !errors.Is(err, refused) {
		t.Errorf("without a deadline: error %v, want %v", err, refused)
	}
}
