package apiserver

import (
	"math"
	"sync/atomic"
	"time"
)

// A Contact is the time of the last contact of a watch. The zero value is that of a watch without one. Its age does not
// depend on the wall clock, which may jump. Its methods may be called from any goroutine.
type Contact struct {
	at atomic.Int64 // nanoseconds since epoch; 0 before the first
}

// epoch is before any contact, so that its distance to a contact is above 0.
var epoch = time.Now().Add(-time.Second)

// Mark notes a contact of this moment.
func (c *Contact) Mark() { c.at.Store(int64(time.Since(epoch))) }

// Inherit makes c that of another watch.
func (c *Contact) Inherit(from *Contact) { c.at.Store(from.at.Load()) }

// Before reports whether the last contact was before that of another watch; a watch without a contact is before all
// others.
func (c *Contact) Before(other *Contact) bool { return c.at.Load() < other.at.Load() }

// Last is the time of the last contact; zero before the first.
func (c *Contact) Last() time.Time {
	at := c.at.Load()
	if at == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(at))
}

// Age is the time since the last contact; the greatest duration before the first.
func (c *Contact) Age() time.Duration {
	at := c.at.Load()
	if at == 0 {
		return math.MaxInt64
	}
	return time.Since(epoch) - time.Duration(at)
}
