package apiserver

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// NewBackoff returns the pauses between attempts to reach an API server: 250 ms that double up to 5 s, each with up to half
// of it at random on top. Step returns the next one. A new Backoff begins anew.
func NewBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
}

// Sleep pauses, at most until ctx ends, and returns why ctx ended.
func Sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}
