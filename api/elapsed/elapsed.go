// Package elapsed measures time where neither clock of a machine can be relied on.
package elapsed

import "time"

// Between returns the longer of the times that the monotonic and the wall clock measured. The monotonic clock stops
// while the machine sleeps, and the wall clock may be set back. A time without a monotonic reading has the wall clock
// alone. The result is negative only if from was read from another clock, which is ahead.
func Between(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
