package apiserver

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A Backoff gives the pauses between attempts to reach an API server, each at random. They double from 250 ms up to 5
// s, with up to half of it on top, where the server answered: it may be overloaded. Where nothing answered they stay
// below a second. An attempt costs one dial then, and what waits for the server goes on within a second of its return.
//
// The first answer after silence, and the first silence after an answer, begin with the shortest pause. Create one with
// [NewBackoff].
type Backoff struct{ answered, silent *wait.Backoff }

// NewBackoff returns a Backoff before the first attempt.
func NewBackoff() *Backoff { return &Backoff{backoffTo(answeredPause), backoffTo(silentPause)} }

// The longest pauses, without the part at random.
const answeredPause, silentPause = 5 * time.Second, 650 * time.Millisecond

// backoffTo returns pauses that double up to longest, each with up to half of it at random on top.
func backoffTo(longest time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: longest}
}

// After returns the pause after an attempt that failed with err. Nil means that the server answered and something is
// not there yet.
func (b *Backoff) After(err error) time.Duration {
	if hasNoAnswer(err) {
		b.answered = backoffTo(answeredPause)
		return b.silent.Step()
	}
	b.silent = backoffTo(silentPause)
	return b.answered.Step()
}

// Sleep pauses, at most until ctx ends, and returns why ctx ended.
func Sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}
