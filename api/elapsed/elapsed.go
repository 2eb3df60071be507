// Package elapsed measures time where neither clock of a machine can be relied on.
package elapsed

import "time"

// Between returns how much time passed from a reading of the clocks to a later one. The monotonic clock stands still while a machine sleeps, and
// the wall clock may be set back: the one that saw more time pass counts. A time without a monotonic reading has the wall clock alone. The result
// is negative only if from is a time of another clock, which is ahead.
func Between(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
