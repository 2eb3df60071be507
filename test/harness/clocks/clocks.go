// Package clocks makes times whose monotonic and wall clock readings differ.
package clocks

import (
	"time"
	"unsafe"
)

// SetWall returns t as it is read where the wall clock was set forward by d, or back, and the monotonic clock was not.
// A machine that wakes up after d reads its clocks so. t has a monotonic reading, as time.Now returns it.
func SetWall(t time.Time, d time.Duration) time.Time {
	set := t.Add(d)
	// Nothing exported moves one of the readings alone. These are the fields of time.Time.
	fields := (*struct {
		wall uint64
		ext  int64 // the monotonic reading in nanoseconds
		loc  *time.Location
	})(unsafe.Pointer(&set))
	fields.ext -= int64(d)
	return set
}
